"""`retold schema`: the contracts as JSON Schemas, for hosts in any language."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from retold.cli.failures import CommandError
from retold.cli.terminal import out, write_json
from retold.contracts.config import UtilityAwareConfig
from retold.contracts.decision import TurnDecision, TurnRecord
from retold.contracts.host_generation import HostAnswer, HostDraftInput, HostRegenerateInput
from retold.contracts.importing import ImportReport
from retold.contracts.lifecycle import (
    ContradictInput,
    CorrectInput,
    ExpireInput,
    LifecycleReport,
    ReadRecordsInput,
    RecordPage,
    RememberInput,
    RestoreInput,
    SupersedeInput,
)
from retold.contracts.operations import (
    DecisionView,
    DeleteRecordInput,
    Deployment,
    DevelopmentAmbientInput,
    EndSessionInput,
    ImportInput,
    InspectInput,
    InspectResult,
)
from retold.contracts.record import MemoryRecord, RecordRef, RecordWrite, TranscriptWrite
from retold.contracts.review import ReviewDecision, ReviewOutcome, ReviewState
from retold.contracts.stages import (
    AdmitInput,
    AdmitResult,
    DraftInput,
    DraftResult,
    OpenInput,
    OpenResult,
    PlanInput,
    PlanResult,
    RegenerateInput,
    RegenerateResult,
    RetrieveInput,
    RetrieveResult,
)
from retold.contracts.turn import TurnRequest, TurnResult

DIALECT = "https://json-schema.org/draft/2020-12/schema"
VERSION = 1
"""Of all contracts together. Later ones of the same version only add optional fields."""

PUBLISHED: tuple[type[BaseModel], ...] = (
    # what a host sends and gets back
    TurnRequest, TurnResult,
    # what a host that generates on its own worker gets and returns
    HostDraftInput, HostRegenerateInput, HostAnswer,
    # what an import file holds, one a line
    RecordWrite, TranscriptWrite,
    # what is stored
    MemoryRecord, RecordRef, TurnDecision, TurnRecord, UtilityAwareConfig,
    # what goes into and comes out of each stage
    OpenInput, OpenResult, DraftInput, DraftResult, PlanInput, PlanResult, RetrieveInput, RetrieveResult,
    AdmitInput, AdmitResult, RegenerateInput, RegenerateResult,
    # what a reviewer signs and sends, and what comes back
    ReviewDecision, ReviewOutcome, ReviewState,
    # what an operator asks of a running stack
    RememberInput, SupersedeInput, ContradictInput, CorrectInput, ExpireInput, RestoreInput, LifecycleReport,
    ReadRecordsInput, RecordPage,
    ImportInput, ImportReport, EndSessionInput, DeleteRecordInput, DevelopmentAmbientInput,
    InspectInput, InspectResult, DecisionView, Deployment,
)  # fmt: skip


def schema(
    directory: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write one file a contract there; default: stdout.")
    ] = None,
    # Accepted so that a script need not know which commands print JSON anyway.
    as_json: Annotated[bool, typer.Option("--json", help="The default: schemas are JSON.")] = False,
) -> None:
    """Print the contracts as JSON Schemas.

    One object, by contract name; or with --out one file a contract.
    """
    documents = schemas()
    if directory is None:
        write_json(dict(documents))
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, document in documents.items():
            text = json.dumps(document, indent=2, ensure_ascii=False)
            (directory / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{directory} cannot be written: {error.strerror}") from error
    if as_json:
        write_json(sorted(f"{name}.json" for name in documents))
    else:
        out().print(f"{len(documents)} schemas written", markup=False)


def schemas() -> Mapping[str, dict[str, Any]]:
    """Every published contract by name, each a document that refers to nothing outside itself."""
    return MappingProxyType({model.__name__: _document(model) for model in PUBLISHED})


def _document(model: type[BaseModel]) -> dict[str, Any]:
    return {
        "$schema": DIALECT,
        "$id": f"urn:retold:contract:{model.__name__}:{VERSION}",
        "version": VERSION,
        **model.model_json_schema(),
    }

"""Reasons are kept for good: none with a secret in it is taken, whoever asks for what, and a review needs one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from typer.testing import CliRunner

from retold.cli.app import app
from retold.contracts.forgetting import ForgetInput, ForgetPrincipal
from retold.contracts.lifecycle import (
    ContradictInput,
    CorrectInput,
    ExpireInput,
    RememberInput,
    RestoreInput,
    SupersedeInput,
)
from retold.contracts.operations import DeleteRecordInput, DevelopmentAmbientInput
from retold.contracts.record import RecordWrite
from retold.contracts.refusal import refusal_text
from retold.contracts.switches import SwitchChange, SwitchName
from retold.contracts.turn import Principal

SECRET = "sk-" + "a1B2" * 8
ADA = Principal(tenant="acme", user="ada")
WRITE = RecordWrite(text="Likes tea")
CHANGE: dict[str, Any] = {"principal": ADA, "record_id": "r", "actor": "ada"}
REQUESTS: list[tuple[type[BaseModel], dict[str, Any]]] = [
    (RememberInput, {"principal": ADA, "records": (WRITE,), "actor": "ada"}),
    (SupersedeInput, CHANGE | {"by": WRITE}),
    (CorrectInput, CHANGE | {"text": "Likes coffee"}),
    (ExpireInput, CHANGE | {"at": datetime(2026, 6, 1, tzinfo=UTC)}),
    (RestoreInput, CHANGE),
    (ContradictInput, {"principal": ADA, "record_ids": ("a", "b"), "actor": "ada"}),
    (DeleteRecordInput, CHANGE),
    (DevelopmentAmbientInput, CHANGE),
    (ForgetInput, {"principal": ADA, "target": ForgetPrincipal(), "actor": "ada"}),
    (SwitchChange, {"switch": SwitchName.GAP, "on": False, "actor": "ada"}),
]


@pytest.mark.parametrize(("request_type", "fields"), REQUESTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_request_whose_reason_holds_a_secret_is_refused_by_its_field(
    request_type: type[BaseModel], fields: dict[str, Any]
) -> None:
    request_type(**fields, reason="asked to, because the password expired")
    with pytest.raises(ValidationError) as refused:
        request_type(**fields, reason=f"used {SECRET} to sign in")
    said = refusal_text(refused.value)
    assert said.startswith("reason: seems to hold a secret (API key)")
    assert SECRET not in said and SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "command",
    [
        ["records", "delete", "r", "--tenant", "acme", "--user", "ada"],
        ["forget", "record", "r", "--tenant", "acme", "--user", "ada"],
        ["switch", "off", "gap"],
        ["reviewers", "disable", "rita"],
    ],
    ids=" ".join,
)
def test_no_command_takes_one_either(command: list[str]) -> None:
    said = CliRunner().invoke(app, [*command, "--reason", f"the token is {SECRET}"], env={"COLUMNS": "200"})
    assert said.exit_code == 2
    assert "--reason" in said.output and "seems to hold a secret" in said.output and SECRET not in said.output

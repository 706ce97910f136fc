"""What the path does: the host's configuration, and the switches laid over it (specification section 5)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from retold.contracts._base import Contract
from retold.contracts.turn import BudgetMs

StageTimeoutMs = Annotated[int, Field(strict=True, ge=1, le=600_000)]


class AdmissionMode(StrEnum):
    DISABLED = "disabled"
    HOSTED_JUDGE = "hosted_judge"
    LOCAL_JUDGE = "local_judge"


class UtilityAwareConfig(Contract):
    """The utility-aware path as a host configures it. Everything is opt-in.

    Independence matrix (each cell is a test):

    * profile on, gap off: the profile is rendered, nothing is retrieved.
    * profile off: no profile in draft or decision, whatever the other switches say.
    * gap on, admission disabled: decides and logs in shadow only; refused outside shadow.
    * gap on, admission on, shadow off: serves.

    Stage timeouts are milliseconds and hard caps: no budget extends a stage beyond its own. The defaults are
    those of design section 3.2; the specification's 2,000 ms made every gap turn fail when measured.
    """

    gap_enabled: bool = False
    admission_mode: AdmissionMode = AdmissionMode.DISABLED
    shadow: bool = True
    """True: decide and log, never regenerate. The default: serving is asked for, never assumed."""
    profile_enabled: bool = True
    trigger_mode: Literal["tool_only"] = "tool_only"
    """Host-issued search in other modes would show records to the model before admission, so they are refused."""
    max_gaps: Annotated[int, Field(strict=True, ge=1, le=3)] = 3
    max_candidates: Annotated[int, Field(strict=True, ge=1, le=32)] = 8
    draft_timeout_ms: StageTimeoutMs = 30_000
    profile_timeout_ms: Annotated[int, Field(strict=True, ge=1, le=5_000)] = 250
    gap_timeout_ms: StageTimeoutMs = 4_000
    retrieval_timeout_ms: StageTimeoutMs = 1_000
    admission_timeout_ms: StageTimeoutMs = 8_000
    regeneration_timeout_ms: StageTimeoutMs = 30_000
    latency_budget_ms: BudgetMs = None
    """Default per-turn budget in milliseconds; None: per-stage timeouts only."""
    shed_after_ms: Annotated[int, Field(strict=True, ge=1, le=600_000)] | None = 1_000
    """A turn that no worker took for this long goes out as its draft, whatever its budget: workers are overloaded, and
    a draft costs less than half of what memory does. None: however late, a turn gets everything."""
    bundle: dict[str, JsonValue] = {}
    """Planner, judge, classifier, taxonomy, inventory builder, retrieval hash: what a fitness result is about."""

    @model_validator(mode="after")
    def _admission_needed_to_serve(self) -> Self:
        if self.gap_enabled and self.admission_mode is AdmissionMode.DISABLED and not self.shadow:
            raise ValueError(
                "gap_enabled without admission may only run in shadow: set shadow=True or choose an admission_mode"
            )
        return self

    @property
    def serving(self) -> bool:
        """Whether this configuration can put a record into an answer."""
        return self.gap_enabled and not self.shadow and self.admission_mode is not AdmissionMode.DISABLED


class Switches(Contract):
    """Kill switches: an overlay that can only take away, recorded in each decision and never part of a bundle."""

    gap: bool = True
    admission: bool = True
    regeneration: bool = True
    """Off: shadow. Decide and log, never regenerate."""
    profile: bool = True

"""The closed table of what can become of a turn and why (design section 3.3).

Every decision carries one disposition and one reason out of this table, so that *no need*, *nothing stored*,
*nothing found*, *rejected*, *too late*, *malformed* and *failed* can always be told apart, in the database, in
traces and on screen. This module owns the table; nothing else spells a pair.

Beyond the seven dispositions of the specification's section 4 there are shadow's, `cancelled`, and `failed`: a
turn whose draft failed has no answer, yet leaves its row like every other.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Disposition(StrEnum):
    BASELINE_NO_GAPS = "baseline_no_gaps"
    BASELINE_NO_CANDIDATES = "baseline_no_candidates"
    BASELINE_EMPTY_ADMISSION = "baseline_empty_admission"
    BASELINE_POLICY_FAILURE = "baseline_policy_failure"
    BASELINE_BUDGET_EXHAUSTED = "baseline_budget_exhausted"
    ADMITTED_NOT_APPLIED = "admitted_not_applied"
    REGENERATED = "regenerated"
    SHADOW_WOULD_REGENERATE = "shadow_would_regenerate"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Reason(StrEnum):
    # baseline_no_gaps
    PLANNER_SILENT = "planner_silent"
    PATH_DISABLED = "path_disabled"
    STAGE_SWITCHED_OFF = "stage_switched_off"
    # baseline_no_candidates
    INVENTORY_EMPTY = "inventory_empty"
    NOTHING_FOUND = "nothing_found"
    CANDIDATES_GONE = "candidates_gone"
    # baseline_empty_admission
    JUDGE_REJECTED_ALL = "judge_rejected_all"
    ADMITTED_RECORD_GONE = "admitted_record_gone"
    ADMISSION_DISABLED = "admission_disabled"
    # baseline_policy_failure
    PLANNER_TIMEOUT = "planner_timeout"
    PLANNER_ERROR = "planner_error"
    PLANNER_MALFORMED = "planner_malformed"
    PLANNER_REFUSED = "planner_refused"
    RETRIEVAL_TIMEOUT = "retrieval_timeout"
    RETRIEVAL_ERROR = "retrieval_error"
    RETRIEVAL_MALFORMED = "retrieval_malformed"
    RETRIEVAL_REFUSED = "retrieval_refused"
    JUDGE_TIMEOUT = "judge_timeout"
    JUDGE_ERROR = "judge_error"
    JUDGE_MALFORMED = "judge_malformed"
    JUDGE_REFUSED = "judge_refused"
    REGENERATION_TIMEOUT = "regeneration_timeout"
    REGENERATION_ERROR = "regeneration_error"
    REGENERATION_MALFORMED = "regeneration_malformed"
    REGENERATION_REFUSED = "regeneration_refused"
    # baseline_budget_exhausted
    BUDGET_ZERO = "budget_zero"
    PLANNER_CUT_OFF = "planner_cut_off"
    RETRIEVAL_CUT_OFF = "retrieval_cut_off"
    JUDGE_CUT_OFF = "judge_cut_off"
    BEFORE_RETRIEVAL = "before_retrieval"
    BEFORE_ADMISSION = "before_admission"
    REDELIVERED_LATE = "redelivered_late"
    OVERLOADED = "overloaded"
    # admitted_not_applied
    BUDGET_EXHAUSTED = "budget_exhausted"
    REGENERATION_CUT_OFF = "regeneration_cut_off"
    # regenerated, shadow_would_regenerate
    ADMITTED = "admitted"
    # cancelled
    BY_HOST = "by_host"
    # failed
    DRAFT_TIMEOUT = "draft_timeout"
    DRAFT_ERROR = "draft_error"
    DRAFT_MALFORMED = "draft_malformed"
    DRAFT_REFUSED = "draft_refused"


_D, _R = Disposition, Reason

TABLE: dict[Disposition, frozenset[Reason]] = {
    _D.BASELINE_NO_GAPS: frozenset({_R.PLANNER_SILENT, _R.PATH_DISABLED, _R.STAGE_SWITCHED_OFF}),
    _D.BASELINE_NO_CANDIDATES: frozenset({_R.INVENTORY_EMPTY, _R.NOTHING_FOUND, _R.CANDIDATES_GONE}),
    _D.BASELINE_EMPTY_ADMISSION: frozenset(
        {_R.JUDGE_REJECTED_ALL, _R.ADMITTED_RECORD_GONE, _R.ADMISSION_DISABLED, _R.STAGE_SWITCHED_OFF}
    ),
    _D.BASELINE_POLICY_FAILURE: frozenset(
        {
            _R.PLANNER_TIMEOUT, _R.PLANNER_ERROR, _R.PLANNER_MALFORMED, _R.PLANNER_REFUSED,
            _R.RETRIEVAL_TIMEOUT, _R.RETRIEVAL_ERROR, _R.RETRIEVAL_MALFORMED, _R.RETRIEVAL_REFUSED,
            _R.JUDGE_TIMEOUT, _R.JUDGE_ERROR, _R.JUDGE_MALFORMED, _R.JUDGE_REFUSED,
            _R.REGENERATION_TIMEOUT, _R.REGENERATION_ERROR, _R.REGENERATION_MALFORMED, _R.REGENERATION_REFUSED,
        }
    ),
    _D.BASELINE_BUDGET_EXHAUSTED: frozenset(
        {
            _R.BUDGET_ZERO, _R.PLANNER_CUT_OFF, _R.RETRIEVAL_CUT_OFF, _R.JUDGE_CUT_OFF,
            _R.BEFORE_RETRIEVAL, _R.BEFORE_ADMISSION, _R.REDELIVERED_LATE, _R.OVERLOADED,
        }
    ),
    _D.ADMITTED_NOT_APPLIED: frozenset({_R.BUDGET_EXHAUSTED, _R.REGENERATION_CUT_OFF}),
    _D.REGENERATED: frozenset({_R.ADMITTED}),
    _D.SHADOW_WOULD_REGENERATE: frozenset({_R.ADMITTED}),
    _D.CANCELLED: frozenset({_R.BY_HOST}),
    _D.FAILED: frozenset({_R.DRAFT_TIMEOUT, _R.DRAFT_ERROR, _R.DRAFT_MALFORMED, _R.DRAFT_REFUSED}),
}  # fmt: skip

SERVING_DISPOSITIONS = (
    _D.BASELINE_NO_GAPS,
    _D.BASELINE_NO_CANDIDATES,
    _D.BASELINE_EMPTY_ADMISSION,
    _D.BASELINE_POLICY_FAILURE,
    _D.BASELINE_BUDGET_EXHAUSTED,
    _D.ADMITTED_NOT_APPLIED,
    _D.REGENERATED,
)
"""The seven dispositions a served turn can end with (specification section 4)."""

UNANSWERED = frozenset({_D.FAILED, _D.CANCELLED})
"""How a turn ends without an answer."""


class Outcome(NamedTuple):
    """A disposition with its reason. Build it with :func:`outcome`, which refuses a pair outside the table."""

    disposition: Disposition
    reason: Reason


def outcome(disposition: Disposition, reason: Reason) -> Outcome:
    """Pair a disposition with its reason.

    Raises:
        ValueError: the pair is not in the table.
    """
    if reason not in TABLE[disposition]:
        raise ValueError(f"reason {reason.value!r} does not belong to disposition {disposition.value!r}")
    return Outcome(disposition, reason)

"""One sentence a person understands for every outcome of the closed table (retold.contracts.disposition).

Written for somebody who has the answer on screen and asks why memory was or was not in it. Each sentence says
what happened and what went out; none needs the source to be understood.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from retold.contracts.disposition import Disposition as D
from retold.contracts.disposition import Outcome, outcome
from retold.contracts.disposition import Reason as R

_STAGES = {
    "planner": "The planner, which names what the draft may be missing,",
    "retrieval": "The search for stored records",
    "judge": "The judge, which decides whether a record helps,",
    "regeneration": "The second answer, written with the admitted records,",
    "draft": "The draft",
}
_FAILURES = {
    "timeout": "took longer than its own limit",
    "error": "failed with an error",
    "malformed": "came back in a form that holds no valid result",
    "refused": "was refused by its provider (policy, quota or credentials)",
}


def _failure(reason: R) -> str:
    """The four ways a stage can fail read alike for every stage; only the stage's name differs."""
    stage, kind = reason.value.rsplit("_", 1)
    return f"{_STAGES[stage]} {_FAILURES[kind]}"


_NO_GAPS = {
    R.PLANNER_SILENT: "The planner saw nothing in this turn that depends on the user, so nothing was looked up.",
    R.PATH_DISABLED: "The memory path is not enabled in this configuration, so the draft is the answer.",
    R.STAGE_SWITCHED_OFF: "An operator switched the planner off, so the draft is the answer.",
}

_NO_CANDIDATES = {
    R.INVENTORY_EMPTY: "Nothing usable is stored for this user, so the planner was not asked.",
    R.NOTHING_FOUND: "The search ran and found no stored record close enough to what was missing.",
    R.CANDIDATES_GONE: "Records were found, but all of them were deleted or replaced before they could be judged.",
}

_EMPTY_ADMISSION = {
    R.JUDGE_REJECTED_ALL: "Records were found, and the judge expected none of them to make the answer better.",
    R.ADMITTED_RECORD_GONE: "A record was admitted, but it or one it needs was deleted or replaced before use.",
    R.ADMISSION_DISABLED: "Records were found, but this configuration has no judge to admit them.",
    R.STAGE_SWITCHED_OFF: "Records were found, but an operator switched the judge off.",
}

_BUDGET_EXHAUSTED = {
    R.BUDGET_ZERO: "The host gave this turn no time for memory (a budget of 0 ms), so the planner was never asked.",
    R.PLANNER_CUT_OFF: "The planner was still thinking when the budget ended, so the draft went out on time.",
    R.RETRIEVAL_CUT_OFF: "The search was still running when the budget ended, so the draft went out on time.",
    R.JUDGE_CUT_OFF: "The judge was still thinking when the budget ended, so the draft went out on time.",
    R.BEFORE_RETRIEVAL: "The budget was used up before the search could start, so the draft went out on time.",
    R.BEFORE_ADMISSION: "The budget was used up before the judge could be asked, so the draft went out on time.",
    R.REDELIVERED_LATE: "A worker died during this turn, and its budget was gone when another one took over.",
    R.OVERLOADED: "Workers had more turns than they could take, so this one went out as its draft at once.",
}

_NOT_APPLIED = {
    R.BUDGET_EXHAUSTED: "A record was admitted, but too little time was left to write the answer again.",
    R.REGENERATION_CUT_OFF: "A record was admitted, but the second answer was not ready when the budget ended.",
}

EXPLANATIONS: Mapping[Outcome, str] = MappingProxyType(
    {
        **{outcome(D.BASELINE_NO_GAPS, reason): text for reason, text in _NO_GAPS.items()},
        **{outcome(D.BASELINE_NO_CANDIDATES, reason): text for reason, text in _NO_CANDIDATES.items()},
        **{outcome(D.BASELINE_EMPTY_ADMISSION, reason): text for reason, text in _EMPTY_ADMISSION.items()},
        **{
            outcome(D.BASELINE_POLICY_FAILURE, reason): f"{_failure(reason)}, so the draft went out unchanged."
            for reason in (
                R.PLANNER_TIMEOUT, R.PLANNER_ERROR, R.PLANNER_MALFORMED, R.PLANNER_REFUSED,
                R.RETRIEVAL_TIMEOUT, R.RETRIEVAL_ERROR, R.RETRIEVAL_MALFORMED, R.RETRIEVAL_REFUSED,
                R.JUDGE_TIMEOUT, R.JUDGE_ERROR, R.JUDGE_MALFORMED, R.JUDGE_REFUSED,
                R.REGENERATION_TIMEOUT, R.REGENERATION_ERROR, R.REGENERATION_MALFORMED, R.REGENERATION_REFUSED,
            )
        },
        **{outcome(D.BASELINE_BUDGET_EXHAUSTED, reason): text for reason, text in _BUDGET_EXHAUSTED.items()},
        **{outcome(D.ADMITTED_NOT_APPLIED, reason): text for reason, text in _NOT_APPLIED.items()},
        outcome(D.REGENERATED, R.ADMITTED): (
            "A stored record was expected to make the answer better, and the answer was written again with it."
        ),
        outcome(D.SHADOW_WOULD_REGENERATE, R.ADMITTED): (
            "A stored record was admitted and would have been used; in shadow the draft goes out unchanged."
        ),
        outcome(D.CANCELLED, R.BY_HOST): "The host gave up on this turn before it had an answer.",
        **{
            outcome(D.FAILED, reason): f"{_failure(reason)}, so there was nothing to answer with."
            for reason in (R.DRAFT_TIMEOUT, R.DRAFT_ERROR, R.DRAFT_MALFORMED, R.DRAFT_REFUSED)
        },
    }
)  # fmt: skip
"""Total over the table: a test fails when a new reason has no sentence."""


def explain(disposition: D, reason: R) -> str:
    """The sentence for one outcome.

    Raises:
        ValueError: the pair is not in the closed table.
    """
    return EXPLANATIONS[outcome(disposition, reason)]

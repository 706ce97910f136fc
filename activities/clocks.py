"""A stage's deadline is set by the server's clock, through the workflow, and held by this machine's."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeVar

from temporalio import activity

from retold.contracts.stages import AdmitInput, DraftInput, Limit, PlanInput, RegenerateInput, RetrieveInput
from retold.policy.limits import utc_now

DISAGREE_FROM = timedelta(seconds=2)
"""A smaller difference may be a task's way to its worker, and that counts against its deadline."""

StageInput = TypeVar("StageInput", DraftInput, PlanInput, RetrieveInput, AdmitInput, RegenerateInput)


def by_this_clock(stage: StageInput) -> StageInput:
    """The same stage with its deadline as this machine's clock will show it."""
    return stage.model_copy(update={"limit": limit_by_this_clock(stage.limit)})


def limit_by_this_clock(limit: Limit) -> Limit:
    """The same limit for a machine whose clock was set wrong.

    Left alone, a clock that is ahead finds every deadline passed, and memory out of every answer, without a word. The
    server says when it handed the task out; what this clock makes of that moment is the difference. A local activity
    was never handed out, and begins at once: what it may take is all it needs to know.
    """
    if limit.deadline_at is None:
        return limit
    told = activity.info()
    if told.is_local:
        return limit.model_copy(update={"deadline_at": None})
    ahead = utc_now() - told.started_time
    return limit if abs(ahead) < DISAGREE_FROM else limit.model_copy(update={"deadline_at": limit.deadline_at + ahead})

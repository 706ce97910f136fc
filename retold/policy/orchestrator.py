"""The in-process driver of the turn: the same algorithm as the workflow, with plain awaits.

For the fitness suite, for hosts that bring their own generation callbacks, and as the floor of the benchmark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from retold.contracts.decision import TurnDecision, TurnRecord
from retold.contracts.recording import RecordResult
from retold.contracts.turn import Principal, TurnOptions, TurnRequest, TurnResult
from retold.policy.driver import TurnStart
from retold.policy.in_process import InProcessStages
from retold.policy.limits import utc_now
from retold.policy.recording import TurnRecorder
from retold.policy.stages import TurnStageBodies
from retold.policy.utility_aware import run_turn


@dataclass(frozen=True)
class TurnMemoryDecision:
    """The answer of one turn and the decision behind it."""

    result: TurnResult
    decision: TurnDecision | None
    """None when the turn had been answered before: its decision is in the log."""

    @property
    def response(self) -> str:
        return self.result.answer


class UtilityAwareOrchestrator:
    """Runs turns in this process. Fails closed to the draft on every error and budget path.

    The configuration is that of the certificate `bodies.open` was built with: whoever asks to serve a bundle that
    is not approved gets BundleNotApprovedError from `certify`, and nothing to construct this with.

    A record the store could not take in time is retried in the background; `aclose` waits for those.
    """

    def __init__(
        self,
        bodies: TurnStageBodies,
        recorder: TurnRecorder,
        *,
        utc_now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._bodies = bodies
        self._recorder = recorder
        self._utc_now = utc_now
        self._late: set[asyncio.Task[None]] = set()

    async def prepare_turn(
        self,
        principal: Principal,
        session_id: str,
        turn_id: str,
        text: str,
        *,
        public_context: str | None = None,
        options: TurnOptions = TurnOptions(),
    ) -> TurnMemoryDecision:
        """Decide and answer one turn (specification section 3).

        Raises:
            pydantic.ValidationError: the request is not valid; the message names field and limit.
            SessionOwnedByAnotherError: the session belongs to another user.
            TurnConflictError: this turn was already answered for another text.
            DraftFailedError: the draft failed, so there is nothing to answer with.
        """
        request = TurnRequest(
            principal=principal,
            session_id=session_id,
            turn_id=turn_id,
            text=text,
            public_context=public_context,
            options=options,
        )
        stages = InProcessStages(self._bodies, self._record, self._utc_now)
        result = await run_turn(request, TurnStart(started_at=self._utc_now()), stages)
        return TurnMemoryDecision(result, stages.recorded)

    async def end_session(self, principal: Principal, session_id: str) -> None:
        """Drop the session's profile; the next session assembles a fresh one."""
        await self._bodies.open.profiles.forget(principal, session_id)

    async def aclose(self) -> None:
        """Wait until every record is written."""
        await asyncio.gather(*self._late)

    async def _record(self, record: TurnRecord, limit_ms: float) -> RecordResult:
        recorded = RecordResult(written=False)
        try:
            recorded = await self._recorder.try_record(record, limit_ms)
        finally:
            if not recorded.written:  # slow, away, or the caller gave up meanwhile: the row is written all the same
                late = asyncio.create_task(self._recorder.record_until_written(record))
                self._late.add(late)
                late.add_done_callback(self._late.discard)
        return recorded

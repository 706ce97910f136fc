"""The admission judge of the reference bundle (specification section 3.2)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict

from retold.contracts.record import MemoryRecord
from retold.contracts.stages import ProfileBlock, ProposedVerdict, Stage, Verdict
from retold.policy.ports import AdmissionDecision, Message
from retold.policy.prompts import json_line, new_delimiter, record_date, template_version
from retold.policy.reference.parsing import read_decision
from retold.policy.reference.port import OutputSchema, StructuredCompletion
from retold.policy.reference.prompts import CONTEXT_BLOCK, JUDGE_SYSTEM, JUDGE_USER, PROFILE_BLOCK, surroundings

_CLOSED = ConfigDict(frozen=True, json_schema_extra={"additionalProperties": False})


class JudgedCandidate(BaseModel):
    model_config = _CLOSED

    id: str
    verdict: str


class Judgement(BaseModel):
    """What the judge is asked to answer. Further keys a model adds are not read."""

    model_config = _CLOSED

    admitted: list[str]
    verdicts: list[JudgedCandidate]


def _schema() -> OutputSchema:
    """The provider is told the verdicts there are; reading accepts any string, for `rules.check_admission` to judge."""
    schema = Judgement.model_json_schema()
    schema["$defs"]["JudgedCandidate"]["properties"]["verdict"]["enum"] = [verdict.value for verdict in Verdict]
    return OutputSchema(
        name="admission", description="A verdict on every candidate, and the admitted ids.", json_schema=schema
    )


SCHEMA = _schema()


def _now() -> datetime:
    return datetime.now(UTC)


class ReferenceJudge:
    """Asks a hosted model which candidates would change the answer for the better.

    Args:
        completion: the model, behind its port.
        new_delimiter: draws the name of the blocks, once a call.
        now: the day candidates are judged on, in UTC.
    """

    def __init__(
        self,
        completion: StructuredCompletion,
        *,
        new_delimiter: Callable[[], str] = new_delimiter,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._completion = completion
        self._new_delimiter = new_delimiter
        self._now = now

    @property
    def prompt_version(self) -> str:
        """Hash of every template and of the schema: what the model is sent besides the turn and its candidates."""
        parts = [JUDGE_SYSTEM, JUDGE_USER, PROFILE_BLOCK, CONTEXT_BLOCK]
        return template_version([*parts, json.dumps(SCHEMA.json_schema, sort_keys=True)])

    async def admit(
        self,
        turn: str,
        public_context: str | None,
        ambient_profile: ProfileBlock,
        draft: str,
        candidates: Sequence[MemoryRecord],
    ) -> AdmissionDecision:
        """Raises:
        MalformedReplyError, RefusedByProviderError: see `StructuredCompletion` and `read_decision`.
        """
        delimiter = self._new_delimiter()
        system = JUDGE_SYSTEM.format(delimiter=delimiter, today=self._now().date().isoformat())
        user = JUDGE_USER.format(
            **surroundings(ambient_profile.text, public_context, delimiter),
            turn=turn,
            draft=draft,
            candidates="\n".join(_candidate(record, delimiter) for record in candidates),
            delimiter=delimiter,
        )
        messages = (Message(role="system", content=system), Message(role="user", content=user))
        reply = await self._completion.complete(messages, SCHEMA)
        judgement = read_decision(reply.text, Judgement)
        return AdmissionDecision(
            admitted=tuple(judgement.admitted),
            verdicts=tuple(ProposedVerdict(id=one.id, verdict=one.verdict) for one in judgement.verdicts),
            usage=(reply.use(Stage.ADMIT, self.prompt_version),),
        )


def _candidate(record: MemoryRecord, delimiter: str) -> str:
    fields = {"id": record.id, "date": record_date(record.told_at), "status": record.status.value, "text": record.text}
    return json_line(fields, delimiter)

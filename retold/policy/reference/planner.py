"""The gap planner of the reference bundle (specification section 3.1)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from pydantic import BaseModel, ConfigDict

from retold.contracts.record import RetrievalCategory
from retold.contracts.stages import GapCategory, ProfileBlock, ProposedGap, Stage
from retold.policy.ports import GapDecision, Message
from retold.policy.prompts import new_delimiter, template_version
from retold.policy.reference.parsing import read_decision
from retold.policy.reference.port import OutputSchema, StructuredCompletion
from retold.policy.reference.prompts import (
    CONTEXT_BLOCK,
    NO_INVENTORY,
    PLANNER_SYSTEM,
    PLANNER_USER,
    PROFILE_BLOCK,
    surroundings,
)  # fmt: skip

_CLOSED = ConfigDict(frozen=True, json_schema_extra={"additionalProperties": False})


class PlannedGap(BaseModel):
    model_config = _CLOSED

    category: str
    query: str


class Plan(BaseModel):
    """What the planner is asked to answer. Further keys a model adds are not read."""

    model_config = _CLOSED

    gaps: list[PlannedGap]


def _schema() -> OutputSchema:
    """The provider is told the categories there are; reading accepts any string, for `rules.clean_gaps` to judge."""
    schema = Plan.model_json_schema()
    schema["$defs"]["PlannedGap"]["properties"]["category"]["enum"] = [category.value for category in GapCategory]
    return OutputSchema(name="gap_plan", description="What is missing about the user, if anything.", json_schema=schema)


SCHEMA = _schema()


class ReferenceGapPlanner:
    """Asks a hosted model what the draft may be missing. Of stored memory it shows the inventory labels only.

    Args:
        completion: the model, behind its port.
        new_delimiter: draws the name of the blocks, once a call.
    """

    def __init__(self, completion: StructuredCompletion, *, new_delimiter: Callable[[], str] = new_delimiter) -> None:
        self._completion = completion
        self._new_delimiter = new_delimiter

    @property
    def prompt_version(self) -> str:
        """Hash of every template and of the schema: what the model is sent besides the turn."""
        parts = [PLANNER_SYSTEM, PLANNER_USER, NO_INVENTORY, PROFILE_BLOCK, CONTEXT_BLOCK]
        return template_version([*parts, json.dumps(SCHEMA.json_schema, sort_keys=True)])

    async def plan(
        self,
        turn: str,
        public_context: str | None,
        ambient_profile: ProfileBlock,
        inventory: Sequence[RetrievalCategory],
    ) -> GapDecision:
        """Raises:
        MalformedReplyError, RefusedByProviderError: see `StructuredCompletion` and `read_decision`.
        """
        delimiter = self._new_delimiter()
        user = PLANNER_USER.format(
            **surroundings(ambient_profile.text, public_context, delimiter),
            turn=turn,
            inventory="\n".join(label.value for label in inventory) or NO_INVENTORY,
            delimiter=delimiter,
        )
        messages = (
            Message(role="system", content=PLANNER_SYSTEM.format(delimiter=delimiter)),
            Message(role="user", content=user),
        )
        reply = await self._completion.complete(messages, SCHEMA)
        plan = read_decision(reply.text, Plan)
        return GapDecision(
            gaps=tuple(ProposedGap(category=gap.category, query=gap.query) for gap in plan.gaps),
            usage=(reply.use(Stage.PLAN, self.prompt_version),),
        )

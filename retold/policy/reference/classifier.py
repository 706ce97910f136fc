"""The activation classifier of the reference bundle: what a hosted model takes a standing preference to be about."""

from __future__ import annotations

import json
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict

from retold.contracts.activation import ActivationCategory, Applicability, CategoryDecision, StandingText
from retold.contracts.record import RetrievalCategory
from retold.contracts.stages import Stage
from retold.policy.ports import MalformedReplyError, Message
from retold.policy.prompts import json_line, new_delimiter, template_version
from retold.policy.reference.activation_prompts import CLASSIFIER_SYSTEM, CLASSIFIER_USER
from retold.policy.reference.parsing import read_decision
from retold.policy.reference.port import OutputSchema, StructuredCompletion

CLASSIFIER = "retold.reference.classifier"
_WHY_MAX_CHARS = 500


class Classification(BaseModel):
    """What the classifier is asked to answer. Further keys a model adds are not read."""

    model_config = ConfigDict(frozen=True, json_schema_extra={"additionalProperties": False})

    category: str
    applicability: str
    unsafe: bool
    retrieval_category: str
    confidence: float
    why: str


def _schema() -> OutputSchema:
    schema = Classification.model_json_schema()
    choices = schema["properties"]
    choices["category"]["enum"] = [each.value for each in ActivationCategory]
    choices["applicability"]["enum"] = [each.value for each in Applicability]
    choices["retrieval_category"]["enum"] = [each.value for each in RetrievalCategory]
    return OutputSchema(name="classification", description="What the preference is about.", json_schema=schema)


SCHEMA = _schema()


class ReferenceCategoryPolicy:
    """Asks a hosted model about one eligible record. What it says can only narrow what the rules allow.

    Args:
        completion: the model, behind its port.
        new_delimiter: draws the name of the blocks, once a call.
    """

    def __init__(self, completion: StructuredCompletion, *, new_delimiter: Callable[[], str] = new_delimiter) -> None:
        self._completion = completion
        self._new_delimiter = new_delimiter

    @property
    def prompt_version(self) -> str:
        """Hash of every template and of the schema: what the model is sent besides the record and the turn."""
        return template_version(
            [CLASSIFIER_SYSTEM, CLASSIFIER_USER, json.dumps(SCHEMA.json_schema, sort_keys=True), *RetrievalCategory]
        )

    async def propose(self, standing: StandingText) -> CategoryDecision:
        """Raises:
        MalformedReplyError: see `read_decision`; also `unknown_category`, `unknown_applicability`,
            `unknown_retrieval_category` and `confidence_out_of_range`.
        RefusedByProviderError: see `StructuredCompletion`.
        """
        delimiter = self._new_delimiter()
        system = CLASSIFIER_SYSTEM.format(
            delimiter=delimiter, categories=", ".join(each.value for each in RetrievalCategory)
        )
        user = CLASSIFIER_USER.format(
            record=json_line({"text": standing.text}, delimiter),
            words=json_line({"text": standing.span}, delimiter),
            message=json_line({"text": standing.session_turn}, delimiter),
            delimiter=delimiter,
        )
        reply = await self._completion.complete(
            (Message(role="system", content=system), Message(role="user", content=user)), SCHEMA
        )
        said = _checked(read_decision(reply.text, Classification))
        return CategoryDecision(
            retrieval_category=RetrievalCategory(said.retrieval_category),
            activation_category=ActivationCategory(said.category),
            applicability=Applicability(said.applicability),
            confidence=said.confidence,
            unsafe=said.unsafe,
            rationale=said.why[:_WHY_MAX_CHARS],
            policy=f"{CLASSIFIER}/{self._completion.identity}"[:128],
            policy_version=self.prompt_version,
            usage=(reply.use(Stage.CATEGORISE, self.prompt_version),),
        )


def _checked(said: Classification) -> Classification:
    for value, known, code in (
        (said.category, tuple(ActivationCategory), "unknown_category"),
        (said.applicability, tuple(Applicability), "unknown_applicability"),
        (said.retrieval_category, tuple(RetrievalCategory), "unknown_retrieval_category"),
    ):
        if value not in known:
            raise MalformedReplyError(code)
    if not 0 <= said.confidence <= 1:
        raise MalformedReplyError("confidence_out_of_range")
    return said

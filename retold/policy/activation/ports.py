"""What extraction and activation ask of policies. All may be async or blocking, as :mod:`retold.policy.ports` says."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from retold.contracts.activation import CategoryDecision, StandingText
from retold.contracts.extraction import Extraction, OwnTurn
from retold.contracts.record import MemoryRecord, RetrievalCategory


class RetrievalCategoryPolicy(Protocol):
    """Gives every record one label of the fixed taxonomy. Cheap: it is asked for each record that is written."""

    @property
    def identity(self) -> str:
        """Name and version, for the audit event that carries the labels."""

    def categorise(
        self, records: Sequence[MemoryRecord]
    ) -> Awaitable[Sequence[RetrievalCategory]] | Sequence[RetrievalCategory]:
        """One label a record, in the order given."""


class CategoryPolicy(Protocol):
    """Proposes what a response instruction is about. Asked for eligible records with evidence only; decides nothing.

    Raises:
        MalformedReplyError: no proposal could be read from the model's answer.
        RefusedByProviderError: the provider declined to answer.
    """

    def propose(self, standing: StandingText) -> Awaitable[CategoryDecision] | CategoryDecision: ...


class Extractor(Protocol):
    """Proposes records from the principal's own turns. Every proposal names its turn and quotes the words it rests on.

    Raises:
        MalformedReplyError, RefusedByProviderError: as for :class:`CategoryPolicy`.
    """

    def extract(self, turns: Sequence[OwnTurn]) -> Awaitable[Extraction] | Extraction: ...

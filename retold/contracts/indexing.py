"""The index beside the store: how far it lags, whether the two are equal, how it is built anew (design section 4)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field

from retold.contracts._base import Contract
from retold.contracts.record import RecordId

FINDINGS_MAX = 50
"""Differences named one by one in a report. All of them are counted."""


class OutboxLag(Contract):
    """How far the index is behind the store."""

    pending: Annotated[int, Field(ge=0)]
    """Changes the index has yet to follow, those set aside included."""
    oldest_age_s: Annotated[float, Field(ge=0)] = 0
    """How long ago the oldest of them was made."""
    set_aside: Annotated[int, Field(ge=0)] = 0
    """Changes the index could not take while it took others. They are tried again, ever more rarely."""
    errors: dict[str, int] = {}
    """Of those set aside: how many for which type of error."""


class Difference(StrEnum):
    """What may be wrong with one record's point."""

    MISSING = "missing"
    """The store has the record, the index has no point."""
    STALE = "stale"
    """The point shows another version, or another value of a payload key, than the store."""
    INCOMPLETE = "incomplete"
    """The point lacks a vector, or its words are not the record's."""
    EXTRA = "extra"
    """The index has a point of a record that the store does not have, or that does not belong in an index."""
    UNREADABLE = "unreadable"
    """The index has a point that does not say which record it is of, or lies under another record's key."""
    LAGGING = "lagging"
    """The point differs, and the outbox still has the record's change."""
    UNREADABLE_RECORD = "unreadable_record"
    """The store's row cannot be read, whatever the index has: nothing but a repair of the row makes it right."""


class UnreadableRecord(Contract):
    """A row that is no record: written by a version with other rules, or damaged."""

    record_id: RecordId
    tenant: str
    problem: str
    """Which columns, and why. Never their content."""


class IndexFinding(Contract):
    difference: Difference
    record_id: RecordId | None = None
    tenant: str | None = None
    """Whose record it is, where its row cannot be read and somebody has to look at it."""
    point: str
    """The engine's own id of the point."""
    detail: str
    """Which keys or vectors differ. Never a value: a name or a subject is the principal's."""


class ReconcilePhase(StrEnum):
    RECORDS = "records"
    """Every record against its point."""
    POINTS = "points"
    """Every point against its record."""


class ReconcileStep(Contract):
    """A bounded piece of the comparison: where it begins, and of which generation of the index."""

    phase: ReconcilePhase = ReconcilePhase.RECORDS
    after: str | None = None
    repair: bool = False
    generation: str | None = None
    """None: the one that answers."""


class ReconcileReport(Contract):
    """What was compared and what was found. Reports of steps add up to the report of the whole."""

    records: Annotated[int, Field(ge=0)] = 0
    """Records of the store that were compared."""
    indexed: Annotated[int, Field(ge=0)] = 0
    """Of those, the ones that belong in an index."""
    points: Annotated[int, Field(ge=0)] = 0
    """Points of the index that were compared."""
    differences: dict[Difference, int] = {}
    """Found, by kind."""
    repaired: Annotated[int, Field(ge=0)] = 0
    findings: Annotated[tuple[IndexFinding, ...], Field(max_length=FINDINGS_MAX)] = ()
    """The first of them."""

    @property
    def found(self) -> int:
        return sum(self.differences.values())

    @property
    def left(self) -> int:
        """Differences that remain: all, unless they were repaired and looked at again."""
        return self.found - self.repaired

    @property
    def equal(self) -> bool:
        return self.left == 0

    @property
    def followable(self) -> int:
        """Differences found that are the index's: what no reader of the store could follow is not among them."""
        return self.found - self.differences.get(Difference.UNREADABLE_RECORD, 0)

    def plus(self, other: Self) -> Self:
        kinds = [kind for kind in Difference if kind in self.differences or kind in other.differences]
        return type(self)(
            records=self.records + other.records,
            indexed=self.indexed + other.indexed,
            points=self.points + other.points,
            differences={kind: self.differences.get(kind, 0) + other.differences.get(kind, 0) for kind in kinds},
            repaired=self.repaired + other.repaired,
            findings=(*self.findings, *other.findings)[:FINDINGS_MAX],
        )


class ReconcileStepResult(Contract):
    report: ReconcileReport
    following: ReconcileStep | None
    """The next piece; None: everything is compared."""


class ReconcileProgress(Contract):
    """Where a comparison stands; what it goes on with when its history has become long."""

    step: ReconcileStep
    report: ReconcileReport = ReconcileReport()


class ReconcileInput(Contract):
    repair: bool = False
    generation: str | None = None
    """None: the one that answers."""
    resumed: ReconcileProgress | None = None
    """Where an earlier run stood. The rest of this input is in it."""

    def progress(self) -> ReconcileProgress:
        return self.resumed or ReconcileProgress(step=ReconcileStep(repair=self.repair, generation=self.generation))


class RebuildInput(Contract):
    hold: bool = False
    """Build and keep following, without switching: to certify the new bundle first."""
    same_embedder: bool = False
    """Build it anew for the embedder it has."""


class GenerationRole(StrEnum):
    SERVING = "serving"
    """A worker that starts now answers from it."""
    BUILDING = "building"
    """Built beside the serving one and following every change; nobody answers from it yet."""
    RETIRED = "retired"
    """Was serving; dropped when no worker answers from it any more."""


class Generation(Contract):
    """One built index: a collection on a server, or a folder."""

    name: str
    role: GenerationRole
    embedder: str
    """Model, revision, runtime and dimension."""


class RebuildReport(Contract):
    generation: Generation
    built: ReconcileReport
    """What building wrote: all it found missing in the new generation."""
    checked: ReconcileReport
    """The comparison after it, which was equal or the switch would not have been made."""
    switched: bool


class OverviewInput(Contract):
    abandon: bool = False
    """Drop what is being built first."""


class IndexOverview(Contract):
    generations: tuple[Generation, ...]
    abandoned: str | None = None

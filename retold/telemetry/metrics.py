"""Every metric of Retold in one table, and the few functions that feed it (documented in infra/metrics.md).

A turn is counted where its record is written, from the record itself: numbers and rows cannot disagree, and a replayed
workflow counts nothing twice. Attributes take their values from closed lists only, never from a name, id or text.
Without a meter provider all of this costs next to nothing and goes nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Observation

from retold.contracts.decision import TurnDecision
from retold.contracts.disposition import Disposition
from retold.contracts.review import RefusedDecision
from retold.contracts.stages import Stage
from retold.policy.blocking import BlockingPool

METER = "retold"

ForgottenWhat = Literal["record", "session", "principal"]

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.4, 0.6, 1.0, 1.5, 2.5, 4.0, 6.0, 10.0, 15.0, 30.0)
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0)


@dataclass(frozen=True, kw_only=True)
class Instrument:
    """One metric: what it is called, what it means, and who wakes up for it."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    unit: str
    meaning: str
    attributes: tuple[str, ...] = ()
    alert: str = "nobody; a dashboard"
    """The alert that uses it."""
    buckets: tuple[float, ...] | None = None

    @property
    def prometheus_name(self) -> str:
        """What Prometheus calls it: underscores, the unit spelled out, `_total` on counters."""
        name = self.name.replace(".", "_")
        unit = {"s": "_seconds", "1": "_ratio", "By": "_bytes"}.get(self.unit, "")
        if unit == "_ratio" and self.kind != "gauge":
            unit = ""
        suffix = unit if unit and not name.endswith(unit) else ""
        return name + suffix + ("_total" if self.kind == "counter" else "")


TURNS = Instrument(
    name="retold.turn.decisions",
    kind="counter",
    unit="{turn}",
    meaning="turns decided, by disposition and reason of the closed table",
    attributes=("disposition", "reason", "durability", "shadow"),
    alert="RetoldBudgetWithholdsRising, RetoldWorkersOverloaded, RetoldPolicyFailuresRising, RetoldDraftsFailing",
)
STAGE_SECONDS = Instrument(
    name="retold.turn.stage.duration",
    kind="histogram",
    unit="s",
    meaning="how long a stage took; `outcome` is `completed` or the kind of its failure",
    attributes=("stage", "outcome"),
    alert="RetoldStageSlow",
    buckets=SECONDS,
)
ADDED_SECONDS = Instrument(
    name="retold.turn.added_latency",
    kind="histogram",
    unit="s",
    meaning="what memory added after the draft was there; with gaps and without apart: one average hides the trade",
    attributes=("gaps",),
    alert="RetoldAddedLatencyHigh",
    buckets=SECONDS,
)
BUDGET_SECONDS = Instrument(
    name="retold.turn.budget.requested",
    kind="histogram",
    unit="s",
    meaning="effective latency budget of turns that have one",
    buckets=SECONDS,
)
BUDGET_USED = Instrument(
    name="retold.turn.budget.used",
    kind="histogram",
    unit="1",
    meaning="share of its budget a turn used; above 1 it was late",
    alert="RetoldTurnsLate",
    buckets=SHARES,
)
POLICY_FAILURES = Instrument(
    name="retold.turn.stage.failures",
    kind="counter",
    unit="{failure}",
    meaning="stages that failed, by kind: timeout, error, malformed, refused",
    attributes=("stage", "kind"),
    alert="RetoldPolicyFailuresRising",
)
ADMISSIONS = Instrument(
    name="retold.turn.admissions",
    kind="counter",
    unit="{turn}",
    meaning="turns whose candidates were judged, by whether any was admitted and whether the turn served",
    attributes=("admitted", "served"),
    alert="RetoldAdmissionRateJumped",
)
VERDICTS = Instrument(
    name="retold.turn.verdicts",
    kind="counter",
    unit="{record}",
    meaning="verdicts of the judge",
    attributes=("verdict",),
)
REDELIVERED = Instrument(
    name="retold.turn.redelivered",
    kind="counter",
    unit="{turn}",
    meaning="turns that began again because a worker died or was stopped",
    alert="RetoldTurnsRedelivered",
)
RECORDED_LATE = Instrument(
    name="retold.turn.recorded_late",
    kind="counter",
    unit="{turn}",
    meaning="turns answered before their record was written: the store was slow or away",
    alert="RetoldRecordsLate",
)
MODEL_TOKENS = Instrument(
    name="retold.model.tokens",
    kind="counter",
    unit="{token}",
    meaning="tokens of model calls, by the stage that asked",
    attributes=("stage", "direction"),
)
MODEL_COST = Instrument(
    name="retold.model.cost_usd",
    kind="counter",
    unit="{USD}",
    meaning="cost of model calls in US dollars at the prices configured for each role; absent without prices",
    attributes=("stage",),
    alert="RetoldModelCostHigh",
)
BLOCKING_THREADS = Instrument(
    name="retold.policy.blocking_threads",
    kind="gauge",
    unit="{thread}",
    meaning="threads that blocking policies hold (busy), of those given up on (abandoned), and the bound",
    attributes=("pool", "state"),
    alert="RetoldBlockingThreadsNearBound",
)
REVIEW_BACKLOG = Instrument(
    name="retold.review.backlog",
    kind="gauge",
    unit="{review}",
    meaning="reviews open, deferred for want of room, and the bound",
    attributes=("state",),
    alert="RetoldReviewBacklogFull",
)
REVIEW_OLDEST = Instrument(
    name="retold.review.oldest_age",
    kind="gauge",
    unit="s",
    meaning="age of the oldest open review; 0 without one",
    alert="RetoldReviewsOld",
)
REVIEW_DECISIONS = Instrument(
    name="retold.review.decisions",
    kind="counter",
    unit="{review}",
    meaning="reviews that ended, by how: promoted, kept_conditional, rejected, expired, withdrawn",
    attributes=("ended",),
)
REVIEW_REFUSALS = Instrument(
    name="retold.review.refusals",
    kind="counter",
    unit="{decision}",
    meaning="reviewers' decisions that were not taken, by why; forged ones are `NotAReviewer`",
    attributes=("why",),
    alert="RetoldForgedReviewDecisions",
)
ACTIVATIONS = Instrument(
    name="retold.activation.decisions",
    kind="counter",
    unit="{record}",
    meaning="records evaluated, by outcome and reason",
    attributes=("outcome", "reason"),
)
CATEGORY_DRIFT = Instrument(
    name="retold.activation.category_assignments",
    kind="counter",
    unit="{record}",
    meaning="retrieval categories assigned, by whether the extractor's attribute slug suggested another one",
    attributes=("category", "drifted"),
)
OUTBOX_PENDING = Instrument(
    name="retold.index.outbox.pending",
    kind="gauge",
    unit="{change}",
    meaning="changes to records that the index has yet to follow",
    alert="RetoldIndexLagging",
)
OUTBOX_AGE = Instrument(
    name="retold.index.outbox.oldest_age",
    kind="gauge",
    unit="s",
    meaning="age of the oldest change the index has yet to follow; 0 without one",
    alert="RetoldIndexLagging",
)
FORGETS = Instrument(
    name="retold.forget.requests",
    kind="counter",
    unit="{request}",
    meaning="requests to forget that ended, with a receipt or because text was still found",
    attributes=("what", "ended"),
    alert="RetoldForgetFailed",
)
SWITCH_OFF = Instrument(
    name="retold.switch.off",
    kind="gauge",
    unit="{switch}",
    meaning="1 while a kill switch is off for all tenants, by stage; tenants' own switches are counted in `tenants`",
    attributes=("switch", "scope"),
    alert="RetoldSwitchedOff",
)
SWITCH_STALENESS = Instrument(
    name="retold.switch.staleness",
    kind="gauge",
    unit="s",
    meaning="how old this worker's knowledge of the kill switches is",
    alert="RetoldSwitchesStale",
)
WORKER_READY = Instrument(
    name="retold.worker.ready",
    kind="gauge",
    unit="{dependency}",
    meaning="1 while the worker answers its readiness probe with yes, by dependency",
    attributes=("dependency",),
    alert="RetoldDependencyDown",
)

_NO_PRICES: Mapping[Stage, Price] = MappingProxyType({})

INSTRUMENTS: Sequence[Instrument] = tuple(value for value in globals().values() if isinstance(value, Instrument))


class Price(NamedTuple):
    """What a model's tokens cost, in US dollars for a million."""

    input_usd: float
    output_usd: float


def observe_turn(decision: TurnDecision, late: bool = False, *, prices: Mapping[Stage, Price] = _NO_PRICES) -> None:
    """Count one turn whose record was just written.

    Args:
        late: the record was written after the answer had left.
        prices: of the models behind each stage; a stage without one costs nothing anybody knows of.
    """
    served = not decision.shadow
    count(
        TURNS,
        disposition=decision.disposition.value,
        reason=decision.reason.value,
        durability=decision.durability.value,
        shadow=_word(decision.shadow),
    )
    for timing in decision.timings:
        outcome = "completed" if timing.failure is None else timing.failure.kind.value
        measure(STAGE_SECONDS, timing.elapsed_ms / 1_000, stage=timing.stage.value, outcome=outcome)
        if timing.failure is not None:
            count(POLICY_FAILURES, stage=timing.stage.value, kind=timing.failure.kind.value)
    _observe_latency(decision)
    if decision.verdicts:
        count(ADMISSIONS, admitted=_word(bool(decision.admitted)), served=_word(served))
    for verdict in decision.verdicts:
        count(VERDICTS, verdict=verdict.verdict.value)
    for use in decision.usage:
        count(MODEL_TOKENS, use.prompt_tokens, stage=use.role.value, direction="input")
        count(MODEL_TOKENS, use.completion_tokens, stage=use.role.value, direction="output")
        if (price := prices.get(use.role)) is not None:
            cost_usd = (use.prompt_tokens * price.input_usd + use.completion_tokens * price.output_usd) / 1_000_000
            count(MODEL_COST, cost_usd, stage=use.role.value)
    if decision.redelivered:
        count(REDELIVERED)
    if late:
        count(RECORDED_LATE)


def announce() -> None:
    """Let the counters whose first step must wake somebody begin at zero: an alert sees a step, not a first value."""
    for what in get_args(ForgottenWhat):
        for ended in ("receipt", "incomplete"):
            count(FORGETS, 0, what=what, ended=ended)
    for why in RefusedDecision:
        count(REVIEW_REFUSALS, 0, why=why.value)
    count(RECORDED_LATE, 0)
    count(REDELIVERED, 0)


def added_latency_ms(decision: TurnDecision) -> float | None:
    """Milliseconds from the draft's end to the end of the last stage; None for a turn without a draft."""
    ended = {timing.stage: timing.ended_ms for timing in decision.timings}
    if Stage.DRAFT not in ended or decision.disposition in (Disposition.CANCELLED, Disposition.FAILED):
        return None
    return max(ended.values()) - ended[Stage.DRAFT]


def count(instrument: Instrument, amount: float = 1, **attributes: str) -> None:
    _counter(instrument).add(amount, attributes)


def measure(instrument: Instrument, value: float, **attributes: str) -> None:
    _histogram(instrument).record(value, attributes)


def watch(instrument: Instrument, observe: Callable[[], Iterable[tuple[float, Mapping[str, str]]]]) -> None:
    """Read a gauge whenever metrics are collected. `observe` must not block; nothing known is nothing reported."""

    def observations(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(value, dict(attributes)) for value, attributes in observe()]

    metrics.get_meter(METER).create_observable_gauge(
        instrument.name, callbacks=[observations], unit=instrument.unit, description=instrument.meaning
    )


def watch_blocking_threads(pool: BlockingPool, pool_name: str) -> None:
    """How many threads blocking policies hold, how many of those nobody waits for any more, and the bound.

    An abandoned call keeps its thread until it returns. Near the bound, blocking policies are refused at once and
    their turns fall to the draft: alert before.
    """
    watch(
        BLOCKING_THREADS,
        lambda: (
            (number, {"pool": pool_name, "state": state})
            for state, number in (("busy", pool.busy), ("abandoned", pool.abandoned), ("bound", pool.max_threads))
        ),
    )


def _observe_latency(decision: TurnDecision) -> None:
    added_ms = added_latency_ms(decision)
    if added_ms is not None:
        measure(ADDED_SECONDS, added_ms / 1_000, gaps=_word(bool(decision.gaps)))
    budget_ms = decision.effective_budget_ms
    if budget_ms is None:
        return
    measure(BUDGET_SECONDS, budget_ms / 1_000)
    if added_ms is not None and budget_ms > 0:
        measure(BUDGET_USED, added_ms / budget_ms)


@cache
def _counter(instrument: Instrument) -> Counter:
    return metrics.get_meter(METER).create_counter(
        instrument.name, unit=instrument.unit, description=instrument.meaning
    )


@cache
def _histogram(instrument: Instrument) -> Histogram:
    return metrics.get_meter(METER).create_histogram(
        instrument.name,
        unit=instrument.unit,
        description=instrument.meaning,
        explicit_bucket_boundaries_advisory=instrument.buckets,
    )


def _word(flag: bool) -> str:
    return "yes" if flag else "no"

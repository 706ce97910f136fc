"""Every row of what can become of a turn, once: specification section 3 with design 3.2 to 3.7's corrections.

The same table runs through the in-process driver and through both durabilities of the workflow.
"""

from __future__ import annotations

from dataclasses import dataclass

from retold.contracts.config import AdmissionMode, Switches, UtilityAwareConfig
from retold.contracts.disposition import Disposition as D
from retold.contracts.disposition import Reason as R
from retold.contracts.stages import EMPTY_PROFILE, ProfileBlock, ProposedGap, ProposedVerdict
from retold.policy.ports import AdmissionDecision, MalformedReplyError, RefusedByProviderError
from tests.scripted import GAP, NEVER_MS, RECORDS, Script, Step, helpful

SERVED = Script()
BUDGET_MS = 700
"""Long enough that nothing that answers at once is late on a busy machine, short enough to wait for."""


@dataclass(frozen=True)
class Case:
    name: str
    script: Script
    disposition: D
    reason: R
    not_called: tuple[str, ...] = ()
    failures: tuple[str, ...] | None = None


def judged(admitted: tuple[str, ...], **verdicts: str) -> Step:
    return Step(
        AdmissionDecision(
            admitted=admitted, verdicts=tuple(ProposedVerdict(id=id, verdict=v) for id, v in verdicts.items())
        )
    )


def repeated_verdict() -> Step:
    verdicts = [ProposedVerdict(id=id, verdict="helpful") for id in (*RECORDS, "r1")]
    return Step(AdmissionDecision(admitted=("r1",), verdicts=tuple(verdicts)))


CASES = [
    Case("a gap, a helpful record", SERVED, D.REGENERATED, R.ADMITTED),
    Case("shadow decides and never regenerates", SERVED.with_config(shadow=True), D.SHADOW_WOULD_REGENERATE, R.ADMITTED,
         ("regenerate",)),
    # --- no gaps
    Case("planner silent", SERVED.but(plan=Step(())), D.BASELINE_NO_GAPS, R.PLANNER_SILENT, ("retrieve",)),
    Case("path disabled", Script(config=UtilityAwareConfig()), D.BASELINE_NO_GAPS, R.PATH_DISABLED,
         ("plan", "retrieve")),
    Case("gap stage switched off", SERVED.but(switches=Switches(gap=False)), D.BASELINE_NO_GAPS, R.STAGE_SWITCHED_OFF,
         ("plan",)),
    # --- no candidates
    Case("nothing stored", SERVED.but(inventory=Step(())), D.BASELINE_NO_CANDIDATES, R.INVENTORY_EMPTY, ("plan",)),
    Case("nothing found", SERVED.but(retrieve=Step(())), D.BASELINE_NO_CANDIDATES, R.NOTHING_FOUND, ("admit",)),
    Case("all candidates gone before the judge saw them", SERVED.but(gone_before_admission=frozenset(RECORDS)),
         D.BASELINE_NO_CANDIDATES, R.CANDIDATES_GONE, ("admit",)),
    # --- empty admission
    Case("judge rejects all", SERVED.but(admit=Step(helpful())), D.BASELINE_EMPTY_ADMISSION, R.JUDGE_REJECTED_ALL,
         ("regenerate",)),
    Case("admitted record deleted meanwhile", SERVED.but(gone_before_regeneration=frozenset({"r1"})),
         D.BASELINE_EMPTY_ADMISSION, R.ADMITTED_RECORD_GONE, ("regenerate",)),
    Case("half of a jointly helpful pair deleted meanwhile",
         SERVED.but(admit=Step(helpful("r1", "r2", verdict="jointly_helpful")),
                    gone_before_regeneration=frozenset({"r2"})),
         D.BASELINE_EMPTY_ADMISSION, R.ADMITTED_RECORD_GONE, ("regenerate",)),
    Case("one of two independently helpful ones deleted meanwhile",
         SERVED.but(admit=Step(helpful("r1", "r2")), gone_before_regeneration=frozenset({"r2"})),
         D.REGENERATED, R.ADMITTED),
    Case("admission disabled in shadow", SERVED.with_config(shadow=True, admission_mode=AdmissionMode.DISABLED),
         D.BASELINE_EMPTY_ADMISSION, R.ADMISSION_DISABLED, ("admit",)),
    Case("admission switched off", SERVED.but(switches=Switches(admission=False)), D.BASELINE_EMPTY_ADMISSION,
         R.STAGE_SWITCHED_OFF, ("admit",)),
    Case("regeneration switched off is shadow", SERVED.but(switches=Switches(regeneration=False)),
         D.SHADOW_WOULD_REGENERATE, R.ADMITTED, ("regenerate",)),
    # --- policy failures, one a kind and stage
    Case("planner slower than its timeout", SERVED.with_config(gap_timeout_ms=150).but(plan=Step((), NEVER_MS)),
         D.BASELINE_POLICY_FAILURE, R.PLANNER_TIMEOUT, ("retrieve",), ("plan:timeout:LimitReachedError",)),
    Case("planner raises", SERVED.but(plan=Step(KeyError("x"))), D.BASELINE_POLICY_FAILURE, R.PLANNER_ERROR,
         ("retrieve",), ("plan:error:KeyError",)),
    Case("planner answers prose", SERVED.but(plan=Step(MalformedReplyError("prose"))), D.BASELINE_POLICY_FAILURE,
         R.PLANNER_MALFORMED),
    Case("planner names only unknown categories",
         SERVED.but(plan=Step((ProposedGap(category="gossip", query="what anna said"),))),
         D.BASELINE_POLICY_FAILURE, R.PLANNER_MALFORMED),
    Case("planner refused by its provider", SERVED.but(plan=Step(RefusedByProviderError("quota"))),
         D.BASELINE_POLICY_FAILURE, R.PLANNER_REFUSED),
    Case("retrieval raises", SERVED.but(retrieve=Step(ConnectionError("index away"))), D.BASELINE_POLICY_FAILURE,
         R.RETRIEVAL_ERROR, ("admit",), ("retrieve:error:ConnectionError",)),
    Case("retrieval refused by the embedder's provider", SERVED.but(retrieve=Step(RefusedByProviderError("quota"))),
         D.BASELINE_POLICY_FAILURE, R.RETRIEVAL_REFUSED, ("admit",)),
    Case("retrieval answers garbage", SERVED.but(retrieve=Step(MalformedReplyError("not vectors"))),
         D.BASELINE_POLICY_FAILURE, R.RETRIEVAL_MALFORMED, ("admit",)),
    Case("retrieval slower than its timeout",
         SERVED.with_config(retrieval_timeout_ms=150).but(retrieve=Step((), NEVER_MS)),
         D.BASELINE_POLICY_FAILURE, R.RETRIEVAL_TIMEOUT),
    Case("judge slower than its timeout",
         SERVED.with_config(admission_timeout_ms=150).but(admit=Step(helpful(), NEVER_MS)),
         D.BASELINE_POLICY_FAILURE, R.JUDGE_TIMEOUT),
    Case("judge raises", SERVED.but(admit=Step(OSError("reset"))), D.BASELINE_POLICY_FAILURE, R.JUDGE_ERROR),
    Case("a timeout the judge raised itself is an error",
         SERVED.but(admit=Step(TimeoutError()), options=SERVED.with_budget(5_000).options),
         D.BASELINE_POLICY_FAILURE, R.JUDGE_ERROR),
    Case("judge answers prose", SERVED.but(admit=Step(MalformedReplyError("prose"))), D.BASELINE_POLICY_FAILURE,
         R.JUDGE_MALFORMED),
    Case("judge refused by its provider", SERVED.but(admit=Step(RefusedByProviderError("policy"))),
         D.BASELINE_POLICY_FAILURE, R.JUDGE_REFUSED),
    Case("judge leaves a candidate without verdict", SERVED.but(admit=judged(("r1",), r1="helpful")),
         D.BASELINE_POLICY_FAILURE, R.JUDGE_MALFORMED, ("regenerate",), ("admit:malformed:incomplete_verdicts",)),
    Case("judge names an unknown record",
         SERVED.but(admit=judged(("r1",), r1="helpful", r2="insufficient", r9="helpful")),
         D.BASELINE_POLICY_FAILURE, R.JUDGE_MALFORMED, ("regenerate",), ("admit:malformed:unknown_id",)),
    Case("judge gives two verdicts for one record", SERVED.but(admit=repeated_verdict()),
         D.BASELINE_POLICY_FAILURE, R.JUDGE_MALFORMED, ("regenerate",), ("admit:malformed:duplicate_verdict",)),
    Case("judge invents a verdict", SERVED.but(admit=judged((), r1="great", r2="insufficient")),
         D.BASELINE_POLICY_FAILURE, R.JUDGE_MALFORMED, ("regenerate",), ("admit:malformed:unknown_verdict",)),
    Case("judge admits what it rejected", SERVED.but(admit=judged(("r1",), r1="redundant", r2="insufficient")),
         D.BASELINE_POLICY_FAILURE, R.JUDGE_MALFORMED, ("regenerate",),
         ("admit:malformed:admitted_without_admitting_verdict",)),
    Case("judge admits one record twice",
         SERVED.but(admit=judged(("r1", "r1"), r1="helpful", r2="insufficient")),
         D.BASELINE_POLICY_FAILURE, R.JUDGE_MALFORMED, ("regenerate",), ("admit:malformed:duplicate_admitted",)),
    Case("judge admits one record as jointly helpful alone",
         SERVED.but(admit=judged(("r1",), r1="jointly_helpful", r2="insufficient")),
         D.BASELINE_POLICY_FAILURE, R.JUDGE_MALFORMED, ("regenerate",), ("admit:malformed:jointly_helpful_alone",)),
    Case("regeneration slower than its timeout",
         SERVED.with_config(regeneration_timeout_ms=150).but(regenerate=Step("late", NEVER_MS)),
         D.BASELINE_POLICY_FAILURE, R.REGENERATION_TIMEOUT),
    Case("regeneration raises", SERVED.but(regenerate=Step(OSError("reset"))), D.BASELINE_POLICY_FAILURE,
         R.REGENERATION_ERROR),
    Case("regeneration answers nothing", SERVED.but(regenerate=Step("  ")), D.BASELINE_POLICY_FAILURE,
         R.REGENERATION_MALFORMED),
    Case("regeneration refused by its provider", SERVED.but(regenerate=Step(RefusedByProviderError("policy"))),
         D.BASELINE_POLICY_FAILURE, R.REGENERATION_REFUSED),
    # --- budget
    Case("budget zero", SERVED.with_budget(0), D.BASELINE_BUDGET_EXHAUSTED, R.BUDGET_ZERO, ("plan", "retrieve")),
    Case("configured budget zero", SERVED.with_config(latency_budget_ms=0), D.BASELINE_BUDGET_EXHAUSTED, R.BUDGET_ZERO,
         ("plan",)),
    Case("no budget overrides a configured one", SERVED.with_config(latency_budget_ms=0).with_budget(None),
         D.REGENERATED, R.ADMITTED),
    Case("large budget", SERVED.with_budget(60_000), D.REGENERATED, R.ADMITTED),
    Case("large budget does not extend a stage",
         SERVED.with_config(gap_timeout_ms=150).with_budget(60_000).but(plan=Step((), NEVER_MS)),
         D.BASELINE_POLICY_FAILURE, R.PLANNER_TIMEOUT),
    Case("planner slower than the budget", SERVED.with_budget(BUDGET_MS).but(plan=Step((), NEVER_MS)),
         D.BASELINE_BUDGET_EXHAUSTED, R.PLANNER_CUT_OFF, ("retrieve",), ()),
    Case("blocking planner slower than the budget",
         SERVED.with_budget(BUDGET_MS).but(plan=Step((), NEVER_MS, blocking=True)),
         D.BASELINE_BUDGET_EXHAUSTED, R.PLANNER_CUT_OFF, ("retrieve",)),
    Case("blocking planner in time", SERVED.but(plan=Step((GAP,), blocking=True)), D.REGENERATED, R.ADMITTED),
    Case("tiny budget", SERVED.with_budget(1).but(plan=Step((GAP,), 200)), D.BASELINE_BUDGET_EXHAUSTED,
         R.PLANNER_CUT_OFF),
    Case("retrieval slower than the budget", SERVED.with_budget(BUDGET_MS).but(retrieve=Step((), NEVER_MS)),
         D.BASELINE_BUDGET_EXHAUSTED, R.RETRIEVAL_CUT_OFF),
    Case("judge slower than the budget", SERVED.with_budget(BUDGET_MS).but(admit=Step(helpful(), NEVER_MS)),
         D.BASELINE_BUDGET_EXHAUSTED, R.JUDGE_CUT_OFF),
    Case("less left than the draft took", SERVED.with_budget(BUDGET_MS).but(draft=Step("slow draft", BUDGET_MS + 100)),
         D.ADMITTED_NOT_APPLIED, R.BUDGET_EXHAUSTED, ("regenerate",)),
    Case("shadow takes the same budget test",
         SERVED.with_config(shadow=True).with_budget(BUDGET_MS).but(draft=Step("slow draft", BUDGET_MS + 100)),
         D.ADMITTED_NOT_APPLIED, R.BUDGET_EXHAUSTED),
    Case("regeneration overruns the budget", SERVED.with_budget(BUDGET_MS).but(regenerate=Step("late", NEVER_MS)),
         D.ADMITTED_NOT_APPLIED, R.REGENERATION_CUT_OFF),
    # --- profile
    Case("profile load failing", SERVED.but(profile=Step(ConnectionError("store away"))), D.REGENERATED, R.ADMITTED,
         failures=("open:error:ConnectionError",)),
    Case("profile load hanging", SERVED.but(profile=Step(EMPTY_PROFILE, NEVER_MS)), D.REGENERATED, R.ADMITTED,
         failures=("open:timeout:LimitReachedError",)),
    Case("profile on, gap off", Script(config=UtilityAwareConfig(profile_enabled=True),
                                       profile=Step(ProfileBlock(text="Be brief."))),
         D.BASELINE_NO_GAPS, R.PATH_DISABLED),
]  # fmt: skip

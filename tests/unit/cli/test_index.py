"""What `retold reconcile` and `retold index` print, and their exit codes: 0 equal, 1 differences remain."""

from __future__ import annotations

import json
from typing import Any

import pytest

from retold.cli import index
from retold.contracts.indexing import (
    FINDINGS_MAX,
    Difference,
    Generation,
    GenerationRole,
    IndexFinding,
    IndexOverview,
    OverviewInput,
    RebuildInput,
    RebuildReport,
    ReconcileInput,
    ReconcileReport,
)
from tests.unit.cli.conftest import Retold

FINDING = IndexFinding(difference=Difference.STALE, record_id="rec-1", point="p1", detail="differs in version")
EQUAL = ReconcileReport(records=1_200, indexed=1_000, points=1_000)
DIFFERENT = EQUAL.plus(ReconcileReport(differences={Difference.STALE: 1, Difference.MISSING: 99}, findings=(FINDING,)))
REPAIRED = DIFFERENT.plus(ReconcileReport(repaired=100))
DAMAGED = IndexFinding(
    difference=Difference.UNREADABLE_RECORD, record_id="rec-2", tenant="acme", point="p2", detail="status (enum)"
)
UNREADABLE = ReconcileReport(differences={Difference.UNREADABLE_RECORD: 1}, findings=(DAMAGED,))
BUT_FOR_ONE = EQUAL.plus(UNREADABLE)
PARTLY = DIFFERENT.plus(ReconcileReport(repaired=60))
BUILDING = Generation(name="index-g1", role=GenerationRole.BUILDING, embedder="new")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[type[Any], Any]:
    """What the stack answers, by the contract it is asked with; what it was asked is kept under "asked"."""
    prepared: dict[Any, Any] = {}

    async def operated(_: object, workflow: str, asked: Any, result_type: type[Any], workflow_id: str) -> Any:
        prepared["asked"] = (asked, workflow_id)
        answer = prepared[type(asked)]
        assert isinstance(answer, result_type)
        return answer

    monkeypatch.setattr(index, "_operated", operated)
    return prepared


@pytest.mark.parametrize(
    ("report", "code", "last"),
    [
        (EQUAL, 0, "store and index are equal"),
        (DIFFERENT, 1, "100 differ: `retold reconcile --repair`"),
        (REPAIRED, 0, "100 repaired; store and index are equal now"),
        (PARTLY, 1, "60 repaired, 40 differ"),
    ],
)
@pytest.mark.parametrize("command", [("reconcile",), ("index", "reconcile")])
def test_the_exit_code_says_whether_differences_remain(
    retold: Retold, answers: dict[Any, Any], command: tuple[str, ...], report: ReconcileReport, code: int, last: str
) -> None:
    answers[ReconcileInput] = report
    ran = retold(*command)
    assert ran.code == code
    assert ran.out.splitlines()[-1].startswith(last)
    assert "1,200" in ran.out
    if report.found:
        assert "stale rec-1: differs in version" in ran.out
        assert "and 99 more" in ran.out

    said = json.loads(retold(*command, "--json").out)
    assert (said["equal"], said["left"], said["records"]) == (code == 0, report.left, 1_200)


def test_a_comparison_is_joined_by_its_kind(retold: Retold, answers: dict[Any, Any]) -> None:
    answers[ReconcileInput] = EQUAL
    retold("reconcile")
    assert answers["asked"] == (ReconcileInput(), "index/reconcile")
    retold("reconcile", "--repair")
    assert answers["asked"] == (ReconcileInput(repair=True), "index/repair")


@pytest.mark.parametrize(
    ("report", "last"),
    [
        (BUT_FOR_ONE, "1 differ: nothing but putting their rows right"),
        (REPAIRED.plus(UNREADABLE), "100 repaired, 1 differ: nothing but putting their rows right"),
        (DIFFERENT.plus(UNREADABLE), "101 differ: `retold reconcile --repair`"),
    ],
)
def test_a_record_that_cannot_be_read_is_named_and_is_no_success(
    retold: Retold, answers: dict[Any, Any], report: ReconcileReport, last: str
) -> None:
    answers[ReconcileInput] = report
    ran = retold("reconcile")
    assert ran.code == 1
    assert "unreadable_record acme/rec-2: status (enum)" in ran.out
    assert ran.out.splitlines()[-1].startswith(last)


def test_a_rebuild_that_could_not_read_a_record_names_it_and_is_no_success(
    retold: Retold, answers: dict[Any, Any]
) -> None:
    answers[RebuildInput] = RebuildReport(generation=BUILDING, built=DIFFERENT, checked=BUT_FOR_ONE, switched=True)
    ran = retold("rebuild-index")
    assert ran.code == 1
    assert "equal, but for records that cannot be read" in ran.out
    assert "unreadable_record acme/rec-2: status (enum)" in ran.out
    assert retold("rebuild-index", "--json").code == 1


@pytest.mark.parametrize(("switched", "said"), [(True, "restart the workers one by one"), (False, "held:")])
def test_a_rebuild_says_what_to_do_next(retold: Retold, answers: dict[Any, Any], switched: bool, said: str) -> None:
    answers[RebuildInput] = RebuildReport(generation=BUILDING, built=DIFFERENT, checked=EQUAL, switched=switched)
    ran = retold("rebuild-index", *([] if switched else ["--hold"]))
    assert ran.code == 0
    assert said in ran.out
    assert answers["asked"] == (RebuildInput(hold=not switched), "index/rebuild")
    assert json.loads(retold("index", "rebuild", "--json").out)["switched"] is switched


def test_generations_are_listed_and_one_that_is_built_can_be_abandoned(retold: Retold, answers: dict[Any, Any]) -> None:
    serving = Generation(name="index", role=GenerationRole.SERVING, embedder="old")
    answers[OverviewInput] = IndexOverview(generations=(serving, BUILDING))
    assert retold("index", "generations").out.splitlines() == ["serving   index  old", "building  index-g1  new"]
    assert [each["name"] for each in json.loads(retold("index", "generations", "--json").out)] == ["index", "index-g1"]
    answers[OverviewInput] = IndexOverview(generations=(serving,), abandoned="index-g1")
    assert retold("index", "abandon").out.splitlines() == ["dropped index-g1", "serving   index  old"]


def test_reports_of_steps_add_up_and_name_only_the_first_differences() -> None:
    many = ReconcileReport(
        records=2, differences={Difference.STALE: FINDINGS_MAX}, findings=(FINDING,) * (FINDINGS_MAX - 1)
    )
    both = many.plus(many.plus(ReconcileReport(repaired=3, differences={Difference.EXTRA: 1})))
    assert (both.records, both.found, both.left) == (4, 2 * FINDINGS_MAX + 1, 2 * FINDINGS_MAX - 2)
    assert len(both.findings) == FINDINGS_MAX
    assert not both.equal

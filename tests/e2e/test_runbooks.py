"""Every command of a runbook that can run on one machine is run as it is written, and no page leads nowhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from retold.cli import main
from tests.e2e.test_cli import Dev

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "runbooks").glob("*.md"))
RULES = ROOT / "infra" / "prometheus" / "rules" / "retold.yml"
BLOCK = re.compile(r"^( *)```console( run)?\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
ENDS_WITH_1 = ("retold doctor", "retold index reconcile")
"""What these find may be wrong without the command being: a change is still on its way to the index."""


def commands(page: Path, *, run: bool) -> list[str]:
    text = page.read_text()
    return [
        line.strip()
        for _, marked, body in BLOCK.findall(text)
        if bool(marked) is run
        for line in body.splitlines()
        if line.strip()
    ]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    dev = Dev(tmp_path_factory.mktemp("runbooks") / "data")
    yield {**dev.environment, "TEMPORAL_ADDRESS": dev.address, "TEMPORAL_NAMESPACE": "default"}
    dev.end()


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page, run=True)], ids=lambda page: page.stem)
def test_the_commands_of_a_page_run_as_they_are_written(
    page: Path, stack: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("RETOLD_DATA_DIR", "TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE"):
        monkeypatch.setenv(name, stack[name])
    for command in commands(page, run=True):
        arguments = shlex.split(re.sub(r"\$(TEMPORAL_\w+)", lambda name: stack[name[1]], command))
        code = main(arguments[1:]) if arguments[0] == "retold" else _ran(arguments, stack)
        said = capfd.readouterr()
        allowed = (0, 1) if command.startswith(ENDS_WITH_1) else (0,)
        assert code in allowed, f"{page.name}: {command}\n{said.out[-800:]}\n{said.err[-800:]}"


def _ran(arguments: list[str], environment: dict[str, str]) -> int:
    program = Path(sysconfig.get_path("scripts")) / arguments[0]
    return subprocess.run([program, *arguments[1:]], env=environment, timeout=60, cwd=ROOT, check=False).returncode


def test_every_alert_has_its_page_and_every_page_its_parts() -> None:
    rules = yaml.safe_load(RULES.read_text())
    index = (ROOT / "runbooks" / "README.md").read_text()
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                page = ROOT / rule["annotations"]["runbook"]
                assert page.exists(), f"{rule['alert']} leads to {page.name}, which is not there"
                assert rule["alert"] in index and f"({page.name})" in index, rule["alert"]
                text = page.read_text().lower()
                assert "first five minutes" in text or "## before" in text, page.name
                assert re.search(r"over\b.*when|over when", text), f"{page.name} does not say when it is over"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_link_leads_nowhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
    assert f"({page.name})" in (page.parent / "README.md").read_text() or page.name == "README.md"


def test_commands_that_need_more_than_this_machine_name_programs_we_know() -> None:
    known = {"export", "kubectl", "docker", "psql", "pg_dump", "temporal", "retold", "python"}
    for page in PAGES:
        for command in commands(page, run=False):
            assert command.split()[0] in known, f"{page.name}: {command}"

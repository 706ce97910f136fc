"""The TypeScript host built from its lock and put to work. What it shows is also held without npm, by
tests/integration/test_host_generation.py; this is the proof that another language needs the JSON only."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from temporalio.client import Client

from retold.contracts.disposition import Disposition as D
from retold.contracts.disposition import Reason as R
from tests.cases import BUDGET_MS, SERVED
from tests.own_worker import deployed
from tests.scripted import NEVER_MS

SOURCE = Path(__file__).parents[2] / "examples" / "host_worker_typescript"
OLDEST_NODE = (20, 3)
INSTALL_WITHIN_S = 240
OUT_OF_REACH = re.compile(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ENOTCACHED|ERR_SOCKET")

pytestmark = pytest.mark.timeout(INSTALL_WITHIN_S + 120)


@pytest.fixture(scope="module")
async def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example, installed from its lock and compiled.

    Skipped where Node, npm or the registry is missing, unless RETOLD_REQUIRE_NPM=1 says they must be there.
    """
    if shutil.which("node") is None or shutil.which("npm") is None:
        missing("node and npm are not installed")
    version = (await run("node", "--version"))[1].strip()
    if tuple(map(int, version.removeprefix("v").split(".")[:2])) < OLDEST_NODE:
        missing(f"node is {version}, and the SDK needs 20.3")
    copy = tmp_path_factory.mktemp("typescript") / "host"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("node_modules", "dist"))
    options = ("--prefer-offline", "--no-audit", "--no-fund", "--fetch-retries=0", "--fetch-timeout=20000")
    try:
        code, said = await asyncio.wait_for(run("npm", "ci", *options, at=copy), INSTALL_WITHIN_S)
    except TimeoutError:
        missing(f"npm ci did not finish within {INSTALL_WITHIN_S} s")
    if code != 0 and (reason := OUT_OF_REACH.search(said)):
        missing(f"the npm registry does not answer ({reason[0]})")
    assert code == 0, said
    code, said = await run("npm", "run", "build", at=copy)
    assert code == 0, said
    return copy


async def test_a_turn_regenerates_in_typescript(client: Client, built: Path) -> None:
    async with deployed(client, SERVED) as turn, typescript_worker(client, built, turn.queue) as worker:
        result = await turn.ask(heartbeat_timeout_ms=1_000)
        worker.terminate()
        assert await asyncio.wait_for(worker.wait(), 30) == 0
    assert (result.disposition, result.reason) == (D.REGENERATED, R.ADMITTED)
    # The question in its public context, and the one admitted record out of the block.
    assert result.answer == "You ask: what can I eat? You told me on 2026-11-27: text of r1"
    models = [use.model for use in turn.decision.usage if use.model == "quotes-by-rule"]
    assert len(models) == 2  # draft and regeneration


async def test_it_gives_up_when_its_time_is_over(client: Client, built: Path) -> None:
    script = SERVED.with_config(draft_timeout_ms=BUDGET_MS)
    async with deployed(client, script) as turn, typescript_worker(client, built, turn.queue, NEVER_MS):
        with pytest.raises(Exception, match="LimitReached"):
            await turn.ask()
    assert turn.decision.failures == ("draft:error:LimitReached",)


@asynccontextmanager
async def typescript_worker(
    client: Client, built: Path, queue: str, takes_ms: int = 0
) -> AsyncIterator[asyncio.subprocess.Process]:
    worker = await asyncio.create_subprocess_exec(
        "node", "dist/worker.js", "--task-queue", queue, "--takes-ms", str(takes_ms),
        cwd=built, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "TEMPORAL_ADDRESS": client.service_client.config.target_host},
    )  # fmt: skip
    try:
        assert worker.stdout is not None
        assert b"serving" in await asyncio.wait_for(worker.stdout.readline(), 60)
        yield worker
    finally:
        if worker.returncode is None:
            worker.kill()
        await worker.wait()


async def run(*command: str, at: Path | None = None) -> tuple[int, str]:
    """Run to the end, or kill it when this is cancelled. Exit code and everything it said."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=at, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        said, _ = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode is not None
    return process.returncode, said.decode(errors="replace")


def missing(what: str) -> NoReturn:
    if os.environ.get("RETOLD_REQUIRE_NPM") == "1":
        pytest.fail(what)
    pytest.skip(what)

"""The demo keeps its promises: every serving disposition is seen, nothing foreign is said, and it leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from retold.contracts.disposition import SERVING_DISPOSITIONS


@pytest.mark.timeout(400)
def test_the_demo_shows_every_disposition_and_ends_well(tmp_path: Path) -> None:
    played = run_demo(tmp_path).communicate(timeout=380)[0]
    for disposition in SERVING_DISPOSITIONS:
        assert f"{disposition.value} / " in played, f"{disposition.value} was not seen\n{played[-3000:]}"
    assert "in this session's profile: 0 instructions; in the next one's: 2" in played, played[:3000]
    assert "NOT as it should be" not in played, played[-3000:]
    assert "answers holding something foreign, outdated or injected: 0" in played
    assert list(tmp_path.glob("retold-*")) == []


def test_a_demo_that_is_told_to_stop_leaves_nothing_behind(tmp_path: Path) -> None:
    demo = run_demo(tmp_path)
    until = time.monotonic() + 60
    while not list(tmp_path.glob("retold-demo-*/temporal.db")) and time.monotonic() < until:
        time.sleep(0.05)
    demo.send_signal(signal.SIGTERM)
    demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert list(tmp_path.glob("retold-*")) == []


def run_demo(tmp: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "retold.cli", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp), "COLUMNS": "100"},
    )

"""A worker that cannot run ends in lines of its own log: never in a traceback with words in it, never aborted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"RETOLD_QDRANT_API_KEY": "k"}, "the worker does not run: RETOLD_QDRANT_API_KEY"),
        ({"RETOLD_UTILITY": '{"shadow": false, "gap_enabled": true}'}, "the worker does not run: bundle"),
        ({"TEMPORAL_ADDRESS": "127.0.0.1:1"}, "the worker does not run: Temporal is out of reach"),
        ({"RETOLD_WORKER__METRICS_ADDRESS": "192.0.2.1:1"}, "the worker ended"),
    ],
)
def test_why_a_worker_does_not_run_is_a_line_of_its_log(environment: dict[str, str], said: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "worker.py"],
        cwd=ROOT,
        env={**os.environ, "RETOLD_DATA_DIR": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    lines = [json.loads(line) for line in (ended.stdout + ended.stderr).splitlines()]
    assert (ended.returncode, lines[-1]["level"]) == (1, "ERROR")
    assert lines[-1]["message"].startswith(said)

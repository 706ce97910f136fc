"""A worker whose wall clock is wrong: `worker.py`, run with what its code calls now moved by a file's seconds.

    python -m benchmarks.faults_moved_clock FILE     # FILE: whole seconds, read anew whenever somebody looks

Only the wall clock moves, as when somebody sets a machine's clock; monotonic clocks go on, and so does the Temporal
server's. Done inside the process, at the one place where the product reads its clock: libfaketime, which would do it
from outside, holds the SDK's native threads for seconds even while it moves nothing.
"""

from __future__ import annotations

import runpy
import sys
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Self

from benchmarks.crash_rig import ROOT

FILE = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()


class MovedDatetime(datetime):
    """What `retold.policy.limits` knows as `datetime`: `utc_now` is there, and no stage of a turn asks elsewhere."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        moved = datetime.now(tz) + timedelta(seconds=int(FILE.read_text()))
        return cls.fromtimestamp(moved.timestamp(), tz)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    import retold.policy.limits as clock

    clock.datetime = MovedDatetime  # type: ignore[attr-defined]
    sys.argv = [str(ROOT / "worker.py")]
    runpy.run_path(str(ROOT / "worker.py"), run_name="__main__")

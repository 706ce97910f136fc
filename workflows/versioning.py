"""Which version of the workers goes on with a workflow, where workers are versioned (`RETOLD_WORKER__BUILD_ID`).

A workflow that is replayed by code that takes other steps stands still, so whatever goes on elsewhere must replay
there: `tests/replay` holds recorded histories of every workflow to that, `retold replay-gate` those of a namespace.
"""

from __future__ import annotations

from temporalio.common import VersioningBehavior

STAYS = VersioningBehavior.PINNED
"""With the version that began it, which therefore runs on until it is drained. A turn: somebody waits, it is over
within two minutes, and in durability `stage` the whole algorithm is replayed. A review: its steps are what reviewers
and owners were told; it lives for at most its two weeks."""

GOES_ON = VersioningBehavior.AUTO_UPGRADE
"""On the version that is current at its next task. What must end however long it takes and whatever is away (a late
record, forgetting, the index, evaluations, changes to records): none of it may be left to workers that have gone.
Each is a few steps in a row."""

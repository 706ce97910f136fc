"""Which version of the workers goes on with a workflow, where workers are versioned (`RETOLD_WORKER__BUILD_ID`).

What stays with the version that began it needs that version's workers until it ends. What goes on with the version
that is current at its next task needs code that replays it: `tests/replay` holds the recorded histories of every
workflow to that, `retold replay-gate` those of a namespace.
"""

from __future__ import annotations

import dataclasses

from temporalio.common import VersioningBehavior
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails

from retold.contracts import names

STAYS = frozenset({names.TURN_WORKFLOW, names.REVIEW_WORKFLOW})
"""A turn: somebody waits, it is over within two minutes, and in durability `stage` the whole algorithm is replayed. A
review: it lives for at most its two weeks, and its later steps are those its owner and its reviewer were told of.

Everything else goes on: late records, forgetting, the index, evaluations and changes to records end however long it
takes and whatever is away, so none may be left to workers that have gone. Each is a few steps in a row.
"""


def behaviour(workflow: str) -> VersioningBehavior:
    return VersioningBehavior.PINNED if workflow in STAYS else VersioningBehavior.AUTO_UPGRADE


class VersionedRunner(UnsandboxedWorkflowRunner):
    """Runs workflows with the behaviour above.

    The decorator could say it as well, but then for every worker, and the server refuses the tasks of one that says
    it without being versioned.
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        assert det.defn.name is not None, "no workflow here is dynamic"
        definition = dataclasses.replace(det.defn, versioning_behavior=behaviour(det.defn.name))
        return super().create_instance(dataclasses.replace(det, defn=definition))

"""Kill switches through Temporal: the ordinary way. `retold switch` knows two others for when this one is away."""

from __future__ import annotations

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from retold.contracts import names
    from retold.contracts.switches import SwitchChange, SwitchesInForce, SwitchState
    from workflows.accepting import WRONGLY_CALLED, accepted
    from workflows.durably import durably


@workflow.defn(name=names.SWITCH_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class SwitchWorkflow:
    """Change one switch. Every worker follows with its next reading, `worker.switches_read_every_s` later at most."""

    @workflow.run
    async def run(self, request: RawValue) -> SwitchState:
        return await durably(names.CHANGE_SWITCH, accepted(SwitchChange, request), SwitchState)


@workflow.defn(name=names.LIST_SWITCHES_WORKFLOW, failure_exception_types=WRONGLY_CALLED)
class ListSwitchesWorkflow:
    @workflow.run
    async def run(self, _: RawValue) -> SwitchesInForce:
        return await durably(names.LIST_SWITCHES, None, SwitchesInForce)

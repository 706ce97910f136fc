"""The steps of forgetting, in the store, the index and Temporal. Each may be repeated; none hands text to another."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio import activity
from temporalio.client import Client

from activities.forgotten_executions import ForgottenExecutions
from activities.heartbeat import heartbeating, while_beating
from activities.refusals import refusals
from retold.contracts import names
from retold.contracts.forgetting import (
    BeginForgetting,
    ForgetArchive,
    ForgetReceipt,
    Forgetting,
    ReadBack,
    Surface,
    SurfaceReceipt,
)
from retold.index.port import RecordIndex
from retold.policy.limits import utc_now
from retold.store.forgetting import ForgetLedger
from retold.telemetry.metrics import FORGETS, count

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ForgettingActivities:
    """
    Args:
        indexes: every generation of the index that something may be left in.
        archives: what receipts list as out of reach.
    """

    ledger: ForgetLedger
    indexes: Callable[[], Awaitable[Sequence[RecordIndex]]]
    client: Client
    archives: tuple[ForgetArchive, ...] = ()

    def get_activities(self) -> Sequence[Callable[..., Any]]:
        return [
            self.begin_forgetting,
            self.close_workflows_of_forgotten,
            self.erase_forgotten,
            self.delete_executions_of_forgotten,
            self.read_back_forgotten,
            self.issue_forget_receipt,
            self.give_up_forgetting,
        ]

    @activity.defn(name=names.BEGIN_FORGETTING)
    async def begin_forgetting(self, asked: BeginForgetting) -> Forgetting:
        async with heartbeating():
            with refusals():
                return await self.ledger.begin(asked, utc_now())

    @activity.defn(name=names.CLOSE_WORKFLOWS_OF_FORGOTTEN)
    async def close_workflows_of_forgotten(self, forgetting: Forgetting) -> None:
        """What was under way when it was asked may still write; afterwards nothing does."""
        async with heartbeating():
            closed = await (await self._executions(forgetting)).close_open()
            await self.ledger.removed(forgetting, Surface.OPEN_WORKFLOWS, closed)

    @activity.defn(name=names.ERASE_FORGOTTEN)
    async def erase_forgotten(self, forgetting: Forgetting) -> None:
        """Once more from SQL, then from every generation of the index; the files are rewritten last."""
        async with heartbeating():
            ids = await self.ledger.sweep(forgetting, utc_now())
            for index in await self.indexes():
                await index.delete(ids)
            await self.ledger.index_followed(forgetting, ids)
            await self.ledger.settle()

    @activity.defn(name=names.DELETE_EXECUTIONS_OF_FORGOTTEN)
    async def delete_executions_of_forgotten(self, forgetting: Forgetting) -> None:
        async with heartbeating():
            executions = await self._executions(forgetting)
            found = await executions.find()
            await executions.delete(found.executions)
            await self.ledger.removed(forgetting, Surface.CLOSED_WORKFLOWS, len(found.executions))

    @activity.defn(name=names.READ_BACK_FORGOTTEN)
    async def read_back_forgotten(self, forgetting: Forgetting) -> ReadBack:
        """Look for every exact text on every surface."""
        async with heartbeating():
            probes = await self.ledger.texts(forgetting)
            left = {**await self.ledger.read_back(forgetting), Surface.INDEX: await self._left_in_index(forgetting)}
            found = await (await self._executions(forgetting)).find()
            still_open = sum(each.close_time is None for each in found.executions)
            surfaces = [
                SurfaceReceipt(surface=surface, removed=0, read_back=len(probes), left=count)
                for surface, count in left.items()
            ]
            for surface, some in (
                (Surface.OPEN_WORKFLOWS, still_open),
                (Surface.CLOSED_WORKFLOWS, len(found.executions) - still_open),
            ):
                surfaces.append(SurfaceReceipt(surface=surface, removed=0, read_back=found.looked_at, left=some))
            return ReadBack(surfaces=tuple(sorted(surfaces, key=lambda each: list(Surface).index(each.surface))))

    @activity.defn(name=names.ISSUE_FORGET_RECEIPT)
    async def issue_forget_receipt(self, forgetting: Forgetting, looked: ReadBack) -> ForgetReceipt:
        """The receipt, and with it the end of the probes; the files then hold them no more either."""
        async with heartbeating():
            receipt = await self.ledger.issue(forgetting, looked.surfaces, self.archives, utc_now())
            await self.ledger.settle()
            count(FORGETS, what=receipt.what, ended="receipt")
            return receipt

    @activity.defn(name=names.GIVE_UP_FORGETTING)
    @while_beating
    async def give_up_forgetting(self, forgetting: Forgetting, looked: ReadBack) -> None:
        """Say it where somebody is listening: in the audit trail, in the log and in a metric with an alert."""
        where = ", ".join(f"{each.surface.value}: {each.left}" for each in looked.left)
        logger.error("forgetting %s is incomplete, text is still found in %s", forgetting.receipt_id, where)
        await self.ledger.give_up(forgetting, looked.left, utc_now())
        count(FORGETS, what=forgetting.what, ended="incomplete")

    async def _left_in_index(self, forgetting: Forgetting) -> int:
        """Points that carry one of the texts and belong to no record that is stored."""
        probes = await self.ledger.texts(forgetting)
        carrying: set[str] = set()
        for index in await self.indexes():
            found = await index.find_texts(forgetting.principal, sorted(probes.texts))
            stored = {point.ref.id for point in await index.points_of(forgetting.principal)}
            carrying |= {id for ids in found.values() for id in ids} | stored
        return len(carrying - await self.ledger.living(carrying))

    async def _executions(self, forgetting: Forgetting) -> ForgottenExecutions:
        probes = await self.ledger.texts(forgetting)
        return ForgottenExecutions(self.client, forgetting, probes, await self.ledger.buried(forgetting))

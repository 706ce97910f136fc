"""`retold index`: prove the index equal to the store, repair it, and build it anew while answers keep coming."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Any, TypeVar
from uuid import uuid4

import typer

from retold.cli import options
from retold.cli.output import readable
from retold.cli.running_stack import Whereabouts, connected, read_settings
from retold.cli.terminal import out, write_json
from retold.contracts import names
from retold.contracts.indexing import (
    Difference,
    Generation,
    IndexFinding,
    IndexOverview,
    OverviewInput,
    RebuildInput,
    RebuildReport,
    ReconcileInput,
    ReconcileReport,
)

WITHIN = timedelta(days=2)
"""A comparison takes minutes for a million records, building them anew as long as their embedding takes."""

ResultT = TypeVar("ResultT")

_MEANING = {
    Difference.MISSING: "records without a point",
    Difference.STALE: "points that show something else than their record",
    Difference.INCOMPLETE: "points without a vector or with other words",
    Difference.EXTRA: "points of records that are not to be found",
    Difference.UNREADABLE: "points that say not whose they are",
    Difference.LAGGING: "records whose change the index does not take",
    Difference.UNREADABLE_RECORD: "records whose row in the store cannot be read",
}


def reconcile(
    context: typer.Context,
    repair: Annotated[
        bool, typer.Option("--repair", help="Bring what differs into line, and compare it again.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Compare every record with the index, and every point of the index with its record.

    Ids, versions, everything that is filtered by, and whether both vectors are there; while records are being
    written. Interrupted, the same command goes on with the same comparison. A record that cannot be read is named and
    stops nothing. Exit code 1 if differences remain.
    """
    report = _operate(
        context,
        names.RECONCILE_INDEX_WORKFLOW,
        ReconcileInput(repair=repair),
        ReconcileReport,
        "index/repair" if repair else "index/reconcile",
    )
    if as_json:
        write_json({"equal": report.equal, "left": report.left, **report.model_dump(mode="json")})
    else:
        _show_report(report)
    if not report.equal:
        raise typer.Exit(1)


def rebuild(
    context: typer.Context,
    hold: Annotated[
        bool, typer.Option("--hold", help="Build and keep following, but let the old one answer: switch later.")
    ] = False,
    same_embedder: Annotated[
        bool, typer.Option("--same-embedder", help="Build it anew for the embedder it has.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Build the index anew for the next embedder (RETOLD_NEXT_EMBEDDER__...) while the old one answers.

    Both follow every change. When the new one is proved equal to the store, workers that start from then on answer
    from it, with its embedder; restart them one by one. The old one is dropped when the last has moved. Interrupted
    or killed, the same command goes on. Exit code 1 if there are records that cannot be read: they are named, and in no
    index.
    """
    report = _operate(
        context,
        names.REBUILD_INDEX_WORKFLOW,
        RebuildInput(hold=hold, same_embedder=same_embedder),
        RebuildReport,
        "index/rebuild",
    )
    if as_json:
        write_json(report)
    else:
        _show_rebuilt(report)
    if not report.checked.equal:
        raise typer.Exit(1)


def _show_rebuilt(report: RebuildReport) -> None:
    _say(f"built {report.generation.name} for {report.generation.embedder}")
    said = "equal" if report.checked.equal else "equal, but for records that cannot be read"
    _say(f"{report.checked.indexed:,} records indexed; compared with the store: {said}")
    if report.switched:
        _say("switched: restart the workers one by one; the old index goes when the last of them has moved")
    else:
        _say("held: it follows every change; `retold rebuild-index` without --hold switches to it")
    _show_findings(report.checked)


def generations(context: typer.Context, as_json: options.AsJson = False) -> None:
    """Which generations of the index there are, and which of them answers."""
    _show_generations(_overview(context, OverviewInput()).generations, as_json)


def abandon(context: typer.Context, as_json: options.AsJson = False) -> None:
    """Drop the generation that is being built. The one that answers is not touched."""
    overview = _overview(context, OverviewInput(abandon=True))
    if not as_json:
        _say("nothing was being built" if overview.abandoned is None else f"dropped {overview.abandoned}")
    _show_generations(overview.generations, as_json)


def _overview(context: typer.Context, asked: OverviewInput) -> IndexOverview:
    return _operate(context, names.INDEX_OVERVIEW_WORKFLOW, asked, IndexOverview, f"index/overview/{uuid4()}")


def _operate(
    context: typer.Context, workflow: str, asked: Any, result_type: type[ResultT], workflow_id: str
) -> ResultT:
    return asyncio.run(_operated(options.whereabouts(context), workflow, asked, result_type, workflow_id))


async def _operated(
    where: Whereabouts, workflow: str, asked: Any, result_type: type[ResultT], workflow_id: str
) -> ResultT:
    async with connected(where, read_settings()) as stack:
        return await stack.operate(workflow, asked, result_type, workflow_id=workflow_id, timeout=WITHIN)


def _show_report(report: ReconcileReport) -> None:
    _say(f"{'records compared':<18}{report.records:>9,}")
    _say(f"{'of them indexed':<18}{report.indexed:>9,}")
    _say(f"{'points compared':<18}{report.points:>9,}")
    _show_findings(report)
    if report.found == 0:
        _say("store and index are equal")
    elif report.equal:
        _say(f"{report.repaired:,} repaired; store and index are equal now")
    else:
        repaired = f"{report.repaired:,} repaired, " if report.repaired else ""
        only_unreadable = report.left == report.found - report.followable
        hint = (
            "nothing but putting their rows right in the store will help"
            if only_unreadable
            else "`retold reconcile --repair`, or `retold doctor` says what is in the way"
        )
        _say(f"{repaired}{report.left:,} differ: {hint}")


def _show_findings(report: ReconcileReport) -> None:
    for difference, found in report.differences.items():
        _say(f"{difference.value:<18}{found:>9,}  {_MEANING[difference]}")
    for finding in report.findings:
        _say(f"  {finding.difference.value} {_whose(finding)}: {finding.detail}")
    if report.found > len(report.findings):
        _say(f"  and {report.found - len(report.findings):,} more")


def _whose(finding: IndexFinding) -> str:
    return "/".join(part for part in (finding.tenant, finding.record_id or finding.point) if part is not None)


def _show_generations(found: tuple[Generation, ...], as_json: bool) -> None:
    if as_json:
        write_json(found)
        return
    for each in found:
        _say(f"{each.role.value:<10}{each.name}  {each.embedder}")


def _say(line: str) -> None:
    console = out()
    console.print(readable(console, line), markup=False, soft_wrap=True)

"""`retold demo-real`: real dialogue data through the whole stack, and what it shows about recall and injection."""

from __future__ import annotations

import asyncio
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from retold.cli.demo import demo_settings
from retold.cli.embedded import EmbeddedStack, embedded_stack
from retold.cli.failures import CommandError
from retold.cli.real_data import KINDS, DataMissingError, RealCase, RealData, as_principal
from retold.cli.terminal import err, out, watched
from retold.client import Host, TurnResult
from retold.contracts import names
from retold.contracts.decision import TurnDecision
from retold.contracts.disposition import Disposition
from retold.contracts.importing import ImportReport
from retold.contracts.operations import IMPORT_BATCH_MAX_LINES, ImportInput
from retold.contracts.stages import Stage
from retold.contracts.turn import Principal

PRINCIPALS, PER_KIND = 2, 16
SAID_EVERY = 10


def demo_real(
    data: Annotated[str, typer.Option("--data", help="Folder of the data; see the README for its format.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Every case instead of a sample: about an hour.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 7,
    report: Annotated[Path, typer.Option("--report", help="Where the numbers go as JSON.")] = Path(
        "build/demo-real.json"
    ),
) -> None:
    """Run real questions and ordinary turns through the whole stack; print recall, injection and latency."""
    if not data:
        raise CommandError("name the folder of the data: make demo-real DATA=DIR (the README says what it holds)")
    try:
        found = RealData.read(Path(data))
    except DataMissingError as error:
        raise CommandError(str(error)) from error
    cases = found.cases if everything else found.sample(seed, principals=PRINCIPALS, per_kind=PER_KIND)
    with tempfile.TemporaryDirectory(prefix="retold-demo-real-") as data_dir:
        played = asyncio.run(_play(found, cases, Path(data_dir)))
    measured = {"all": everything, "seed": None if everything else seed, **summary(played)}
    _show(out(), measured)
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(json.dumps(measured, indent=2) + "\n")
    out().print(f"written to {report}", style="dim")


@dataclass(frozen=True)
class Played:
    case: RealCase
    decision: TurnDecision
    answered_ms: float
    gold: frozenset[str]
    """Record ids of the gold records in this store."""

    @property
    def injected(self) -> bool:
        return self.decision.disposition is Disposition.REGENERATED

    def any_gold(self, ids: Iterable[str]) -> bool:
        return bool(self.gold & set(ids))

    @property
    def added_ms(self) -> float:
        """What the path added beyond the draft."""
        ends = {timing.stage: timing.ended_ms for timing in self.decision.timings}
        return max(ends.values()) - ends[Stage.DRAFT]


async def _play(data: RealData, cases: Sequence[RealCase], data_dir: Path) -> list[Played]:
    async with embedded_stack(demo_settings(data_dir)) as stack:
        with Progress(console=err(), transient=True) as progress:
            ids = await _remember(stack, data, cases, progress)
            task = progress.add_task("turns", total=len(cases))
            host = Host(stack.client, task_queue=stack.settings.worker.turns_queue)
            played = []
            for number, case in enumerate(cases):
                played.append(await _ask(stack, host, case, number, ids[case.principal, case.pool]))
                progress.advance(task)
                if not watched() and len(played) % SAID_EVERY == 0:
                    err().print(f"{len(played)} of {len(cases)} turns")
            return played


async def _remember(
    stack: EmbeddedStack, data: RealData, cases: Sequence[RealCase], progress: Progress
) -> dict[tuple[str, str], dict[str, str]]:
    """Import each principal's pool; record ids by the data's own ids."""
    wanted = sorted({(case.principal, case.pool) for case in cases})
    task = progress.add_task("importing", total=len(wanted))
    ids = {}
    for name, pool in wanted:
        principal, lines = _of_pool(name, pool), list(data.lines(name, pool))
        for start in range(0, len(lines), IMPORT_BATCH_MAX_LINES):
            batch = tuple(lines[start : start + IMPORT_BATCH_MAX_LINES])
            await stack.client.execute_workflow(
                names.IMPORT_WORKFLOW,
                ImportInput(principal=principal, lines=batch, actor="retold demo-real"),
                id=f"import/{name}/{pool}/{start}",
                task_queue=stack.settings.worker.operations_queue,
                result_type=ImportReport,
            )
        by_text = {record.text: record.id for record in await stack.adapters.store.records(principal)}
        ids[name, pool] = {str(line.id): by_text[line.text] for line in lines if line.text in by_text}
        progress.advance(task)
    return ids


async def _ask(stack: EmbeddedStack, host: Host, case: RealCase, number: int, ids: dict[str, str]) -> Played:
    started = time.perf_counter()
    principal = _of_pool(case.principal, case.pool)
    result = await host.turn(principal, f"session/{case.principal}/{case.pool}", f"{number}", case.text)
    answered_ms = (time.perf_counter() - started) * 1000
    assert isinstance(result, TurnResult), "there is no fallback here"
    async with asyncio.timeout(30):
        while (decision := await stack.adapters.store.decision(result.decision_id)) is None:
            await asyncio.sleep(0.02)
    return Played(case, decision, answered_ms, frozenset(ids[id] for id in case.gold_ids if id in ids))


def _of_pool(name: str, pool: str) -> Principal:
    """A principal who meets two pools in the data is two principals here, so that neither sees the other's."""
    principal = as_principal(name)
    return principal if pool.startswith(principal.tenant) else Principal(tenant=pool, user=principal.user)


# --- numbers ------------------------------------------------------------------------------------------------


def summary(played: Sequence[Played]) -> dict[str, Any]:
    """Every share with its n, ordinary injection per stratum, latency apart for turns with and without gaps."""
    by_kind = {kind: [each for each in played if each.case.kind == kind] for kind in KINDS}
    gap_turns = [each for each in played if each.decision.gaps]
    return {
        "turns": len(played),
        "recall": _needing(by_kind["recall"]),
        "preference": _needing(by_kind["preference"]),
        "ordinary": {
            **_share(by_kind["ordinary"], "injected", lambda each: each.injected),
            "strata": {
                stratum: _share(of, "injected", lambda each: each.injected)
                for stratum, of in _by_stratum(by_kind["ordinary"]).items()
            },
        },
        "unanswerable": _share(by_kind["unanswerable"], "abstained", lambda each: not each.injected),
        "latency_ms": {
            "answer_p50": _p50([each.answered_ms for each in played]),
            "added_no_gap_p50": _p50([each.added_ms for each in played if not each.decision.gaps]),
            "added_gap_p50": _p50([each.added_ms for each in gap_turns]),
            "added_gap_p95": _p95([each.added_ms for each in gap_turns]),
            "retrieve_p50": _p50(_elapsed(played, Stage.RETRIEVE)),
            "admit_p50": _p50(_elapsed(played, Stage.ADMIT)),
        },
        "dispositions": _counts(each.decision.disposition.value for each in played),
    }


def _needing(played: Sequence[Played]) -> dict[str, Any]:
    measures: dict[str, Callable[[Played], bool]] = {
        "planned": lambda each: bool(each.decision.gaps),
        "any_gold_found": lambda each: each.any_gold(ref.id for ref in each.decision.candidates),
        "any_gold_admitted": lambda each: each.any_gold(ref.id for ref in each.decision.admitted),
        "any_gold_delivered": lambda each: each.any_gold(ref.id for ref in each.decision.applied),
    }
    shares = {key: value for name, of in measures.items() for key, value in _share(played, name, of).items()}
    admitted = [len(each.decision.admitted) for each in played if each.decision.admitted]
    return {**shares, "records_admitted_mean": round(sum(admitted) / len(admitted), 2) if admitted else None}


def _share(played: Sequence[Played], name: str, holds: Callable[[Played], bool]) -> dict[str, Any]:
    count = sum(holds(each) for each in played)
    return {"n": len(played), name: count, f"{name}_share": round(count / len(played), 4) if played else None}


def _by_stratum(played: Sequence[Played]) -> dict[str, list[Played]]:
    strata: dict[str, list[Played]] = {}
    for each in played:
        strata.setdefault(each.case.stratum, []).append(each)
    return dict(sorted(strata.items()))


def _elapsed(played: Sequence[Played], stage: Stage) -> list[float]:
    return [timing.elapsed_ms for each in played for timing in each.decision.timings if timing.stage is stage]


def _counts(values: Iterable[str]) -> dict[str, int]:
    counted: dict[str, int] = {}
    for value in values:
        counted[value] = counted.get(value, 0) + 1
    return dict(sorted(counted.items()))


def _p50(values: Sequence[float]) -> float | None:
    return round(median(values), 1) if values else None


def _p95(values: Sequence[float]) -> float | None:
    return round(sorted(values)[max(0, math.ceil(0.95 * len(values)) - 1)], 1) if values else None


def _show(console: Console, measured: dict[str, Any]) -> None:
    table = Table(title=f"{measured['turns']} turns of real people through the whole stack", title_justify="left")
    table.add_column("what")
    table.add_column("share", justify="right")
    table.add_column("of", justify="right")
    rows = [
        ("recall questions: a gold record among the candidates", measured["recall"], "any_gold_found"),
        ("recall questions: a gold record admitted", measured["recall"], "any_gold_admitted"),
        ("preference questions: the preference admitted", measured["preference"], "any_gold_admitted"),
        ("unanswerable questions: nothing injected", measured["unanswerable"], "abstained"),
        ("ordinary turns: something injected", measured["ordinary"], "injected"),
    ]
    rows += [(f"  of these, {name}", of, "injected") for name, of in measured["ordinary"]["strata"].items()]
    for what, of, name in rows:
        share = of[f"{name}_share"]
        table.add_row(what, "-" if share is None else f"{share:.1%}", str(of["n"]))
    console.print(table)
    latency = measured["latency_ms"]
    console.print(
        f"added beyond the draft, p50: {latency['added_no_gap_p50']} ms on turns without a gap, "
        f"{latency['added_gap_p50']} ms with one (p95 {latency['added_gap_p95']} ms), "
        f"of it retrieval {latency['retrieve_p50']} ms and admission {latency['admit_p50']} ms"
    )

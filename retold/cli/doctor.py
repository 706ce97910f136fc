"""`retold doctor`: what is wrong with this installation and the stack it talks to, and what to do about it."""

from __future__ import annotations

import asyncio
from typing import Any

import typer
from rich.console import Console

from retold.cli import options
from retold.cli.failures import CommandError, sentence
from retold.cli.installation import installation_checks
from retold.cli.output import readable
from retold.cli.running_stack import RunningStack, Whereabouts, connected, read_settings
from retold.cli.terminal import out, write_json
from retold.client import missing_review_attributes
from retold.contracts.operations import Check
from retold.settings import Settings

EXAMINED_WITHIN_S = 20


def doctor(context: typer.Context, as_json: options.AsJson = False) -> None:
    """Say what is wrong, and what to do about it.

    Looks at this installation, and through Temporal at the workers and what they run with. Changes nothing. Exit
    code 1 if anything is wrong.
    """
    checks = asyncio.run(_examine(options.whereabouts(context)))
    fine = all(check.ok for check in checks)
    if as_json:
        write_json({"ok": fine, "checks": checks})
    else:
        _show(out(), checks)
    if not fine:
        raise typer.Exit(1)


async def _examine(where: Whereabouts) -> list[Check]:
    settings, checks = _settings()
    checks += installation_checks(settings)
    try:
        async with connected(where, settings) as stack:
            checks.append(Check(name="temporal", ok=True, found=f"answers at {stack.address}"))
            checks.append(await _namespace(stack))
            if checks[-1].ok:
                checks.append(await _review_attributes(stack))
                checks += await _workers(stack)
    except CommandError as error:
        checks.append(Check(name="temporal", ok=False, found=error.found, advice=error.advice))
    return checks


def _settings() -> tuple[Settings, list[Check]]:
    """The settings; those without any environment, so that the rest can be looked at, when they are wrong."""
    try:
        settings = read_settings()
    except CommandError as error:
        advice = "correct or unset the variables named here; the checks below assume the defaults"
        wrong = Check(name="settings", ok=False, found=error.advice or error.found, advice=advice)
        return Settings.model_construct(), [wrong]
    found = f"data in {settings.data_dir}, index {settings.qdrant_url or 'embedded'}"
    return settings, [Check(name="settings", ok=True, found=found)]


async def _namespace(stack: RunningStack) -> Check:
    name = stack.client.namespace
    try:
        days = await stack.retention_days()
    except Exception as error:
        if (why := sentence(error)) is None:
            raise
        advice = "create it (temporal operator namespace create) or set TEMPORAL_NAMESPACE to one that exists"
        return Check(name="namespace", ok=False, found=f"{name}: {why}", advice=advice)
    return Check(name="namespace", ok=True, found=f"{name}, closed workflows kept for {days:g} days")


async def _review_attributes(stack: RunningStack) -> Check:
    """Reviews run without them; Temporal's page cannot list the queue then."""
    advice = "run `retold review setup` with an account that may change the namespace"
    try:
        missing = await missing_review_attributes(stack.client)
    except Exception as error:
        if (why := sentence(error)) is None:
            raise
        return Check(name="review attributes", ok=False, found=why, advice=advice)
    found = f"{', '.join(missing)} missing" if missing else "registered"
    return Check(name="review attributes", ok=not missing, found=found, advice=advice if missing else None)


async def _workers(stack: RunningStack) -> list[Check]:
    checks = [await _polled(stack, "turns worker", stack.turns_queue)]
    checks.append(await _polled(stack, "lifecycle worker", stack.lifecycle_queue))
    checks.append(await _polled(stack, "operations worker", stack.operations_queue))
    if checks[-1].ok:
        checks += await _deployment(stack)
    return checks


async def _polled(stack: RunningStack, name: str, queue: str) -> Check:
    pollers = await stack.pollers(queue)
    if pollers:
        return Check(name=name, ok=True, found=f"{pollers} polling {queue}")
    advice = "start `retold dev` or `python worker.py`; if one runs, compare its namespace and task queues with these"
    return Check(name=name, ok=False, found=f"nobody polls {queue}", advice=advice)


async def _deployment(stack: RunningStack) -> list[Check]:
    """What a worker says about itself: store, index, embedder, models."""
    try:
        async with asyncio.timeout(EXAMINED_WITHIN_S):
            return list((await stack.deployment()).checks)
    except TimeoutError:
        found = f"no worker answered within {EXAMINED_WITHIN_S} s"
    except Exception as error:
        why = sentence(error)
        if why is None:
            raise
        found = why
    return [Check(name="worker", ok=False, found=found, advice="read the worker's log; restart it if it is gone")]


def _show(console: Console, checks: list[Check]) -> None:
    def line(text: str, **style: Any) -> None:
        console.print(readable(console, text), markup=False, soft_wrap=True, **style)

    for check in checks:
        mark, style = ("ok   ", "green") if check.ok else ("WRONG", "bold red")
        console.print(mark, style=style, end="  ")
        line(f"{check.name}: {check.found}")
        if not check.ok and check.advice:
            line(f"       -> {check.advice}")
    wrong = sum(not check.ok for check in checks)
    line("everything is fine" if wrong == 0 else f"{wrong} of {len(checks)} checks found something wrong")

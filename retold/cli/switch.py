"""`retold switch`: take a stage out of every turn's path, now, whatever else is broken (design section 3.7).

Three ways, tried in this order and each named when it is used: through Temporal; straight into the store, when
Temporal is away; into the switch file of this machine's workers, when the store is away too. Turns in flight keep
what they began with.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer
from pydantic import TypeAdapter, ValidationError

from retold.cli import options
from retold.cli.failures import CommandError
from retold.cli.running_stack import connected, read_settings
from retold.cli.terminal import out, write_json
from retold.client import RetoldError
from retold.contracts import names
from retold.contracts.refusal import refusal_text
from retold.contracts.switches import SwitchChange, SwitchesInForce, SwitchName, SwitchState
from retold.settings import Settings

Stage = Annotated[SwitchName, typer.Argument(help="gap, admission, regeneration (off: shadow) or profile.")]
ForTenant = Annotated[str | None, typer.Option("--tenant", help="For one tenant only; else for all.")]
FileOnly = Annotated[
    bool, typer.Option("--file", help="Only write the switch file of this machine's workers; ask nobody.")
]

ANSWERS_WITHIN = timedelta(seconds=15)
"""Somebody wants something off now: an operation that hangs on a store that is away is not waited for."""

_STATES = TypeAdapter(tuple[SwitchState, ...])


def switch_off(
    context: typer.Context,
    stage: Stage,
    reason: options.Why,
    tenant: ForTenant = None,
    actor: options.Actor = None,
    file: FileOnly = False,
    as_json: options.AsJson = False,
) -> None:
    """Switch a stage off. Works while Temporal, the store or both are down."""
    _switch(context, stage, False, reason, tenant, actor, file, as_json)


def switch_on(
    context: typer.Context,
    stage: Stage,
    reason: options.Why,
    tenant: ForTenant = None,
    actor: options.Actor = None,
    file: FileOnly = False,
    as_json: options.AsJson = False,
) -> None:
    """Switch a stage on again. Undoes an `off` of the same scope and the same way only."""
    _switch(context, stage, True, reason, tenant, actor, file, as_json)


def list_switches(context: typer.Context, as_json: options.AsJson = False) -> None:
    """What is off, for whom, since when, by whom and why."""
    in_force = asyncio.run(_in_force(context))
    if as_json:
        write_json(in_force)
    elif not in_force.off:
        out().print("everything is on")
    for state in () if as_json else in_force.off:
        scope = f"for tenant {state.tenant!r}" if state.tenant else "for all tenants"
        out().print(f"{state.switch.value} is off {scope} since {state.changed_at:%Y-%m-%d %H:%M:%S} UTC")
        out().print(f"  by {state.actor}: {state.reason}", markup=False)


def _switch(
    context: typer.Context,
    stage: SwitchName,
    on: bool,
    reason: str,
    tenant: str | None,
    actor: str | None,
    file: bool,
    as_json: bool,
) -> None:
    try:
        change = SwitchChange(switch=stage, on=on, tenant=tenant, actor=actor or getpass.getuser(), reason=reason)
    except ValidationError as error:
        raise CommandError(refusal_text(error)) from error
    settings = read_settings()
    if file:
        state, way = _by_file(settings, change), f"by {settings.switch_path}"
    else:
        state, way = asyncio.run(_by_whatever_answers(context, settings, change))
    if as_json:
        write_json(state)
        return
    scope = f"tenant {tenant!r}" if tenant else "all tenants"
    within_s = settings.worker.switches_read_every_s
    out().print(f"{stage.value} is {'on' if on else 'off'} for {scope} ({way}); every worker follows in {within_s:g} s")


async def _by_whatever_answers(
    context: typer.Context, settings: Settings, change: SwitchChange
) -> tuple[SwitchState, str]:
    why_not: list[str] = []
    try:
        async with connected(options.whereabouts(context), settings) as stack:
            state = await stack.operate(
                names.SWITCH_WORKFLOW,
                change,
                SwitchState,
                workflow_id=f"switch/{uuid4()}",
                queue=stack.lifecycle_queue,
                timeout=ANSWERS_WITHIN,
            )
            return state, "through Temporal"
    except RetoldError as error:
        why_not.append(str(error))
    try:
        return await _in_the_store(settings, change), f"straight in the store: {why_not[0]}"
    except Exception as error:  # noqa: BLE001 - whatever the database raises, there is one way left
        why_not.append(f"the store cannot be written ({type(error).__name__})")
    try:
        state = _by_file(settings, change)
    except OSError as error:
        why_not.append(f"{settings.switch_path} cannot be written ({error.strerror})")
        raise CommandError("nothing could be switched", "; ".join(why_not)) from error
    return state, f"by {settings.switch_path}, for this machine's workers: {'; '.join(why_not)}"


async def _in_the_store(settings: Settings, change: SwitchChange) -> SwitchState:
    # Here and not above: the store takes a second to import, and most commands do without.
    from retold.policy.limits import utc_now
    from retold.store.engine import open_engine
    from retold.store.store import Store

    if settings.sql_url.startswith("sqlite:") and not (settings.data_dir / "retold.db").exists():
        raise FileNotFoundError("there is no store on this machine")
    store = Store(open_engine(settings.sql_url))
    try:
        return await store.switches.change(change, at=utc_now())
    finally:
        await store.close()


def _by_file(settings: Settings, change: SwitchChange) -> SwitchState:
    from retold.policy.limits import utc_now

    path = settings.switch_path
    state = SwitchState(**change.model_dump(), changed_at=utc_now())
    others = tuple(each for each in _in_file(path) if (each.switch, each.tenant) != (change.switch, change.tenant))
    path.parent.mkdir(parents=True, exist_ok=True)
    # Whole or not at all: a worker may be reading it, and half a file would mean shadow.
    half = path.with_name(f"{path.name}.{os.getpid()}")
    half.write_text(json.dumps(_STATES.dump_python((*others, state), mode="json"), indent=1) + "\n")
    half.replace(path)
    return state


def _in_file(path: Path) -> tuple[SwitchState, ...]:
    if not path.exists():
        return ()
    try:
        return _STATES.validate_json(path.read_bytes())
    except ValidationError as error:
        raise CommandError(
            f"{path} is not a switch file", "workers that see it are in shadow; mend or remove it"
        ) from error


async def _in_force(context: typer.Context) -> SwitchesInForce:
    settings = read_settings()
    async with connected(options.whereabouts(context), settings) as stack:
        return await stack.operate(
            names.LIST_SWITCHES_WORKFLOW,
            None,
            SwitchesInForce,
            workflow_id=f"switches/{uuid4()}",
            queue=stack.lifecycle_queue,
        )

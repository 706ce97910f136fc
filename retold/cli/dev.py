"""`retold dev`: the whole stack on this machine, in the foreground, until Ctrl-C."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer
from rich.console import Console

from retold.cli.embedded import EmbeddedStack, embedded_stack, port_is_free
from retold.cli.output import readable
from retold.cli.running_stack import read_settings
from retold.cli.stopping import until_asked_to_stop
from retold.cli.terminal import out
from retold.contracts.config import UtilityAwareConfig
from retold.settings import Settings

TEMPORAL_PORT = 7233
UI_PORT = 8233


def dev(
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Temporal's port, 0 for any. Default: 7233, any if that is taken."),
    ] = None,
    ui_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Its page's port, 0 for any. Default: 8233, any if that is taken."),
    ] = None,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve",
            help="Let memory reach answers, on a development approval that the registry and every decision name. "
            "Default: as configured, which is shadow.",
        ),
    ] = False,
) -> None:
    """Run the whole stack on this machine.

    Temporal with its page, the store, the index, the models and the workers, in the foreground. Data stays in the
    data directory (RETOLD_DATA_DIR, default .retold). Ctrl-C stops everything; what was going on goes on after the
    next start.
    """
    settings = read_settings()
    if serve:
        settings = settings.model_copy(
            update={"utility": _serving(settings.utility), "development_approval": "retold dev --serve"}
        )
    asyncio.run(_dev(settings, port, ui_port))


async def _dev(settings: Settings, port: int | None, ui_port: int | None) -> None:
    console = out()
    _say(console, f"starting, with the data in {settings.data_dir}; the first start loads models and takes a moment")
    with until_asked_to_stop():
        async with embedded_stack(
            settings, port=_preferred(port, TEMPORAL_PORT), ui_port=_preferred(ui_port, UI_PORT)
        ) as stack:
            await _introduce(console, stack)
            await asyncio.Event().wait()
    _say(console, "stopped; the data is kept")


async def _introduce(console: Console, stack: EmbeddedStack) -> None:
    deployment = await stack.adapters.examine()
    address = stack.addresses.temporal
    rows = [
        ("Temporal", address),
        ("its page", stack.addresses.ui),
        ("data", str(stack.settings.data_dir)),
        *((name.replace("_", " "), identity) for name, identity in deployment.identities.items()),
        ("memory", _memory(stack.settings.utility)),
    ]
    for name, value in rows:
        _say(console, f"  {name:<14} {value}")
    for check in deployment.checks:
        if not check.ok:
            _say(console, f"not working: {check.name}: {check.found}. {check.advice or ''}")
    if not address.endswith(f":{TEMPORAL_PORT}"):
        _say(console, f"in other terminals: export TEMPORAL_ADDRESS={address}")
    _say(console, 'ready: retold turn "Hello" --tenant acme --user ada --session first (Ctrl-C here stops everything)')


def _memory(utility: UtilityAwareConfig) -> str:
    if not utility.gap_enabled:
        return "off: every answer is the draft"
    if utility.serving:
        return "serving: an admitted record reaches the answer"
    return "shadow: decides and logs, every answer is the draft (retold dev --serve lets it serve)"


def _serving(utility: UtilityAwareConfig) -> UtilityAwareConfig:
    # Through validation, not past it: some configurations may not serve.
    return UtilityAwareConfig.model_validate({**utility.model_dump(), "gap_enabled": True, "shadow": False})


def _preferred(asked: int | None, usual: int) -> int:
    """The port that was asked for, else the usual one, else (if somebody has that) any."""
    if asked is not None:
        return asked
    return usual if port_is_free(usual) else 0


def _say(console: Console, line: str) -> None:
    console.print(readable(console, line), markup=False, soft_wrap=True)
    sys.stdout.flush()

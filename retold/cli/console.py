"""`retold console`: the page where reviewers work, in the foreground, until Ctrl-C."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from retold.cli import options
from retold.cli.failures import CommandError
from retold.cli.opened_store import opened_store
from retold.cli.output import readable
from retold.cli.running_stack import Whereabouts, read_settings
from retold.cli.stopping import until_asked_to_stop
from retold.cli.terminal import out
from retold.client import open_client
from retold.client.encryption import EncryptingCodec, key_ring_from_environment
from retold.client.runtime import core_runtime
from retold.settings import ConsoleSettings, Settings

_NEEDED = ("starlette", "jinja2", "uvicorn", "python_multipart", "sqlalchemy", "sqlmodel", "alembic")


def console(
    context: typer.Context,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on. Default: as configured, which is 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port, 0 for any. Default: as configured, which is 8300.")
    ] = None,
    behind_tls: Annotated[
        bool, typer.Option("--behind-tls", help="A proxy ends TLS in front of this address, and only it reaches it.")
    ] = False,
    behind_loopback: Annotated[
        bool,
        typer.Option(
            "--behind-loopback", help="This address is published on a loopback address only: a container's port."
        ),
    ] = False,
    public_host: Annotated[
        list[str] | None,
        typer.Option(help="A name the page is reached by, without port; again for another. Others are refused."),
    ] = None,
) -> None:
    """Serve the page where reviewers decide about proposed standing preferences.

    It reads the store (RETOLD_STORE_URL) and sends decisions through Temporal to the workers that run there; it
    starts and shows the queue while Temporal is away. People sign in with the token they were given when they were
    registered. Beyond this machine it only listens with TLS: RETOLD_CONSOLE__CERTIFICATE and
    RETOLD_CONSOLE__CERTIFICATE_KEY, or --behind-tls behind a proxy that ends it (RETOLD_CONSOLE__TRUSTED_PROXIES
    names it, so that sign-ins are counted by their own address). Ctrl-C stops it.
    """
    settings = read_settings()
    asked = {
        "host": host,
        "port": port,
        "behind_tls": behind_tls or None,
        "behind_loopback": behind_loopback or None,
        "allowed_hosts": public_host or None,
    }
    page = _listening_as_asked(settings.console, {name: value for name, value in asked.items() if value is not None})
    asyncio.run(_console(options.whereabouts(context), settings, page))


async def _console(where: Whereabouts, settings: Settings, page: ConsoleSettings) -> None:
    # Here and not above: most commands need none of it, and it may not be installed.
    try:
        import retold.composition  # noqa: F401 - what the store needs is missed here, by name, or not at all
        from retold.console.app import console_app
        from retold.console.sending import Sending
        from retold.console.serving import StoreDesk, address, listen, serve
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _NEEDED:
            raise
        raise CommandError("the console is not installed", "pip install 'retold[console,worker]'") from missing

    with until_asked_to_stop():
        async with opened_store(settings) as (store, profiles):
            client = await open_client(
                address=where.address,
                namespace=where.namespace,
                profile=where.profile,
                lazy=True,
                runtime=core_runtime(),
            )
            send = Sending(client, task_queue=settings.worker.lifecycle_queue)
            queue = settings.review
            desk = StoreDesk(store, profiles, send, bound=queue.backlog_bound, owner=queue.owner)
            with listen(page) as listening:
                _say(f"reviews: {address(page, listening)} (Ctrl-C here stops the page)")
                ring = key_ring_from_environment()
                codec = None if ring is None else EncryptingCodec(ring)
                await serve(console_app(desk, store.console_sessions, page, codec=codec), page, listening)
    _say("stopped")


def _listening_as_asked(configured: ConsoleSettings, asked: dict[str, Any]) -> ConsoleSettings:
    """The settings with what the command line says in place of theirs.

    Raises:
        CommandError: the page would be in the open.
    """
    try:
        return ConsoleSettings.model_validate({**configured.model_dump(), **asked})
    except ValidationError as error:
        wrong = (detail["msg"].removeprefix("Value error, ") for detail in error.errors(include_input=False))
        raise CommandError("the page cannot listen there", "; ".join(wrong)) from error


def _say(line: str) -> None:
    console = out()
    console.print(readable(console, line), markup=False, soft_wrap=True)
    sys.stdout.flush()

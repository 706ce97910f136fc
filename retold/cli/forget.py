"""`retold forget` and `retold receipts`: forgetting for good, and the proof of it."""

from __future__ import annotations

import asyncio
import getpass
from typing import Annotated

import typer
from rich.console import Console

from retold.cli import options
from retold.cli.failures import CommandError
from retold.cli.output import readable
from retold.cli.running_stack import Whereabouts, connected, read_settings
from retold.cli.terminal import out, write_json
from retold.client import Principal
from retold.contracts.forgetting import ForgetReceipt, ReceiptFilter

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask. It cannot be undone.")]
SomeTenant = Annotated[str | None, typer.Option("--tenant", help="Only of this tenant.")]
SomeUser = Annotated[str | None, typer.Option("--user", help="Only of this user.")]


def forget_record(
    context: typer.Context,
    record_id: Annotated[str, typer.Argument(metavar="ID", help="The record's id, or the key its host gave it.")],
    tenant: options.Tenant,
    user: options.User,
    reason: options.Why,
    yes: Yes = False,
    actor: options.Actor = None,
    as_json: options.AsJson = False,
) -> None:
    """Forget one record: its copies, what it replaced, the turn it was said in, answers made with it."""
    principal = options.principal(tenant, user)
    _sure(f"forget record {record_id} of {tenant}/{user} for good", yes)
    _report(asyncio.run(_record(options.whereabouts(context), principal, record_id, _by(actor), reason)), as_json)


def forget_session(
    context: typer.Context,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")],
    tenant: options.Tenant,
    user: options.User,
    reason: options.Why,
    yes: Yes = False,
    actor: options.Actor = None,
    as_json: options.AsJson = False,
) -> None:
    """Forget what was said in a session so far, and the records that rest on nothing else."""
    principal = options.principal(tenant, user)
    _sure(f"forget session {session} of {tenant}/{user} for good", yes)
    _report(asyncio.run(_session(options.whereabouts(context), principal, session, _by(actor), reason)), as_json)


def forget_principal(
    context: typer.Context,
    tenant: options.Tenant,
    user: options.User,
    reason: options.Why,
    yes: Yes = False,
    actor: options.Actor = None,
    as_json: options.AsJson = False,
) -> None:
    """Forget everything of one user up to now. What they say later is kept."""
    principal = options.principal(tenant, user)
    _sure(f"forget everything of {tenant}/{user} for good", yes)
    _report(asyncio.run(_everything(options.whereabouts(context), principal, _by(actor), reason)), as_json)


def list_receipts(
    context: typer.Context,
    tenant: SomeTenant = None,
    user: SomeUser = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many, the newest first.")] = 20,
    as_json: options.AsJson = False,
) -> None:
    """List what was forgotten: whose, when, by whom, how much. Never what it was."""
    wanted = ReceiptFilter(tenant=tenant, user=user, limit=limit)
    receipts = asyncio.run(_list(options.whereabouts(context), wanted))
    if as_json:
        write_json([receipt.model_dump(mode="json") for receipt in receipts])
        return
    console = out()
    for receipt in receipts:
        removed = sum(surface.removed for surface in receipt.surfaces)
        _say(
            console,
            f"{receipt.done_at:%Y-%m-%d %H:%M:%S}  {receipt.receipt_id}  {_what(receipt)}  removed {removed}"
            f"  by {receipt.actor}: {receipt.reason}",
        )
    if not receipts:
        _say(console, "no receipts")


def show_receipt(
    context: typer.Context,
    receipt_id: Annotated[str, typer.Argument(metavar="ID", help="The receipt's id.")],
    as_json: options.AsJson = False,
) -> None:
    """Show one receipt: what was removed from where, what was looked for afterwards, and what is out of reach."""
    _report(asyncio.run(_show(options.whereabouts(context), receipt_id)), as_json)


async def _record(where: Whereabouts, principal: Principal, record_id: str, actor: str, reason: str) -> ForgetReceipt:
    async with connected(where, read_settings()) as stack:
        await stack.expect_worker(stack.operations_queue)
        return await stack.host.forget_record(principal, record_id, actor=actor, reason=reason)


async def _session(where: Whereabouts, principal: Principal, session: str, actor: str, reason: str) -> ForgetReceipt:
    async with connected(where, read_settings()) as stack:
        await stack.expect_worker(stack.operations_queue)
        return await stack.host.forget_session(principal, session, actor=actor, reason=reason)


async def _everything(where: Whereabouts, principal: Principal, actor: str, reason: str) -> ForgetReceipt:
    async with connected(where, read_settings()) as stack:
        await stack.expect_worker(stack.operations_queue)
        return await stack.host.forget_principal(principal, actor=actor, reason=reason)


async def _list(where: Whereabouts, wanted: ReceiptFilter) -> tuple[ForgetReceipt, ...]:
    async with connected(where, read_settings()) as stack:
        return await stack.receipts(wanted)


async def _show(where: Whereabouts, receipt_id: str) -> ForgetReceipt:
    async with connected(where, read_settings()) as stack:
        return await stack.receipt(receipt_id)


def _by(actor: str | None) -> str:
    return actor or getpass.getuser()


def _sure(what: str, yes: bool) -> None:
    """
    Raises:
        CommandError: nobody said yes.
    """
    try:
        sure = yes or typer.confirm(f"{what}? This cannot be undone", err=True)
    except typer.Abort:  # nobody is there to answer
        sure = False
    if not sure:
        raise CommandError("nothing was forgotten", "--yes answers for you")


def _report(receipt: ForgetReceipt, as_json: bool) -> None:
    if as_json:
        write_json(receipt)
        return
    console = out()
    _say(console, f"forgotten: {_what(receipt)}, up to {receipt.forgotten_at:%Y-%m-%d %H:%M:%S} UTC")
    _say(console, f"receipt {receipt.receipt_id}, by {receipt.actor}: {receipt.reason}")
    _say(console, f"  {'surface':<18} {'removed':>8} {'looked for':>11} {'left':>5}")
    for surface in receipt.surfaces:
        counts = f"{surface.removed:>8,} {surface.read_back:>11,} {surface.left:>5,}"
        _say(console, f"  {surface.surface.value.replace('_', ' '):<18} {counts}")
    if receipt.found_nothing:
        _say(console, "Nothing of it was there: forgotten before, never stored, or another name was meant.")
    for archive in receipt.archives:
        until = "nobody said for how long" if archive.kept_until is None else f"until {archive.kept_until:%Y-%m-%d}"
        _say(console, f"Out of reach: {archive.name}, kept {archive.note or until}")


def _what(receipt: ForgetReceipt) -> str:
    whose = f"{receipt.principal.tenant}/{receipt.principal.user}"
    return f"everything of {whose}" if receipt.subject_id is None else f"{receipt.what} {receipt.subject_id} of {whose}"


def _say(console: Console, line: str) -> None:
    console.print(readable(console, line), markup=False, soft_wrap=True)

"""Options that several commands share, each said once."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import ValidationError

from retold.cli.running_stack import Whereabouts
from retold.client import InvalidTurnError
from retold.contracts._base import without_secret
from retold.contracts.refusal import refusal_text
from retold.contracts.turn import Principal

Tenant = Annotated[str, typer.Option("--tenant", help="Whose memory: the tenant, matched exactly.")]
User = Annotated[str, typer.Option("--user", help="Whose memory: the user, matched exactly.")]
Session = Annotated[str, typer.Option("--session", help="The conversation.")]
Actor = Annotated[str | None, typer.Option("--actor", help="Who does this, for the audit log. Default: your login.")]


def _kept(reason: str) -> str:
    try:
        return without_secret(reason)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Why = Annotated[str, typer.Option("--reason", help="Why, for the audit log.", callback=_kept)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program, and nothing else.")]


def whereabouts(context: typer.Context) -> Whereabouts:
    """What the options before the command say about Temporal."""
    found = context.find_object(Whereabouts)
    return Whereabouts() if found is None else found


def principal(tenant: str, user: str) -> Principal:
    """The principal named on the command line.

    Raises:
        InvalidTurnError: a name is blank, too long or not valid text.
    """
    try:
        return Principal(tenant=tenant, user=user)
    except ValidationError as error:
        raise InvalidTurnError(refusal_text(error)) from error

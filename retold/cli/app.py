"""Every command of `retold` on one page, the options before them, and what an error looks like."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer
from typer.main import get_command

from retold.cli.activation import extract, show_activation
from retold.cli.console import console
from retold.cli.decisions import list_decisions, replay_decision, show_decision
from retold.cli.demo import demo
from retold.cli.demo_real import demo_real
from retold.cli.deployment import (
    check_config,
    check_temporal,
    codec_keys_in_use,
    migrate_store,
    new_codec_key,
    set_up_temporal,
)
from retold.cli.dev import dev
from retold.cli.doctor import doctor
from retold.cli.failures import sentence
from retold.cli.forget import forget_principal, forget_record, forget_session, list_receipts, show_receipt
from retold.cli.importing import import_file
from retold.cli.index import abandon, generations, rebuild, reconcile
from retold.cli.records import (
    contradict,
    correct,
    delete_record,
    end_session,
    expire,
    mark_ambient,
    remember,
    restore,
    supersede,
)
from retold.cli.records_reading import list_records, show_history, show_record
from retold.cli.replay_gate import replay_gate
from retold.cli.review import (
    add_reviewer,
    approve,
    disable_reviewer,
    keep,
    list_reviewers,
    list_reviews,
    reject,
    setup,
    show_review,
    stats,
)
from retold.cli.running_stack import Whereabouts
from retold.cli.schema import schema
from retold.cli.switch import list_switches, switch_off, switch_on
from retold.cli.terminal import complain, let_go_of_stdout, out
from retold.cli.trace import show_trace
from retold.cli.turn import turn

INTERRUPTED = 130
TRACEBACK = "RETOLD_TRACEBACK"

app = typer.Typer(name="retold", no_args_is_help=True, add_completion=False, rich_markup_mode=None)
decisions = typer.Typer(no_args_is_help=True, help="What became of turns, and why.")
records = typer.Typer(
    no_args_is_help=True, help="What is remembered: look at it and change it; each change is audited."
)
index = typer.Typer(no_args_is_help=True, help="The search index: proved, repaired, built anew.")
temporal = typer.Typer(no_args_is_help=True, help="What Temporal needs before workers start.")
config = typer.Typer(no_args_is_help=True, help="The settings of this environment.")
codec = typer.Typer(no_args_is_help=True, help="Keys that payloads are encrypted with.")
switches = typer.Typer(no_args_is_help=True, help="Take a stage out of every turn's path, and put it back.")
review = typer.Typer(
    no_args_is_help=True,
    help="Proposed standing preferences that wait for a person. Exit code 3: the decision was refused.",
)
reviewers = typer.Typer(no_args_is_help=True, help="The people who decide reviews.")
forget = typer.Typer(no_args_is_help=True, help="Forget for good, with a receipt.")
receipts = typer.Typer(no_args_is_help=True, help="What was forgotten, and what was looked for afterwards.")
sessions = typer.Typer(no_args_is_help=True, help="Conversations.")


def _version(wanted: bool) -> None:
    if wanted:
        out().print(version("retold"))
        raise typer.Exit


@app.callback()
def _stack(
    context: typer.Context,
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Temporal's address; else TEMPORAL_ADDRESS or the profile.")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option(help="Temporal's namespace; else TEMPORAL_NAMESPACE or the profile.")
    ] = None,
    profile: Annotated[str | None, typer.Option(help="A profile of temporalio's configuration file.")] = None,
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Decides, on every turn of an AI assistant, whether a stored memory will make this answer better.

    `retold dev` starts everything on this machine. The other commands talk to a running stack through Temporal.
    """
    context.obj = Whereabouts(address=address, namespace=namespace, profile=profile)


app.command("dev")(dev)
app.command("import")(import_file)
app.command("turn")(turn)
decisions.command("list")(list_decisions)
decisions.command("show")(show_decision)
decisions.command("replay")(replay_decision)
app.add_typer(decisions, name="decisions")
sessions.command("end")(end_session)
sessions.command("extract")(extract)
app.add_typer(sessions, name="sessions")
records.command("remember")(remember)
records.command("list")(list_records)
records.command("show")(show_record)
records.command("history")(show_history)
records.command("supersede")(supersede)
records.command("contradict")(contradict)
records.command("correct")(correct)
records.command("expire")(expire)
records.command("restore")(restore)
records.command("delete")(delete_record)
records.command("mark-ambient")(mark_ambient)
records.command("activation")(show_activation)
app.add_typer(records, name="records")
forget.command("record")(forget_record)
forget.command("session")(forget_session)
forget.command("principal")(forget_principal)
app.add_typer(forget, name="forget")
receipts.command("list")(list_receipts)
receipts.command("show")(show_receipt)
app.add_typer(receipts, name="receipts")
index.command("reconcile")(reconcile)
index.command("rebuild")(rebuild)
index.command("generations")(generations)
index.command("abandon")(abandon)
app.add_typer(index, name="index")
app.command("reconcile")(reconcile)
app.command("rebuild-index")(rebuild)
app.command("trace")(show_trace)
app.command("migrate")(migrate_store)
temporal.command("set-up")(set_up_temporal)
temporal.command("check")(check_temporal)
app.add_typer(temporal, name="temporal")
config.command("check")(check_config)
app.add_typer(config, name="config")
codec.command("new-key")(new_codec_key)
codec.command("keys-in-use")(codec_keys_in_use)
app.add_typer(codec, name="codec")
app.command("replay-gate")(replay_gate)
switches.command("off")(switch_off)
switches.command("on")(switch_on)
switches.command("list")(list_switches)
app.add_typer(switches, name="switch")
app.command("console")(console)
review.command("list")(list_reviews)
review.command("show")(show_review)
review.command("approve")(approve)
review.command("keep")(keep)
review.command("reject")(reject)
review.command("stats")(stats)
review.command("setup")(setup)
app.add_typer(review, name="review")
reviewers.command("add")(add_reviewer)
reviewers.command("list")(list_reviewers)
reviewers.command("disable")(disable_reviewer)
app.add_typer(reviewers, name="reviewers")
app.command("doctor")(doctor)
app.command("schema")(schema)
app.command("demo")(demo)
app.command("demo-real")(demo_real)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. An error is one sentence on stderr."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        # Not `app(...)`: that installs an exception hook and marks exceptions that cannot be marked.
        get_command(app)(args=arguments, prog_name="retold")
    except SystemExit as end:
        return _flushed(end.code if isinstance(end.code, int) else 1)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if (said := sentence(error)) is None:
            if os.environ.get(TRACEBACK):
                raise
            said = f"this is a mistake in retold: {type(error).__name__}: {error} ({TRACEBACK}=1 shows where)"
        complain(said)
        return _flushed(1)
    return _flushed(0)


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        let_go_of_stdout()
    return code

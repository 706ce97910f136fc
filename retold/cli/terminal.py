"""Where the command writes: results to stdout, everything about them to stderr, JSON with nothing around it."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pydantic import TypeAdapter
from rich.console import Console

from retold.cli.output import readable


def out() -> Console:
    """For results. Rich leaves colour and movement out by itself when this is not a terminal."""
    return Console(file=sys.stdout, highlight=False)


def err() -> Console:
    """For progress, hints and refusals."""
    return Console(file=sys.stderr, highlight=False)


def watched() -> bool:
    """Whether somebody looks at both streams, so that a moving progress bar is of use and in nobody's way."""
    return sys.stdout.isatty() and sys.stderr.isatty()


def complain(message: str) -> None:
    """One refusal or failure on stderr, in one line, whatever characters found their way into it."""
    line = " ".join(readable(err(), message).split())
    sys.stderr.write(f"retold: {line}\n")
    sys.stderr.flush()


def write_text(text: str) -> None:
    """A result as it is, unless a terminal would act on it: then its control characters are spelled out."""
    console = out()
    shown = (
        readable(console, text)
        if sys.stdout.isatty()
        else text.encode(console.encoding, "replace").decode(console.encoding)
    )
    sys.stdout.write(shown + "\n")


def write_json(value: Any) -> None:
    """Any contract, or plain value of contracts, as one JSON document."""
    plain = TypeAdapter(Any).dump_python(value, mode="json")
    knows_unicode = out().encoding.replace("-", "").casefold() == "utf8"
    sys.stdout.write(json.dumps(plain, indent=2, ensure_ascii=not knows_unicode, allow_nan=False) + "\n")


def let_go_of_stdout() -> None:
    """Whoever read us (`| head`) has had enough: what is still buffered must not raise at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)

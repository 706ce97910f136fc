"""The operator's command: `retold`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from retold.ending import end_process

_NEEDED = ("typer", "rich")


def command() -> NoReturn:
    """The command as a process of its own: `main` with the arguments of the process, whose end it is."""
    end_process(main())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments`, or with those of the process.

    Returns:
        The exit code: 0 done, 1 refused, failed or found wrong, 2 used wrongly, 130 interrupted.
    """
    try:
        from retold.cli.app import run
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _NEEDED:
            raise
        sys.stderr.write("retold: only the client is installed; the command needs: pip install 'retold[worker]'\n")
        return 1
    return run(arguments)

"""One embedded stack a data directory: two would write the same databases."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from retold.cli.failures import CommandError

LOCK_FILE = "retold.lock"


@contextmanager
def holding(data_dir: Path) -> Iterator[None]:
    """Hold the directory (made if need be) until the block ends, or the process does, however it ends.

    Raises:
        CommandError: another process holds it, or it cannot be written.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        lock = os.open(data_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise CommandError(
            f"the data directory {data_dir} cannot be used ({error.strerror}): set RETOLD_DATA_DIR"
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CommandError(
                f"another retold{_named(os.read(lock, 4096))} uses the data directory {data_dir}: "
                "stop it, or set RETOLD_DATA_DIR to another directory"
            ) from error
        os.ftruncate(lock, 0)
        os.write(lock, json.dumps({"pid": os.getpid()}).encode())
        yield
    finally:
        os.close(lock)


def _named(holder: bytes) -> str:
    """The holder's process id, if it has come to writing it."""
    try:
        return f" (process {int(json.loads(holder)['pid'])})"
    except (ValueError, KeyError, TypeError):
        return ""

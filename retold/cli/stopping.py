"""Ending a command that runs until it is told to stop, without leaving a process or a folder behind."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def until_asked_to_stop() -> Iterator[None]:
    """Ctrl-C, TERM and a closed terminal end the block from within, wherever it is, start-up included."""
    loop, serving = asyncio.get_running_loop(), asyncio.current_task()
    assert serving is not None
    asked = False

    def stop() -> None:
        nonlocal asked
        asked = True
        serving.cancel()

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for name in signals:
        loop.add_signal_handler(name, stop)
    try:
        yield
    except asyncio.CancelledError:
        if not asked:
            raise
    finally:
        for name in signals:
            loop.remove_signal_handler(name)

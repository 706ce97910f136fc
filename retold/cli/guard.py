"""Stands between the embedded stack and the Temporal server, so that the server never outlives the stack.

    python -I -S guard.py GRACE_SECONDS COMMAND...

Starts the command and ends it when its own stdin ends: by TERM, after the grace by KILL. A process that dies in
whatever way, kill -9 included, closes its end of that pipe; no signal has to be delivered and no handler to run.
Ends with the command's exit code if the command ends first. Standard library only, Retold is not imported.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading


def guard(command: list[str], grace_s: float) -> int:
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    for asked in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(asked, lambda *_: server.terminate())
    threading.Thread(target=lambda: os._exit(server.wait() & 0xFF), daemon=True).start()
    while sys.stdin.buffer.read(1024):
        pass
    server.terminate()
    try:
        return server.wait(grace_s)
    except subprocess.TimeoutExpired:
        server.kill()
        return server.wait()


if __name__ == "__main__":
    sys.exit(guard(sys.argv[2:], float(sys.argv[1])))

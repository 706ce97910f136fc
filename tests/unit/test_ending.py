"""A process that used Temporal's SDK ends with its own exit code, whatever the threads it leaves behind are at."""

from __future__ import annotations

import subprocess
import sys
import textwrap

LEAVES_A_THREAD_BEHIND = """
    import atexit, threading
    from retold.ending import end_process

    threading.Thread(target=threading.Event().wait).start()  # the interpreter's own end would wait for it for ever
    atexit.register(print, "at exit")
    print("done")
    end_process(7)
"""


def test_a_thread_left_behind_changes_neither_the_exit_code_nor_what_was_said() -> None:
    command = [sys.executable, "-c", textwrap.dedent(LEAVES_A_THREAD_BEHIND)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("done\nat exit\n", "", 7)

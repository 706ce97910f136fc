"""The last thing a process that used Temporal's SDK does."""

from __future__ import annotations

import atexit
import os
import sys
from typing import NoReturn


def end_process(code: int) -> NoReturn:
    """End with `code` (0 to 255), after everything registered to run at exit and with nothing left unsaid.

    Not `sys.exit`: a thread of the SDK's core may still be on its way out of a callback, and one that lets go of an
    interpreter that is finalising aborts the whole process. All work was done, and the exit code says -6
    (https://github.com/temporalio/sdk-python/issues/300). So the interpreter is never finalised, and no thread waited
    for: whoever started one that must finish has waited already.
    """
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)

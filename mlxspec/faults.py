"""What to do about an exception that nobody foresaw: details to the log file, a sentence to the user."""

from __future__ import annotations

import os
import time
import traceback

from mlxspec.errors import EngineError
from mlxspec.places import Places

MOST_LOG_BYTES = 1 << 20


def report_fault(error: BaseException, where: Places) -> EngineError:
    """Append the traceback to the log (mode 0600) and return the error to show instead of it."""
    what = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    message = f"Something inside mlxspec failed ({what})."
    try:
        where.log.parent.mkdir(parents=True, exist_ok=True)
        grown = where.log.exists() and where.log.stat().st_size > MOST_LOG_BYTES
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if grown else os.O_APPEND)
        with os.fdopen(os.open(where.log, flags, 0o600), "w", encoding="utf-8") as log:
            log.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
            log.writelines(traceback.format_exception(error))
    except OSError:
        return EngineError(message, hint="No log could be written; please report what you did.")
    return EngineError(message, hint=f"The details are in {where.log}; please report them.")

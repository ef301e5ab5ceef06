"""Log messages, for programs that configure logging.

Many come in the middle of a change, which must not end because a handler, filter or formatter of
the program raises something: that goes to standard error, as errors do that handlers report to
logging itself, and is lost where standard error takes nothing.
"""

from __future__ import annotations

import logging
import sys
import traceback
from contextlib import suppress
from typing import Any


class _Messages(logging.LoggerAdapter[logging.Logger]):
    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        try:
            super().log(level, msg, *args, stacklevel=2, **kwargs)  # not from here
        except Exception:  # noqa: BLE001 - what is not Octavo's raises anything
            if logging.raiseExceptions and sys.stderr is not None:
                with suppress(Exception):  # stderr is full, closed, or one that raises anything
                    traceback.print_exc()


def messages_of(name: str) -> logging.LoggerAdapter[logging.Logger]:
    """The logger of this name, by which a message never raises anything."""
    return _Messages(logging.getLogger(name), None)

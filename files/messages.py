"""Messages to whoever configures logging.

Many come in the middle of a change, where what a handler, filter or formatter of the program raises
must end nothing: it goes to standard error, as logging itself does with what handlers tell it of,
and is lost where that takes nothing.
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
                with suppress(Exception):  # full, closed, or a program's own that raises anything
                    traceback.print_exc()


def messages_of(name: str) -> logging.LoggerAdapter[logging.Logger]:
    """What says something as the logger of this name."""
    return _Messages(logging.getLogger(name), None)

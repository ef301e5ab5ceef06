"""NumPy, loaded when it is first used: a process that opens a store, puts and gets a little and
leaves never waits for it (60 ms, a third of what opening the first store costs).

    from octavo.files.arrays import np, npt

``np.zeros`` costs what an attribute costs. Names of types at the top of a module are written in
quotes, or they would load it at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from octavo.files.unbroken import unbroken

__all__ = ["np", "npt"]


class _Later:
    """Stands for a module; takes each attribute over when it is first asked for."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, attribute: str) -> Any:
        with unbroken:  # NumPy that a Ctrl-C left half loaded stays so as long as the process
            module = import_module(self.__name__)
        found = getattr(module, attribute)
        self.__dict__[attribute] = found
        return found


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    np = _Later("numpy")
    npt = _Later("numpy.typing")

"""NumPy, loaded when it is first used: a process that opens a store, puts and gets a little and
leaves never waits for it (60 ms, a third of what opening the first store costs).

    from octavo.files.arrays import np, npt

``np.zeros`` costs what an attribute costs. Names of types at the top of a module are written in
quotes, or they would load it at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.files.later import Later

__all__ = ["np", "npt"]


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    np = Later("numpy")
    npt = Later("numpy.typing")

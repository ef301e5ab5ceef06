"""NumPy, loaded when it is first used: a process that opens a store, puts and gets a little and
leaves never waits for it (60 ms, a third of what opening the first store costs).

    from octavo.files.kernels.arrays import np, npt

``np.zeros`` costs what an attribute costs. Names of types at the top of a module are written in
quotes, or they would load it at once; so would those of a dataclass's fields from Python 3.15 on,
and these have the names below.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from octavo.files.later import Later

__all__ = ["I64", "U8", "U32", "U64", "Bools", "distinct", "np", "npt"]

Bools: TypeAlias = "npt.NDArray[np.bool_]"
I64: TypeAlias = "npt.NDArray[np.int64]"
U8: TypeAlias = "npt.NDArray[np.uint8]"
U32: TypeAlias = "npt.NDArray[np.uint32]"
U64: TypeAlias = "npt.NDArray[np.uint64]"

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
_MOST_BLAS_THREADS = 64


@contextlib.contextmanager
def _threads_that_can_be() -> Iterator[None]:
    """Within it OpenBLAS, which comes with NumPy, begins no threads as it is loaded if there are
    none to be had, unless the program has told it how many. By itself it begins one for each
    processor; where it cannot, it raises SIGINT, a Ctrl-C that nobody pressed, and waits for those
    threads later."""
    if "numpy" in sys.modules or _BLAS_THREADS in os.environ or _can_be_begun():
        yield
        return
    os.environ[_BLAS_THREADS] = "1"
    try:
        yield
    finally:
        os.environ.pop(_BLAS_THREADS, None)


def _can_be_begun() -> bool:
    """Whether there are as many threads to be had as OpenBLAS would begin. 0.1 ms each."""
    end, begun = threading.Event(), []
    try:
        for _ in range(min(os.cpu_count() or 1, _MOST_BLAS_THREADS) - 1):
            # A daemon: without memory neither it nor its end may be heard of.
            thread = threading.Thread(target=end.wait, daemon=True)
            thread.start()
            begun.append(thread)
    except RuntimeError:
        return False
    finally:
        end.set()
        for thread in begun:
            thread.join()
    return True


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    np = Later("numpy", _threads_that_can_be)
    npt = Later("numpy.typing", _threads_that_can_be)


def distinct(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Each of the numbers once, ascending. For this alone np.unique is not asked: it loads a part
    of NumPy at its first call, where a Ctrl-C or a fork may come (see later.py). It does not do so
    if more is asked of it."""
    ordered = np.sort(numbers)
    new = np.ones(len(ordered), dtype=np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    return ordered[new]

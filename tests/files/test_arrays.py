"""NumPy is loaded whole, whenever a Ctrl-C comes: half loaded it would stay so."""

from __future__ import annotations

import subprocess
import sys

_INTERRUPTED = """
import signal, sys
from octavo.files.arrays import np

class Comes:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy.lib.mixins":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Comes())
try:
    np.zeros(3)
except KeyboardInterrupt:
    print("interrupted")
print(np.unique(np.zeros(3))[0])
"""


def test_numpy_is_there_after_an_interrupt_as_it_was_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.split() == ["interrupted", "0.0"], done.stderr

"""A program that embeds Python may have its modules imported by another thread than its first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import _thread, sys, traceback
done = _thread.allocate_lock()
done.acquire()

def work():
    try:
        import octavo
        with octavo.open(sys.argv[1], worker=False, push_rows=64) as store:
            store.put_many((str(n), "v") for n in range(200))
            store.compact()
            assert len(store) == 200
            print("well")
    except BaseException:
        traceback.print_exc()
    done.release()

assert "threading" not in sys.modules
_thread.start_new_thread(work, ())
done.acquire()
"""


def test_where_the_first_thread_by_threading_can_set_no_handlers_a_store_opens(
    tmp_path: Path,
) -> None:
    words = [sys.executable, "-c", PROGRAM, str(tmp_path / "s")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout == "well\n", done.stderr

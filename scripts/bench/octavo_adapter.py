"""Octavo as a store of a key-value benchmark with this protocol:

``open(path, durable)``, ``put``, ``put_many``, ``delete``, ``get``, ``get_many``, ``head``,
``iter_keys(lo, hi)``, ``iter_items(lo, hi)``, ``snapshot()``, ``backup(path)``, ``compact()``,
``close()``; keys and values are bytes, ranges are half-open, None is unbounded. A benchmark that
has ``Adapter`` in a module named ``adapters`` gets a subclass of that:

    python kvbench.py --stores scripts/bench/octavo_adapter.py:OctavoStore,rocksdb,rawlog
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import octavo

    class Adapter:
        """What a benchmark expects to inherit from."""
else:
    try:
        from adapters import Adapter
    except ImportError:

        class Adapter:
            pass


READ_CACHE_BYTES = 128 << 20
"""What every store with a cache of its own gets."""


class OctavoStore(Adapter):
    """Relaxed: handed to the operating system at each put. Durable: ``sync="always"``."""

    name = "octavo"
    floor = False
    persistent = True
    max_n: int | None = None

    put: Callable[[bytes, bytes], int]
    put_many: Callable[[Iterable[tuple[bytes, bytes]]], int]
    delete: Callable[[bytes], int]
    get: Callable[[bytes], bytes | None]
    get_many: Callable[[Iterable[bytes]], list[bytes | None]]
    head: Callable[[bytes], Any]

    @classmethod
    def available(cls) -> None:
        """Raises ImportError where Octavo is not installed."""
        import octavo  # noqa: F401

    def open(self, path: str, durable: bool = False) -> None:
        """``path``: a directory that is empty or holds a store."""
        import octavo

        store = octavo.open(
            path, sync="always" if durable else "none", read_cache_bytes=READ_CACHE_BYTES
        )
        self._store: octavo.Store = store
        # Bound methods, so that what is timed is the store and not this class.
        self.put = store.put
        self.put_many = store.put_many
        self.delete = store.delete
        self.get = store.get
        self.get_many = store.get_many
        self.head = store.head

    def iter_keys(self, lo: bytes | None = None, hi: bytes | None = None) -> Iterator[bytes]:
        """Keys in [lo, hi), ascending."""
        return self._store.keys(lo, hi)

    def iter_items(
        self, lo: bytes | None = None, hi: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) in [lo, hi), ascending."""
        return self._store.items(lo, hi)

    def snapshot(self) -> _Snapshot:
        """The store as it is now."""
        return _Snapshot(self._store.snapshot())

    def backup(self, path: str) -> None:
        """A consistent copy."""
        self._store.backup(path)

    def compact(self) -> None:
        """Reclaim space."""
        self._store.compact()

    def close(self) -> None:
        """Everything durable; the directory can be opened again."""
        for name in ("put", "put_many", "delete", "get", "get_many", "head"):
            self.__dict__.pop(name, None)
        self._store.close()
        del self._store


class _Snapshot:
    def __init__(self, snapshot: octavo.Snapshot) -> None:
        self._snapshot = snapshot
        self.get = snapshot.get

    def iter_items(
        self, lo: bytes | None = None, hi: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        return self._snapshot.items(lo, hi)

    def close(self) -> None:
        self._snapshot.close()

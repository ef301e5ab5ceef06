"""The methods of a live bucket as a mutable mapping, made of gets, puts and deletes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, TypeVar, Unpack, overload

from octavo.arguments import Key, PutOptions, Value
from octavo.files.errors import Conflict
from octavo.reading import Reading
from octavo.type_parameters import Out, Told

D = TypeVar("D")
_NONE = object()


class Mutable(Reading[Out, Told], MutableMapping[Out, Out]):  # type: ignore[misc]  # iterators with ranges, not views
    """The half of a bucket that a dict also has."""

    @abstractmethod
    def put(self, key: Key, value: Value, **options: Unpack[PutOptions]) -> int: ...

    @abstractmethod
    def put_many(
        self, pairs: Iterable[tuple[Key, Value]] | Mapping[Any, Any], *, sync: bool | None = None
    ) -> int: ...

    @abstractmethod
    def delete(self, key: Key, *, sync: bool | None = None, if_sqn: int | None = None) -> int: ...

    @abstractmethod
    def delete_many(self, keys: Iterable[Key], *, sync: bool | None = None) -> int: ...

    def __setitem__(self, key: Key, value: Value) -> None:
        self.put(key, value)

    def __delitem__(self, key: Key) -> None:
        whole = self._whole(key)
        while (head := self._head(whole)) is not None:
            if self._deleted(whole, head.sqn):
                return
        raise KeyError(key)

    @overload
    def pop(self, key: Key) -> Out: ...
    @overload
    def pop(self, key: Key, default: D) -> Out | D: ...
    def pop(self, key: Key, default: Any = _NONE) -> Any:
        """Delete a key and return its value; if it is absent, ``default`` or KeyError. Of several
        calls at the same moment only one gets the value. Raises as ``get`` and ``delete``."""
        whole = self._whole(key)
        while (head := self._head(whole)) is not None:
            value = self.get(whole)
            if self._deleted(whole, head.sqn):
                return value
        if default is _NONE:
            raise KeyError(key)
        return default

    def popitem(self) -> tuple[Out, Out]:
        """Delete the first key and return it with its value; KeyError if there is none. Calls at
        the same moment get different keys. Raises as ``pop``."""
        while (key := next(self.keys(limit=1), None)) is not None:
            value = self.pop(key, None)
            if value is not None:
                return key, value
        raise KeyError("there is no key")

    def _deleted(self, whole: bytes, sqn: int) -> bool:
        """Delete this version of a key; returns False if it is no longer the newest."""
        try:
            self.delete(whole, if_sqn=sqn)
        except Conflict:
            return False
        return True

    def setdefault(self, key: Key, default: Value = b"") -> Out:
        """The value; if the key is absent, ``default`` is put first. Of several calls at the same
        moment one puts, and all get what it put. Raises as ``put``."""
        while True:
            found = self.get(key)
            if found is not None:
                return found
            try:
                self.put(key, default, if_sqn=0)
            except Conflict:
                continue

    def update(  # type: ignore[override]
        self,
        pairs: Mapping[Any, Any] | Iterable[tuple[Key, Value]] = (),
        /,
        **more: Value,
    ) -> None:
        """``put_many`` of ``pairs``, then of the keywords ``more``; raises as that does. Not
        atomic: use a batch for that."""
        given: Any = pairs
        if hasattr(given, "keys") and not isinstance(given, Mapping):
            given = [(key, given[key]) for key in given.keys()]  # noqa: SIM118 - it is no dict
        self.put_many(given)
        self.put_many(more)

    def clear(self) -> None:
        """Delete all keys there are when it begins, as ``delete_many`` does. O(keys)."""
        self.delete_many(self.keys())

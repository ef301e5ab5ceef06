"""Types of objects: which ones a store has, and the user's functions for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from octavo.files.argument_checks import shown
from octavo.files.errors import Misuse
from octavo.files.ledger import ledger_key
from octavo.files.ledger.head import Head
from octavo.files.ledger.index_terms import Term

Strategy = Literal["recovr", "retain", "recalc"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

Terms = Term | Iterable[Term]
IndexOf = Callable[[bytes, bytes], Mapping[Any, Terms]]

FIRST_TAG = 0x80
LAST_TAG = 0xFE
STANDARD = "standard"
NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_OURS = {STANDARD: ledger_key.STANDARD}


@dataclass(frozen=True, slots=True)
class Tag:
    """A type of objects: functions that say what the store keeps beside their values.

    They run in the thread that puts, before anything is written; what they raise reaches the
    caller. Under the strategy "recalc" they run again over every value when the ledger is rebuilt.

    ``metadata``: Given (key, value), returns the metadata of a put without ``metadata``, or with
        an empty one.
    ``index``: Given (key, value), returns the whole set of index entries of a put without
        ``index``. Such a type's puts take no IndexEdit.
    ``head``: Given (key, Head), returns what ``head`` and ``heads`` give for the key instead.
    """

    metadata: Callable[[bytes, bytes], bytes | str] | None = None
    index: IndexOf | None = None
    head: Callable[[bytes, Head], Any] | None = None


class NamedTag(NamedTuple):
    """A type with its name."""

    name: str
    tag: Tag


@dataclass(frozen=True, slots=True)
class Tags:
    """The types of a store by name: their numbers, strategies and functions."""

    numbers: Mapping[str, int] = field(default_factory=lambda: dict(_OURS))
    strategies: Mapping[str, Strategy] = field(default_factory=dict)
    functions: Mapping[str, Tag] = field(default_factory=dict)
    left_recalc: frozenset[str] = frozenset()
    """Types that once were under "recalc": until a rebuild, the ledger has what functions gave."""

    def names(self) -> dict[int, str]:
        """The names of the types, by number."""
        return {number: name for name, number in self.numbers.items()}

    def number(self, name: object) -> int:
        """The number of a type, for reading. Raises Misuse that lists the store's types."""
        found = self.numbers.get(name) if isinstance(name, str) else None
        if found is None:
            raise Misuse(
                f"tag={shown(name)} is no type of this store; known are: "
                f"{', '.join(self.numbers)}; "
                "others are registered by octavo.open(path, tags={name: octavo.Tag(...)})"
            )
        return found

    def functions_of(self, name: str) -> Tag | None:
        """The functions of a type, for writing; None for the standard one. Raises Misuse if this
        opening of the store was not given them, or there is no such type."""
        self.number(name)
        if name == STANDARD:
            return None
        found = self.functions.get(name)
        if found is None:
            raise Misuse(
                f"tag={name!r} was not registered at this opening of the store: without its "
                "functions its objects can be read, not written"
            )
        return found

    def strategy_numbers(self) -> dict[str, Strategy]:
        """Strategies by the numbers of types, as digits, since jobs get them in JSON."""
        return {str(n): self.strategies.get(name, "recovr") for name, n in self.numbers.items()}

    def by_functions(self) -> frozenset[int]:
        """Numbers of the types whose metadata and index entries in the ledger may differ from their
        records', since a rebuild may have worked them out."""
        return frozenset(
            number
            for name, number in self.numbers.items()
            if self.strategies.get(name) == "recalc" or name in self.left_recalc
        )

    def recalculated(self) -> dict[int, NamedTag]:
        """The types whose metadata and index entries a rebuild works out from the values."""
        return {
            number: NamedTag(name, self.functions[name])
            for name, number in self.numbers.items()
            if self.strategies.get(name) == "recalc" and name in self.functions
        }

    def not_recalculated(self) -> list[str]:
        """Names of the types under "recalc" whose functions this opening was not given: a rebuild
        takes what their records say."""
        return [
            name
            for name, strategy in self.strategies.items()
            if strategy == "recalc" and name not in self.functions
        ]

    def persisted(self) -> dict[str, Any]:
        """What the identity file is to say of the types."""
        told: dict[str, Any] = {
            "tags": {name: n for name, n in self.numbers.items() if name not in _OURS},
            "strategies": dict(self.strategies),
        }
        if self.left_recalc:
            told["left_recalc"] = sorted(self.left_recalc)
        return told


def tags_of(persisted: Mapping[str, Any], given: Mapping[str, Tag], chosen: object) -> Tags:
    """The types of a store whose identity file says ``persisted``, opened with the functions
    ``given`` and the strategies ``chosen``. New names get numbers. Raises Misuse."""
    numbers = _OURS | dict(persisted.get("tags", {}))
    _checked(given)
    for name in given:
        if name not in numbers:
            free = max((*numbers.values(), FIRST_TAG - 1)) + 1
            if free > LAST_TAG:
                raise Misuse(f"tags has more than {LAST_TAG - FIRST_TAG + 1} types")
            numbers[name] = free
    strategies: dict[str, Strategy] = dict(persisted.get("strategies", {}))
    left = set(persisted.get("left_recalc", ()))
    if not isinstance(chosen, Mapping):
        raise Misuse(f"strategies={shown(chosen)}: allowed is a mapping of types to strategies")
    for name, strategy in chosen.items():
        if name not in numbers:
            raise Misuse(f"strategies names {name!r}; known types are: {', '.join(numbers)}")
        if strategy not in STRATEGIES:
            raise Misuse(
                f"strategies[{name!r}]={shown(strategy)}: allowed are {', '.join(STRATEGIES)}"
            )
        if strategy == "recalc" and name == STANDARD:
            raise Misuse("strategies['standard']='recalc': the standard type has no functions")
        if strategies.get(name) == "recalc" != strategy:
            left.add(name)
        strategies[name] = strategy
    return Tags(numbers, strategies, dict(given), frozenset(left))


def _checked(given: object) -> None:
    if not isinstance(given, Mapping):
        raise Misuse(f"tags={shown(given)}: allowed is a mapping of names to octavo.Tag")
    for name, tag in given.items():
        if not isinstance(name, str) or not NAME.fullmatch(name) or name in _OURS:
            raise Misuse(
                f"tags names {name!r}: allowed are up to 64 of a-z 0-9 _ . -, beginning with a "
                f"letter, and not {STANDARD!r}"
            )
        if not isinstance(tag, Tag):
            raise Misuse(f"tags[{name!r}]={shown(tag)}: allowed is an octavo.Tag")
        for part in ("metadata", "index", "head"):
            function = getattr(tag, part)
            if function is not None and not callable(function):
                raise Misuse(f"tags[{name!r}].{part}={shown(function)} cannot be called")

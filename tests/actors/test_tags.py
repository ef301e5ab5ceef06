"""Types of objects: their names, numbers and strategies, and what the identity file may say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from whole_store import opened
from xxhash import xxh3_64_intdigest as xxh3

import octavo
from octavo import Tag
from octavo.actors.opening.tags import FIRST_TAG, LAST_TAG, tags_of


def told(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((path / "OCTAVO").read_text())
    return found


def rewrite(path: Path, change: Callable[[dict[str, Any]], object], *, sign: bool = True) -> None:
    """Let the identity file say something else, with the right checksum of it."""
    found = told(path)
    change(found)
    if sign:
        found.pop("checksum", None)
        found["checksum"] = f"{xxh3(json.dumps(found, sort_keys=True).encode()):016x}"
    (path / "OCTAVO").write_text(json.dumps(found))


# ---------------------------------------------------------------- names and numbers


def test_numbers_are_given_in_order_and_stay_the_same_over_reopenings(tmp_path: Path) -> None:
    path = tmp_path / "s"
    opened(path, tags={"b": Tag(), "a": Tag()}).close()
    assert told(path)["tags"] == {"b": FIRST_TAG, "a": FIRST_TAG + 1}
    opened(path, tags={"c": Tag(), "a": Tag()}).close()
    opened(path).close()
    opened(path, tags={"a": Tag(), "d": Tag(), "b": Tag()}).close()
    assert told(path)["tags"] == {name: FIRST_TAG + at for at, name in enumerate("bacd")}


def test_an_opening_that_registers_nothing_new_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    opened(path, tags={"a": Tag()}, strategies={"a": "retain"}).close()
    before = (path / "OCTAVO").stat()
    opened(path, tags={"a": Tag()}, strategies={"a": "retain"}).close()
    opened(path).close()
    assert (path / "OCTAVO").stat().st_ino == before.st_ino


def test_there_is_room_for_so_many_types_and_no_more() -> None:
    most = {f"t{number}": Tag() for number in range(LAST_TAG - FIRST_TAG + 1)}
    found = tags_of({}, most, {})
    assert sorted(found.numbers.values())[1:] == list(range(FIRST_TAG, LAST_TAG + 1))
    with pytest.raises(octavo.Misuse, match="more than 127 types"):
        tags_of(found.persisted(), {"one": Tag()}, {})


@pytest.mark.parametrize(
    ("tags", "what"),
    [
        (5, "tags=5"),
        ([("a", Tag())], "tags="),
        ({5: Tag()}, "tags names 5"),
        ({"": Tag()}, "tags names ''"),
        ({"A": Tag()}, "tags names 'A'"),
        ({"a b": Tag()}, "tags names"),
        ({"a\n": Tag()}, "tags names"),
        ({"1a": Tag()}, "tags names"),
        ({"a" * 65: Tag()}, "tags names"),
        ({"standard": Tag()}, "not 'standard'"),
        ({"a": None}, r"tags\['a'\]=None"),
        ({"a": Tag(metadata=5)}, r"tags\['a'\]\.metadata=5"),  # type: ignore[arg-type]
        ({"a": Tag(index={})}, r"tags\['a'\]\.index"),  # type: ignore[arg-type]
        ({"a": Tag(head="x")}, r"tags\['a'\]\.head"),  # type: ignore[arg-type]
    ],
)
def test_wrong_types_are_refused_by_name(tmp_path: Path, tags: Any, what: str) -> None:
    path = tmp_path / "s"
    with pytest.raises(octavo.Misuse, match=what):
        opened(path, tags=tags)
    assert not path.exists()
    opened(path).close()
    before = (path / "OCTAVO").read_bytes()
    with pytest.raises(octavo.Misuse, match=what):
        opened(path, tags=tags)
    assert (path / "OCTAVO").read_bytes() == before
    opened(path).close()  # and the lock was let go of


@pytest.mark.parametrize(
    ("strategies", "what"),
    [
        (5, "strategies=5"),
        ({"nobody": "retain"}, "strategies names 'nobody'.*standard, a"),
        ({5: "retain"}, "strategies names 5"),
        ({"a": "recover"}, r"strategies\['a'\]='recover'.*recovr, retain, recalc"),
        ({"a": None}, r"strategies\['a'\]=None"),
        ({"a": []}, r"strategies\['a'\]"),
        ({"standard": "recalc"}, "the standard type has no functions"),
    ],
)
def test_wrong_strategies_are_refused_by_name(tmp_path: Path, strategies: Any, what: str) -> None:
    with pytest.raises(octavo.Misuse, match=what):
        opened(tmp_path / "s", tags={"a": Tag()}, strategies=strategies)
    assert not (tmp_path / "s").exists()


def test_strategies_are_kept_and_change_where_an_opening_says_so(tmp_path: Path) -> None:
    path = tmp_path / "s"
    opened(path, tags={"a": Tag()}, strategies={"a": "recalc", "standard": "retain"}).close()
    with opened(path) as store:
        assert store._running.inker_clerk.actor.strategies == {"111": "retain", "128": "recalc"}
    with opened(path, strategies={"a": "recovr"}) as store:
        assert store._running.inker_clerk.actor.strategies == {"111": "retain", "128": "recovr"}
    assert told(path)["strategies"] == {"a": "recovr", "standard": "retain"}


# ---------------------------------------------------------------- what the file may say


@pytest.mark.parametrize(
    "change",
    [
        lambda it: it.update(id=5),
        lambda it: it.update(id="../../etc"),
        lambda it: it.update(id="F" * 32),
        lambda it: it.pop("id"),
        lambda it: it.update(mode="other"),
        lambda it: it.update(mode=["standard"]),
        lambda it: it.pop("mode"),
        lambda it: it.update(lookup="yes"),
        lambda it: it.pop("lookup"),
        lambda it: it.pop("tags"),
        lambda it: it.update(tags=[]),
        lambda it: it.update(tags=None),
        lambda it: it.update(tags={"a": "128"}),
        lambda it: it.update(tags={"a": 128.0}),
        lambda it: it.update(tags={"a": True}),
        lambda it: it.update(tags={"a": []}),
        lambda it: it.update(tags={"a": 0x7F}),
        lambda it: it.update(tags={"a": 0xFF}),
        lambda it: it.update(tags={"a": 0x6F}),
        lambda it: it.update(tags={"a": 128, "b": 128}),
        lambda it: it.update(tags={"standard": 128}),
        lambda it: it.update(tags={"": 128}),
        lambda it: it.update(tags={"A B": 128}),
        lambda it: it.update(tags={"x" * 65: 128}),
        lambda it: it.pop("strategies"),
        lambda it: it.update(strategies=[]),
        lambda it: it.update(strategies={"b": "retain"}),
        lambda it: it.update(strategies={"a": "other"}),
        lambda it: it.update(strategies={"a": []}),
    ],
)
def test_what_no_store_says_of_itself_is_refused_by_the_files_name(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    path = tmp_path / "s"
    opened(path, tags={"a": Tag()}).close()
    rewrite(path, change)
    before = (path / "OCTAVO").read_bytes()
    with pytest.raises(octavo.Corruption, match=f"{path}/OCTAVO.*does not describe a store"):
        opened(path)
    assert (path / "OCTAVO").read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"5", b"null", b'"x"', b"\xff\xfe", b"{}", b"[" * 60_000,
        b'{"format":' + b"9" * 5000 + b"}", b" " * (1 << 17),
    ],
)  # fmt: skip
def test_what_is_no_identity_is_refused_by_the_files_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s"
    opened(path).close()
    (path / "OCTAVO").write_bytes(content)
    with pytest.raises(octavo.Corruption, match=f"{path}/OCTAVO"):
        opened(path)


@pytest.mark.parametrize("depth", [100, 500, 900, 990, 2000, 9000])
def test_deep_nesting_is_refused_at_any_depth(tmp_path: Path, depth: int) -> None:
    path = tmp_path / "s"
    opened(path).close()
    deep = '{"format": 1, "checksum": "0", "x": ' + "[" * depth + "]" * depth + "}"
    (path / "OCTAVO").write_text(deep)
    with pytest.raises(octavo.Corruption, match=f"{path}/OCTAVO"):
        opened(path)


@pytest.mark.parametrize("checksum", [None, 5, "", "0" * 16, ["0"]])
def test_a_wrong_checksum_is_refused(tmp_path: Path, checksum: object) -> None:
    path = tmp_path / "s"
    opened(path).close()
    rewrite(path, lambda it: it.update(checksum=checksum), sign=False)
    with pytest.raises(octavo.Corruption, match="checksum"):
        opened(path)


def test_every_flipped_byte_is_found_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s"
    opened(path, tags={"a": Tag()}, strategies={"a": "retain"}).close()
    whole = (path / "OCTAVO").read_bytes()
    said = told(path)
    for at in range(len(whole)):
        for bit in (0x01, 0x20, 0x80):
            flipped = whole[:at] + bytes((whole[at] ^ bit,)) + whole[at + 1 :]
            (path / "OCTAVO").write_bytes(flipped)
            try:
                same = json.loads(flipped) == said
            except ValueError:
                same = False
            if same:
                opened(path).close()
                continue
            with pytest.raises((octavo.Corruption, octavo.UnsupportedFormat)):
                opened(path)


@pytest.mark.parametrize("version", [0, 2, "1", None, [1], 1.5])
def test_another_format_is_refused(tmp_path: Path, version: object) -> None:
    path = tmp_path / "s"
    opened(path).close()
    rewrite(path, lambda it: it.update(format=version))
    with pytest.raises(octavo.UnsupportedFormat, match="this release knows format 1"):
        opened(path)

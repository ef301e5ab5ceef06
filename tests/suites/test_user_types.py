"""User-defined types through several releases of a program: bespoke functions, recalc."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from whole_store import SEED, flush, killed, opened

import octavo
from octavo import Head, Tag


def document(number: int, rng: random.Random) -> bytes:
    return json.dumps(
        {
            "name": f"n{number}",
            "tags": rng.sample(["red", "green", "blue", "grey"], rng.randrange(4)),
            "born": rng.randrange(1900, 2020),
        }
    ).encode()


def by_tags(key: bytes, value: bytes) -> dict[str, Any]:
    return {"tags": json.loads(value)["tags"]}


def by_tags_and_decade(key: bytes, value: bytes) -> dict[str, Any]:
    found = json.loads(value)
    return {"tags": [tag.upper() for tag in found["tags"]], "decade": found["born"] // 10 * 10}


def name_of(key: bytes, value: bytes) -> str:
    return str(json.loads(value)["name"])


def head_of(key: bytes, head: Head) -> dict[str, Any]:
    return {"name": head.metadata.decode(), "bytes": head.size}


FIRST = Tag(metadata=name_of, index=by_tags, head=head_of)
SECOND = Tag(metadata=lambda k, v: name_of(k, v) + "!", index=by_tags_and_decade)


def pairs(model: dict[bytes, bytes], field: str, index: Any) -> list:
    out = []
    for key, value in model.items():
        terms = index(key, value).get(field, ())
        out += [(term, key) for term in ((terms,) if isinstance(terms, int) else terms)]
    return sorted(out)


def check(store: octavo.Store, model: dict[bytes, bytes], index: Any) -> None:
    people = store.bucket("p", tag="person")
    assert dict(people.items()) == model
    for field in ("tags", "decade"):
        assert list(people.index(field).range()) == pairs(model, field, index)


@pytest.mark.parametrize("lost", ["closed", "killed"])
def test_bespoke_recalc_after_the_functions_changed(tmp_path: Path, lost: str) -> None:
    rng, path = random.Random(SEED), tmp_path / "s"
    model: dict[bytes, bytes] = {}
    given = {"tags": {"person": FIRST}, "strategies": {"person": "recalc"}}
    store = opened(path, **given)
    people = store.bucket("p", tag="person")
    for number in range(600):
        key = b"%03d" % rng.randrange(200)
        if rng.random() < 0.2:
            people.delete(key)
            model.pop(key, None)
        else:
            model[key] = document(number, rng)
            people.put(key, model[key])
    check(store, model, by_tags)
    some = next(iter(model))
    assert people.head(some) == {
        "name": json.loads(model[some])["name"], "bytes": len(model[some]),
    }  # fmt: skip
    if lost == "killed":
        path = killed(store, tmp_path / "t")
    store.close()
    # The functions change; without a rebuild, only what is put from now on knows.
    with opened(path, tags={"person": SECOND}) as store:
        people = store.bucket("p", tag="person")
        if lost == "closed":
            assert list(people.index("decade").range()) == []
    shutil.rmtree(path / "ledger")
    with opened(path, tags={"person": SECOND}) as store:
        check(store, model, by_tags_and_decade)
        people = store.bucket("p", tag="person")
        assert people.head(some).metadata.decode() == json.loads(model[some])["name"] + "!"
        for number in range(50):
            model[b"new%d" % number] = document(number, rng)
            people[b"new%d" % number] = model[b"new%d" % number]
        flush(store)
        check(store, model, by_tags_and_decade)
    with opened(path) as store:
        check(store, model, by_tags_and_decade)


def test_what_is_put_after_a_rebuild_has_what_its_put_says(tmp_path: Path) -> None:
    """Only what the rebuild found is worked out from the values."""
    given = {"tags": {"person": FIRST}, "strategies": {"person": "recalc"}}
    with opened(tmp_path / "s", **given) as store:
        store.bucket("p", tag="person").put("a", document(1, random.Random(SEED)))
    shutil.rmtree(tmp_path / "s" / "ledger")
    with opened(tmp_path / "s", tags={"person": SECOND}) as store:
        people = store.bucket("p", tag="person")
        people.put("b", document(2, random.Random(SEED)), metadata=b"told", index={"decade": 7})
        flush(store)
        assert people.head("a").metadata == b"n1!"
        assert people.head("b").metadata == b"told"
        assert list(people.index("decade").range(0, 8)) == [(7, b"b")]


def test_two_types_and_the_standard_one_side_by_side(tmp_path: Path) -> None:
    rng = random.Random(SEED + 2)
    tags = {"a": Tag(index=lambda k, v: {"f": v}), "b": Tag(index=lambda k, v: {"f": len(v)})}
    models: dict[str, dict[bytes, bytes]] = {"standard": {}, "a": {}, "b": {}}
    with opened(tmp_path / "s", tags=tags) as store:
        for number in range(1500):
            name = rng.choice(list(models))
            key = b"%02d" % rng.randrange(60)
            bucket = store.bucket("x", tag=name)
            if rng.random() < 0.2:
                bucket.delete(key)
                models[name].pop(key, None)
            else:
                models[name][key] = rng.randbytes(rng.randrange(5))
                index = {"f": number} if name == "standard" else None
                bucket.put(key, models[name][key], index=index)
        for _ in range(2):
            for name, model in models.items():
                bucket = store.bucket("x", tag=name)
                assert dict(bucket.items()) == model
                found = list(bucket.index("f").range())
                assert sorted(key for _, key in found) == sorted(model)
                if name != "standard":
                    wanted = sorted((v if name == "a" else len(v), k) for k, v in model.items())
                    assert found == wanted
            flush(store)
        assert store.verify().ok

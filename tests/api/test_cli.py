"""The command line: single keys, ranges, buckets."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from cli_runs import document, documents, octavo, output

import octavo as library
from octavo.notation import from_text

ODD = bytes(range(256))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


# ---------------------------------------------------------------- put and get


def test_get_writes_the_very_bytes_that_put_was_given(store: Path) -> None:
    octavo("put", store, "key", "-", stdin=ODD)
    assert output("get", store, "key") == ODD


def test_an_argument_is_its_utf8_bytes(store: Path) -> None:
    octavo("put", store, "clé", "valeur à part")
    assert output("get", store, "clé") == "valeur à part".encode()


def test_put_prints_growing_sequence_numbers(store: Path) -> None:
    first = int(output("put", store, "a", "1"))
    assert int(output("put", store, "b", "2")) > first
    assert document("put", store, "c", "3", "--json")["sqn"] > first + 1


def test_put_takes_a_file(store: Path, tmp_path: Path) -> None:
    (tmp_path / "value").write_bytes(ODD)
    octavo("put", store, "key", "--file", tmp_path / "value")
    assert output("get", store, "key") == ODD


def test_put_and_get_take_hexadecimal(store: Path) -> None:
    octavo("put", store, "--hex-key", "00ff", "--hex", "0a 0b")
    assert output("get", store, "--hex-key", "00FF", "--hex") == b"0a0b\n"


def test_a_file_may_hold_hexadecimal(store: Path, tmp_path: Path) -> None:
    (tmp_path / "value").write_bytes(b"0a 0b\n")
    octavo("put", store, "key", "--file", tmp_path / "value", "--hex")
    assert output("get", store, "key") == b"\n\x0b"


def test_an_empty_value_is_fine(store: Path) -> None:
    octavo("put", store, "key", "")
    assert output("get", store, "key") == b""


@pytest.mark.parametrize(
    "arguments",
    [
        ("key",),
        ("key", "value", "--file", __file__),
        ("-", "-"),
        ("",  "value"),
        ("k" * 70_000, "value"),
        ("key", "value", "--ttl", "-1"),
        ("key", "value", "--if-sqn", "-1"),
        ("key", "value", "--if-sqn", "7"),
        ("key", "value", "--index", "field"),
        ("key", "value", "--index", f"{'f' * 256}=term"),
        ("key", "0g", "--hex"),
        ("key", "value", "--file", "/nonexistent"),
        ("key", "value", "--colour"),
    ],
    ids=lambda arguments: " ".join(arguments)[:30],
)  # fmt: skip
def test_a_wrong_put_ends_with_2_and_makes_no_store(
    store: Path, arguments: tuple[str, ...]
) -> None:
    found = octavo("put", store, *arguments, code=2)
    assert found.stdout == ""
    assert not store.exists()
    assert found.stderr


def test_get_of_an_absent_key_ends_with_1_and_prints_nothing(store: Path) -> None:
    octavo("put", store, "key", "value")
    found = octavo("get", store, "other", code=1)
    assert found.stdout == ""
    assert "other" in found.stderr


def test_get_prints_text_and_json_on_one_line(store: Path) -> None:
    octavo("put", store, "key", "-", stdin=b"a\\b\n\xff")
    assert output("get", store, "key", "--text") == b"a\\\\b\\n\\xff\n"
    assert document("get", store, "key", "--json") == {"key": "key", "value64": "YVxiCv8="}


def test_a_key_can_come_from_standard_input(store: Path) -> None:
    octavo("put", store, "-", "value", stdin=b"one\\ntwo\n")
    assert output("get", store, "-", stdin=b"one\\ntwo") == b"value"
    octavo("get", store, "-", stdin=b"one\ntwo\n", code=2)
    octavo("get", store, "-", stdin=b"bad \\escape\n", code=2)


def test_if_sqn_writes_only_where_it_holds(store: Path) -> None:
    sqn = int(output("put", store, "key", "1", "--if-sqn", 0))
    octavo("put", store, "key", "2", "--if-sqn", 0, code=1)
    assert output("get", store, "key") == b"1"
    octavo("put", store, "key", "3", "--if-sqn", sqn)
    assert output("get", store, "key") == b"3"


# ---------------------------------------------------------------- head


def test_head_shows_size_metadata_and_sequence_number(store: Path) -> None:
    sqn = int(output("put", store, "key", "value", "--metadata", "kind=text"))
    found = document("head", store, "key", "--json")
    assert (found["key"], found["sqn"], found["size"]) == ("key", sqn, 5)
    assert (found["metadata"], found["expires_at"]) == ("kind=text", None)
    assert "5 bytes" in octavo("head", store, "key").stdout
    output("put", store, "key", "v")
    assert "1 byte\n" in octavo("head", store, "key").stdout


def test_head_shows_the_expiry(store: Path) -> None:
    octavo("put", store, "key", "value", "--ttl", 3600)
    found = document("head", store, "key", "--json")
    assert abs(found["expires_at"] - found["written_at"] - 3_600_000) < 600_000


def test_head_of_an_absent_key_ends_with_1(store: Path) -> None:
    octavo("put", store, "key", "value")
    octavo("head", store, "other", code=1)


# ---------------------------------------------------------------- del


def test_del_deletes(store: Path) -> None:
    for key in "abc":
        octavo("put", store, key, "value")
    assert output("del", store, "a", "c") == b"2\n"
    assert output("scan", store, "--keys-only") == b"b\n"


def test_del_of_an_absent_key_ends_with_1_and_writes_nothing(store: Path) -> None:
    sqn = int(output("put", store, "key", "value"))
    found = document("del", store, "other", "--json", code=1)
    assert found == {"deleted": 0, "absent": 1, "last_sqn": sqn}


def test_del_with_if_sqn_deletes_that_version_only(store: Path) -> None:
    old = int(output("put", store, "key", "1"))
    new = int(output("put", store, "key", "2"))
    octavo("del", store, "key", "--if-sqn", old, code=1)
    octavo("del", store, "key", "--if-sqn", new)
    octavo("get", store, "key", code=1)


@pytest.mark.parametrize("hexadecimal", [False, True])
def test_del_reads_the_keys_that_scan_prints(store: Path, hexadecimal: bool) -> None:
    keys = [b"plain", b"tab\there", b"line\nbreak", b"\xff\xfe", b"back\\slash", b"\x00", b" "]
    with library.open(store) as opened:
        opened.put_many((key, b"value") for key in keys)
    printed = output("scan", store, "--keys-only", *(["--hex"] if hexadecimal else []))
    octavo("del", store, "-", *(["--hex-key"] if hexadecimal else []), stdin=printed)
    assert output("scan", store) == b""


# ---------------------------------------------------------------- scan


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of keys 000 to 299, in odd order, with their number as value."""
    path = tmp_path_factory.mktemp("numbered") / "store"
    numbers = list(range(300))
    random.Random(7).shuffle(numbers)
    with library.open(path) as opened:
        opened.put_many((b"%03d" % n, b"%d" % n) for n in numbers)
    return path


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), range(300)),
        (("--prefix", "12"), range(120, 130)),
        (("--start", "290"), range(290, 300)),
        (("--end", "010"), range(10)),
        (("--start", "100", "--end", "105"), range(100, 105)),
        (("--start", "100", "--end", "105", "--reverse"), range(104, 99, -1)),
        (("--prefix", "1", "--start", "198"), range(198, 200)),
        (("--limit", "3"), range(3)),
        (("--limit", "3", "--reverse"), range(299, 296, -1)),
        (("--limit", "0"), range(0)),
        (("--start", "500"), range(0)),
        (("--start", "105", "--end", "100"), range(0)),
        (("--hex-key", "--prefix", "3132"), range(120, 130)),
        (("--match", "^0.7$"), range(7, 100, 10)),
        (("--match", "7$", "--reverse", "--limit", "2"), range(297, 286, -10)),
        (("--since", "2000-01-01", "--limit", "2"), range(2)),
        (("--before", "946684800000"), range(0)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_scan_prints_the_range_in_order(
    numbered: Path, arguments: tuple[str, ...], expected: range
) -> None:
    pairs = [f"{n:03d}\t{n}" for n in expected]
    assert octavo("scan", numbered, *arguments).stdout.splitlines() == pairs
    keys = [f"{n:03d}" for n in expected]
    assert octavo("scan", numbered, "--keys-only", *arguments).stdout.splitlines() == keys
    found = documents("scan", numbered, "--json", *arguments)
    assert found == [{"key": f"{n:03d}", "value": str(n)} for n in expected]


def test_scan_says_how_to_go_on_after_its_limit(numbered: Path) -> None:
    shown: list[str] = []
    more: list[str] = []
    for _ in range(4):
        found = octavo("scan", numbered, "--keys-only", "--limit", "100", *more)
        shown += found.stdout.split()
        more = found.stderr.split()[-2:]
    assert shown == [f"{n:03d}" for n in range(300)]
    assert more == []


@pytest.mark.parametrize("arguments", [("--since", "soon"), ("--match", "("), ("--resume", "x")])
def test_scan_refuses_arguments_that_mean_nothing(numbered: Path, arguments: tuple) -> None:
    assert arguments[0].strip("-") in octavo("scan", numbered, *arguments, code=2).stderr


def test_scan_keeps_any_pair_on_one_line(store: Path) -> None:
    with library.open(store) as opened:
        opened.put(ODD, ODD[::-1])
    line = output("scan", store)
    assert line.count(b"\n") == 1
    key, value = line[:-1].split(b"\t")
    assert (from_text(key), from_text(value)) == (ODD, ODD[::-1])
    assert output("scan", store, "--hex").split() == [ODD.hex().encode(), ODD[::-1].hex().encode()]


def test_scan_prints_nothing_that_steers_a_terminal(store: Path) -> None:
    octavo("put", store, "key", "-", stdin="\x1b[31mred\x07 \x9b ‮".encode())
    assert octavo("scan", store).stdout == "key\t\\x1b[31mred\\x07 \\xc2\\x9b \\xe2\\x80\\xae\n"


# ---------------------------------------------------------------- buckets


def test_buckets_are_apart(store: Path) -> None:
    octavo("put", store, "key", "default")
    octavo("put", store, "key", "in docs", "--bucket", "docs")
    octavo("put", store, "other", "in docs", "-b", "docs")
    assert output("get", store, "key") == b"default"
    assert output("get", store, "key", "-b", "docs") == b"in docs"
    assert output("scan", store, "-b", "docs", "--keys-only") == b"key\nother\n"
    assert output("buckets", store) == b"(default)\ndocs\n"
    assert documents("buckets", store, "--json") == [{"bucket": ""}, {"bucket": "docs"}]


def test_a_bucket_without_keys_is_not_listed(store: Path) -> None:
    octavo("put", store, "key", "value", "-b", "docs")
    octavo("del", store, "key", "-b", "docs")
    assert output("buckets", store) == b""


def test_compact_tells_what_it_did(store: Path) -> None:
    with library.open(store) as opened:
        for number in range(3000):
            opened.put(b"k%d" % (number % 10), b"v" * 500)
    figures = document("compact", store, "--json")
    assert figures["records_dropped"] == 2990
    assert figures["bytes_after"] < figures["bytes_before"] / 50
    assert figures["skipped"] == []
    assert b"0 records dropped" in output("compact", store)


def test_what_is_not_in_the_default_bucket_is_said_to_be_sought_there(tmp_path: Path) -> None:
    store = tmp_path / "store"
    octavo("put", store, "k", "v", "--bucket", "pages")
    for command in ("get", "head", "del"):
        told = octavo(command, store, "k", code=1).stderr
        assert "no key k in the default bucket; others by --bucket" in told
        assert "default" not in octavo(command, store, "x", "-b", "pages", code=1).stderr
    for arguments in (("scan", store), ("index", store, "f"), ("snapshot", store, "--list")):
        assert "nothing found in the default bucket" in octavo(*arguments).stderr
        assert "nothing" not in octavo(*arguments, "-b", "none").stderr
    octavo("put", store, "k", "v")
    assert octavo("scan", store).stderr == ""

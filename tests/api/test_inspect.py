"""The page and the terminal's overview: whole, self-contained, and safe with hostile names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from cli_runs import octavo as run
from cli_runs import output
from whole_store import flush, rolled

import octavo
from octavo.cli.overview import overview
from octavo.pictures import inspection, page_parts
from octavo.pictures.inspection import Block, shown
from octavo.pictures.page import page

HOSTILE = '</title><script>alert("x")</script>\'" onload=alert(1) \x1b[31m\u202e&amp;'
_VOID = {"meta", "br", "link", "img", "hr", "input"}


class Reader(HTMLParser):
    """Reads a page and complains about what is not well-formed."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), f"an attribute twice in {tag}"
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(whole: str) -> Reader:
    reader = Reader()
    reader.feed(whole)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    with octavo.open(tmp_path / "st<b>ore", roll_size_bytes=1 << 20, worker=False) as opened:
        yield opened


def worked(store: octavo.Store) -> octavo.Snapshot:
    """Some of everything that the page shows; the snapshot holds files."""
    bucket = store.bucket(HOSTILE)
    snapshot = store.snapshot()
    for turn in range(5):
        store.put_many((b"%05d" % number, b"%d" % turn * 100) for number in range(2000))
        bucket.put(HOSTILE, b"x", index={HOSTILE[:20]: HOSTILE})
        flush(store)
        if turn == 3:
            snapshot = store.snapshot()
    for number in range(0, 2000, 3):
        store.delete(b"%05d" % number)
    store.get(b"00001")
    store.put(b"a", b"b", sync=True)
    with store.batch() as batch:
        batch.put(HOSTILE, "a", "b")
    rolled(store)
    flush(store)
    store.compact()
    return snapshot


def test_the_page_is_well_formed_and_has_every_picture(store: octavo.Store) -> None:
    with worked(store):
        reader = read(store.inspect_html())
    titles = {text.strip() for text in reader.text}
    for heading in ("Levels of the ledger", "Journal files by garbage", "Background work",
                    "Snapshots", "Latencies", "Reads and writes"):  # fmt: skip
        assert heading in titles
    assert sum(tag == "svg" for tag, _ in reader.seen) > 10
    assert sum(tag == "table" for tag, _ in reader.seen) >= 6


def test_the_page_tells_of_consumers_of_the_change_feed(store: octavo.Store) -> None:
    assert "Consumers" not in store.inspect_html(score=False)
    store.put_many((b"%d" % number, b"x") for number in range(3))
    store.consumer("<mail>", since=0)
    told = "".join(read(store.inspect_html(score=False)).text)
    assert "1 consumer, 3 changes behind at most" in told
    assert "<mail>" in told


def test_a_page_of_an_empty_store_is_well_formed(store: octavo.Store) -> None:
    read(store.inspect_html())


def test_the_page_needs_nothing_from_elsewhere(store: octavo.Store) -> None:
    with worked(store):
        whole = store.inspect_html()
    reader = read(whole)
    for tag, attributes in reader.seen:
        assert tag not in (
            "script",
            "link",
            "img",
            "iframe",
            "object",
            "embed",
            "a",
            "use",
            "image",
        )
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name not in ("src", "href", "xlink:href", "action", "data", "srcset")
            assert "url(" not in (value or "")
    assert "url(" not in whole
    assert "@import" not in whole
    assert not re.search(r"\b(https?|ftp|data|javascript):", whole)


def test_hostile_names_are_text(store: octavo.Store) -> None:
    with worked(store):
        whole = store.inspect_html()
    assert "<script" not in whole
    assert "\x1b" not in whole
    assert "\u202e" not in whole
    reader = read(whole)
    assert any("</title><script>" in text for text in reader.text)
    assert any(store.path in text for text in reader.text)


def test_every_picture_has_a_name_and_says_what_is_to_be_seen(store: octavo.Store) -> None:
    with worked(store):
        reader = read(store.inspect_html())
    ids = [attributes["id"] for _, attributes in reader.seen if "id" in attributes]
    assert len(set(ids)) == len(ids)
    for tag, attributes in reader.seen:
        if tag == "svg":
            assert attributes["role"] == "img"
            named = str(attributes["aria-labelledby"]).split()
            assert len(named) == 2
            assert set(named) <= set(ids)


def test_there_is_a_dark_theme_and_a_phone_s_width(store: octavo.Store) -> None:
    whole = store.inspect_html()
    assert "prefers-color-scheme: dark" in whole
    assert 'name="viewport" content="width=device-width, initial-scale=1"' in whole
    assert "max-width: 44rem" in whole


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_and_shapes_stand_out(theme: int) -> None:
    from octavo.pictures.page_style import CSS

    found = re.findall(r"--(\w+): (#\w{6});", CSS)
    colours = dict(found[len(found) // 2 * theme : len(found) // 2 * (theme + 1)])
    for behind in ("paper", "card"):
        for ink in ("ink", "soft", "blue"):
            assert contrast(colours[ink], colours[behind]) >= 4.5
    for shape in ("blue", "orange", "green", "violet", "gold", "grey"):
        assert contrast(colours[shape], colours["empty"]) >= 3.0, shape


# ---------------------------------------------------------------- large stores


def large(store: octavo.Store, files: int) -> inspection.Inspection:
    """What would be seen of a store of that many files of each kind, with long names."""
    found = inspection.inspect(store._running, score=False)
    key = "k" * 200

    def block(number: int) -> Block:
        name = f"00000001-{number:08x}-0-0000.sst"
        first, last = (f"o\0\0{key}{number:09d}{end}".encode() for end in ("a", "z"))
        return Block(name, 1000, 10_000 + number, 10, first, last)

    stats: dict[str, Any] = dict(found.stats)
    stats["journal"] = {
        **found.stats["journal"],
        "file_list": [
            {"name": f"{number:016x}-{number:016x}.cdb", "state": "sealed", "base_sqn": number,
             "last_sqn": number, "records": 1, "bytes": 1000 + number, "garbage_share": 0.5,
             "score": 50.0}
            for number in range(files)
        ],
    }  # fmt: skip
    stats["jobs"] = {
        "totals": {},
        "recent": [
            {"kind": "merge", "began_ms": number, "seconds": 1.0, "inputs": 1, "outputs": 1,
             "bytes_written": 1, "ok": True}
            for number in range(512)
        ],
    }  # fmt: skip
    stats["live_snapshots"] = [
        {"number": number, "age_seconds": 1.0, "lease_left_seconds": 1.0, "holds_files": 1,
         "holds_bytes": 1}
        for number in range(files)
    ]  # fmt: skip
    return found._replace(
        stats=stats, levels=[[block(n) for n in range(100)], [block(n) for n in range(files)]]
    )


def test_a_page_of_ten_thousand_files_stays_under_2_megabytes(store: octavo.Store) -> None:
    whole = page(large(store, 10_000))
    read(whole)
    assert len(whole.encode()) < 2_000_000


def test_an_overview_of_ten_thousand_files_stays_short(store: octavo.Store) -> None:
    assert len(overview(large(store, 10_000), columns=120).splitlines()) < 120


# ---------------------------------------------------------------- parts


@pytest.mark.parametrize("raw", ["<", ">", "&", '"', "'", "\x00", "\x1b", "\ud800", "\n"])
def test_text_escapes_whatever_could_end_it(raw: str) -> None:
    found = page_parts.text(f"a{raw}b")
    assert not set(found) & set("<>\"'\x00\x1b\ud800\udcff\n")
    assert found.startswith("a")
    assert found.endswith("b")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"o\x00\x00key", "key"),
        (b"obucket\x00\x00key", "bucket/key"),
        (b"o\x00\x00\xff\n", "\\xff\\n"),
        (b"i\x00\x00field", "index field"),
        (b"\x80\x00\x00key", "type 0x80 key"),
        (b"broken", "broken"),
    ],
)
def test_a_ledger_key_is_shown_for_a_person(key: bytes, text: str) -> None:
    assert shown(key) == text


def test_a_long_key_is_cut() -> None:
    assert len(shown(b"o" + b"b" * 60_000 + b"\0\0" + b"k" * 60_000)) < 120


# ---------------------------------------------------------------- the command


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with octavo.open(tmp_path / "store") as store:
        store.put_many((b"%05d" % number, b"x" * 100) for number in range(20_000))
        store.bucket(HOSTILE).put(HOSTILE, b"x")
    return tmp_path / "store"


def test_the_command_writes_a_page(path: Path, tmp_path: Path) -> None:
    run("inspect", path, "--html", tmp_path / "out.html")
    read((tmp_path / "out.html").read_text())


def test_the_command_writes_a_page_to_standard_output(path: Path) -> None:
    read(output("inspect", path, "--html", "-").decode())


def test_the_command_prints_an_overview_that_steers_no_terminal(path: Path) -> None:
    found = output("inspect", path).decode()
    for heading in ("Levels of the ledger", "Journal files", "Live snapshots", "Latencies"):
        assert heading in found
    assert all(char.isprintable() or char == "\n" for char in found)


def test_an_overview_fits_any_terminal(store: octavo.Store) -> None:
    with worked(store):
        found = inspection.inspect(store._running, score=True)
    for columns in (40, 60, 80, 200):
        plain = re.sub(r"\x1b\[[0-9;]*m", "", overview(found, columns=columns))
        assert max(map(len, plain.splitlines())) <= columns


def test_the_command_does_not_make_a_store(tmp_path: Path) -> None:
    run("inspect", tmp_path / "none", code=2)
    assert not (tmp_path / "none").exists()

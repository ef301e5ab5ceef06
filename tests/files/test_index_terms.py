"""Index entries as bytes: they sort as their terms do, and come back as they went in."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from octavo.files.ledger import index_terms, ledger_key
from octavo.files.ledger.index_terms import Term

rough = st.binary(max_size=6) | st.text(alphabet="\0\x01a\xff\U0001f600", max_size=4).map(
    lambda text: text.encode()
)
"""Bytes with many NULs and 0xFF in them."""
nasty = st.lists(st.sampled_from([b"\0", b"\xff", b"\x01", b"a", b"\0\xff"]), max_size=5).map(
    b"".join
)
parts = rough | nasty
terms = (
    st.integers()
    | st.integers(-(1 << 1000), 1 << 1000)
    | st.sampled_from([0, -1, 1, 255, 256, -256, -257, (1 << 64) - 1, 1 << 64, -(1 << 64)])
    | parts
    | st.text(max_size=5)
)


def entry_part(field: bytes, term: Term) -> bytes:
    return index_terms.escaped(field) + index_terms.escaped_term(term)


def rank(term: Term) -> tuple[int, Term]:
    """Where a term comes among all: ints, then bytes, then str."""
    return (0 if isinstance(term, int) else 1 if isinstance(term, bytes) else 2, term)


@given(terms, terms)
@settings(deadline=None, derandomize=True, max_examples=500)
def test_stored_terms_sort_as_the_terms_do(one: Term, other: Term) -> None:
    stored = [index_terms.escaped_term(term) for term in (one, other)]
    assert (stored[0] < stored[1]) == (rank(one) < rank(other))
    assert (stored[0] == stored[1]) == (rank(one) == rank(other))


@given(parts.filter(bool), terms, st.integers(0, 255), parts.filter(bool))
@settings(deadline=None, derandomize=True, max_examples=500)
@example(b"\0", b"\0", 0, b"\0")
@example(b"\xff", 0, 0, b"\xff")
def test_an_entry_comes_back_as_it_went_in(field: bytes, term: Term, tag: int, key: bytes) -> None:
    row = entry_part(field, term) + bytes((tag,)) + key
    found = index_terms.entry_of(row)
    assert found == (field, term, tag, key)
    assert type(found.term) is type(term)
    assert index_terms.object_of(row) == (tag, key)


@given(
    st.tuples(parts.filter(bool), terms, parts.filter(bool)),
    st.tuples(parts.filter(bool), terms, parts.filter(bool)),
)
@settings(deadline=None, derandomize=True, max_examples=500)
def test_entries_sort_by_field_then_term_then_key(
    one: tuple[bytes, Term, bytes], other: tuple[bytes, Term, bytes]
) -> None:
    rows = [entry_part(field, term) + b"\x6f" + key for field, term, key in (one, other)]
    ranks = [(field, rank(term), key) for field, term, key in (one, other)]
    assert (rows[0] < rows[1]) == (ranks[0] < ranks[1])


@given(st.lists(st.tuples(parts.filter(bool), terms), max_size=8))
@settings(deadline=None, derandomize=True)
def test_a_set_is_packed_once_each_and_in_order(pairs: list[tuple[bytes, Term]]) -> None:
    entries = [entry_part(*pair) for pair in pairs]
    packed = index_terms.packed(entries)
    assert index_terms.unpacked(packed) == sorted(set(entries))
    wanted: dict[bytes, list[Term]] = {}
    for field, term in sorted({(f, rank(t)) for f, t in pairs}):
        wanted.setdefault(field, []).append(term[1])
    assert index_terms.terms_by_field(packed, "f") == wanted
    keys = index_terms.ledger_keys(0x80, b"b\0", b"k", packed)
    front = ledger_key.prefix(ledger_key.INDEX, b"b\0")
    assert keys == [front + part + b"\x80k" for part in sorted(set(entries))]


@given(st.binary(max_size=40))
@settings(deadline=None, derandomize=True, max_examples=500)
def test_any_bytes_are_read_or_refused_with_a_value_error(found: bytes) -> None:
    for read in (
        index_terms.unpacked,
        index_terms.term_of,
        index_terms.entry_of,
        index_terms.unpacked,
    ):
        try:
            read(found)
        except ValueError:
            pass


@pytest.mark.parametrize(
    "found",
    [entry_part(b"f", "t"), b"f\x00\x07x\x00\x00" + entry_part(b"f", "t") + b"\x6fk"],
    ids=["no-object", "no-zero"],
)
def test_an_entry_that_is_none_is_refused(found: bytes) -> None:
    with pytest.raises(ValueError, match="malformed index entry"):
        index_terms.entry_of(found)


@pytest.mark.parametrize("size", [0, 1])
def test_a_set_of_an_entry_that_is_too_short_to_be_one_is_refused(size: int) -> None:
    whole = index_terms.packed([entry_part(b"f", "t")])
    with pytest.raises(ValueError, match="cut short"):
        index_terms.unpacked(whole + size.to_bytes(2, "little") + bytes(size))


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_set_that_was_cut_short_is_refused(cut: int) -> None:
    whole = index_terms.packed([entry_part(b"f", b"term12")])
    assert len(whole) > 12
    with pytest.raises(ValueError, match="cut short"):
        index_terms.unpacked(whole[:cut])


def test_the_longest_terms_are_taken_and_longer_ones_are_not() -> None:
    longest = (b"x" * 1024, "y" * 1024, (1 << 8 * 126) - 1, -(1 << 8 * 126))
    for term in longest:
        assert index_terms.term_of(index_terms.term_bytes(term)) == term
    for term in (b"x" * 1025, "y" * 1025, "é" * 513, 1 << 8 * 126, -(1 << 8 * 126) - 1):
        with pytest.raises(ValueError, match="at most"):
            index_terms.term_bytes(term)

"""The sort under every merge, against Python's own."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_rows import column

from octavo.files.kernels import key_order as module
from octavo.files.kernels.columns import Strings
from octavo.files.kernels.key_order import key_order

exact = settings(derandomize=True, max_examples=400, deadline=None)
pieces = st.sampled_from([b"\0", b"\0\0", b"a", b"b", b"\xff", b"ab", b"more bytes than a word"])
piecewise = st.lists(pieces, max_size=6).map(b"".join)
keys = st.lists(st.one_of(piecewise, st.binary(max_size=30)), max_size=60)


def check(strings: list[bytes], groups: list[int] | None = None) -> None:
    """The order is Python's, and each distinct key begins where it says."""
    of = column(strings)
    numbers = None if groups is None else np.array(groups, dtype=np.int64)
    order, firsts = key_order(of.strings(), numbers)
    assert sorted(order.tolist()) == list(range(len(strings)))
    ranked = list(zip([0] * len(strings) if groups is None else groups, strings, strict=True))
    found = [ranked[row] for row in order.tolist()]
    assert found == sorted(ranked)
    wanted = [at for at in range(len(found)) if at == 0 or found[at] != found[at - 1]]
    assert firsts.tolist() == wanted


@exact
@given(keys)
def test_order_is_that_of_unsigned_bytes(strings: list[bytes]) -> None:
    check(strings)


@exact
@given(keys, st.integers(0, 70000), st.randoms(use_true_random=False))
def test_groups_come_before_keys(strings: list[bytes], top: int, chance: random.Random) -> None:
    check(strings, [chance.randrange(top + 1) for _ in strings])


@exact
@given(keys, st.binary(max_size=40))
def test_a_common_prefix_changes_nothing(strings: list[bytes], prefix: bytes) -> None:
    check([prefix + s for s in strings])


@exact
@given(keys)
def test_keys_are_decided_a_few_bytes_at_a_time(strings: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_STRETCH_BYTES", 1)
        patch.setattr(module, "_BUDGET_BYTES", 0)
        patch.setattr(module, "_OWN_SIZES", 0)
        check(strings)


@exact
@given(st.lists(keys, max_size=4))
def test_sorted_runs_are_merged(runs: list[list[bytes]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FEW_RUNS", 1)  # so that even these few rows count as runs
        check([s for run in runs for s in sorted(run)])


def test_trailing_nuls_tell_keys_apart() -> None:
    check([b"a\0\0", b"a", b"a\0", b"a\0\0\0", b"", b"\0", b"\0\0"])


def test_lengths_that_end_in_nul_bytes_as_numbers() -> None:
    check([b"k" + b"\0" * n for n in (256, 255, 257, 512, 0, 65535, 65536)])


def test_long_keys_that_differ_in_their_last_byte() -> None:
    base = bytes(range(256)) * 255
    check([base + b"b", base + b"a", base, base + b"c", b"short", base + b"a"])


def test_equal_keys_only() -> None:
    check([b"the same key, longer than a word"] * 1000)


def test_no_rows_and_one_row() -> None:
    check([])
    check([b"x"])


SHAPES = {
    "numbered": lambda chance: b"user%012d" % chance.randrange(20000),
    "paths": lambda chance: (
        b"/srv/%03d/%s%05d" % (chance.randrange(50), b"x" * 60, chance.randrange(999))
    ),
    "short": lambda chance: chance.randbytes(chance.randrange(1, 12)),
    "nuls": lambda chance: b"\0" * chance.randrange(40),
}


@pytest.mark.parametrize("in_runs", [False, True])
@pytest.mark.parametrize("shapes", [*([shape] for shape in SHAPES), list(SHAPES)])
def test_many_rows(shapes: list[str], in_runs: bool) -> None:
    chance = random.Random(11)
    strings = [SHAPES[chance.choice(shapes)](chance) for _ in range(20000)]
    if in_runs:
        strings = sorted(strings[:7000]) + sorted(strings[7000:])
    check(strings)


def test_a_row_outside_the_blob_is_refused() -> None:
    with pytest.raises(IndexError):
        key_order(Strings(np.zeros(20, np.uint8), np.array([0, 30]), np.array([9, 9])))

"""Which rows a scan of all buckets wants, and how it comes to them."""

from __future__ import annotations

from octavo.files.ledger import ledger_key
from octavo.files.ledger.bounds import of_type
from octavo.files.ledger.chosen_rows import Asked, OfSpans, Span, of_all_buckets

TAG = ledger_key.STANDARD
PREFIXES = {ledger_key.prefix(TAG, name) for name in (b"a", b"b")}
SPANS = [Span(b"%d" % number, b"%d" % (number + 1)) for number in range(5)]


def test_one_pass_is_for_buckets_of_few_rows_however_many_spans_are_sought() -> None:
    for spans in (SPANS[:1], SPANS):
        found = of_all_buckets(TAG, spans, PREFIXES, 1999)
        assert found == Asked([of_type(TAG)], OfSpans(spans))
        ranges, chosen = of_all_buckets(TAG, spans, PREFIXES, 2000)
        assert (len(ranges), chosen) == (2 * len(spans), None)


def test_nothing_is_read_where_no_span_is_sought() -> None:
    assert of_all_buckets(TAG, [], PREFIXES, 5) == Asked([], None)

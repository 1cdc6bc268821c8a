"""GSP's own logs: records as liblogdecode.c reads them, from the end."""

from __future__ import annotations

import random
import struct

import pytest

from ringup.drivers.nv.gsp.log_records import LogRecord, decode

# words that might be in a log: arguments, where the text lies (a multiple of 8), the time in ns
FIRST = (0x7, 0xFFFF_FFFF, 0x10_0008, 5_000_000_000)
SECOND = (0x10_0100, 5_000_000_500)
THIRD = (0x1234_5678_9ABC, 0x10_0008, 5_000_001_000)


def packed(*words):
    return struct.pack(f"<{len(words)}Q", *words)


def test_records_are_taken_apart_from_the_end():
    log = decode(packed(*FIRST, *SECOND, *THIRD))
    assert log.records == (
        LogRecord(5_000_000_000, 0x10_0008, (0x7, 0xFFFF_FFFF)),
        LogRecord(5_000_000_500, 0x10_0100, ()),
        LogRecord(5_000_001_000, 0x10_0008, (0x1234_5678_9ABC,)),
    )
    assert log.lost_words == 0
    assert str(log.records[0]) == "5.000000 s: text 0x100008(0x7, 0xffffffff)"


def test_a_record_whose_begin_was_overwritten_keeps_what_is_left():
    """In a ring that has wrapped, the oldest words are the end of a record."""
    log = decode(packed(*FIRST[1:], *SECOND))
    assert [record.arguments for record in log.records] == [(0xFFFF_FFFF,), ()]


@pytest.mark.parametrize(
    ("words", "records", "lost"),
    [
        ((), 0, 0),
        ((1,), 0, 1),
        # no place of a text
        ((0, 5), 0, 2),
        ((3, 5), 0, 2),
        # more arguments than a record has, and no record before them
        ((*[1] * 21, 0x10_0008, 5), 0, 23),
        # the record before is later, or its text is far away
        ((*[1] * 19, 0x10_0008, 6, 0x10_0008, 5), 0, 23),
        ((*[1] * 19, 0x2010_0008, 4, 0x10_0008, 5), 0, 23),
        ((*[1] * 19, 0x10_0010, 4, 0x10_0008, 5), 2, 0),
    ],
)
def test_words_that_are_no_records_are_counted(words, records, lost):
    log = decode(packed(*words))
    assert (len(log.records), log.lost_words) == (records, lost)


def test_any_bytes_are_bounded(sample):
    for seed in sample(range(1000), few=20):
        rng = random.Random(seed)
        raw = rng.randbytes(rng.randrange(0, 4000))
        log = decode(raw)
        assert sum(2 + len(one.arguments) for one in log.records) + log.lost_words == len(raw) // 8

"""Numbers on the command line (4096, 0x1000, 4K, 1M), and hex dumps."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

UNITS = {"K": 10, "M": 20, "G": 30}
ROW_BYTES = 16
WEEK_S = 7 * 24 * 3600


def size(text: str) -> int:
    """Return a number of bytes. Raises `ArgumentTypeError` for other text."""
    digits, shift = (text[:-1], UNITS[text[-1].upper()]) if text[-1:].upper() in UNITS else (text, 0)
    try:
        value = int(digits, 0) << shift
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes: write 4096, 0x1000, 4K or 1M") from None
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def address(text: str) -> int:
    """Return an address. Raises `ArgumentTypeError` for other text."""
    try:
        value = int(text, 0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address: write 0x1000") from None
    if value < 0:
        raise argparse.ArgumentTypeError(f"an address is not negative, as {text} is")
    return value


def whole(text: str) -> int:
    """Return a whole number. Raises `ArgumentTypeError` for other text."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number: write 3") from None


def seconds(text: str) -> float:
    """Return a time above 0 and at most a week. Raises `ArgumentTypeError` for other text."""
    try:
        time_s = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds: write 0.5 or 10") from None
    if not 0 < time_s <= WEEK_S:
        raise argparse.ArgumentTypeError(f"a time is more than 0 s and at most {WEEK_S} s, not {text}")
    return time_s


def hexdump(data: bytes, start: int) -> Iterator[str]:
    """Yield lines of 16 bytes with address and text; repeated lines become one `*`."""
    width = max(8, len(f"{start + len(data):x}"))
    before, starred = b"", False
    for at in range(0, len(data), ROW_BYTES):
        row = data[at : at + ROW_BYTES]
        if row == before and at + ROW_BYTES < len(data):
            if not starred:
                yield "*"
            starred = True
            continue
        before, starred = row, False
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{start + at:0{width}x}  {row.hex(' ', 4):{ROW_BYTES * 2 + 3}}  |{text}|"

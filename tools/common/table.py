"""A table on standard output: drawn by rich on a terminal, else plain columns."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal, NamedTuple


class Column(NamedTuple):
    """One column's heading and alignment."""

    head: str
    justify: Literal["left", "right"] = "left"


def show(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    if sys.stdout.isatty():
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in columns:
            table.add_column(column.head, justify=column.justify, overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        Console().print(table)
        return
    for line in plain(columns, rows):
        print(line)


def plain(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table as plain text."""
    widths = [max(len(cell) for cell in cells) for cells in zip([one.head for one in columns], *rows, strict=True)]
    lines = []
    for row in ([one.head for one in columns], *rows):
        cells = [
            cell.rjust(width) if column.justify == "right" else cell.ljust(width)
            for column, cell, width in zip(columns, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines

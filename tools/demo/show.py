"""The output of `ringup demo`: live on a terminal, plain text at the end in a pipe, and on request a picture of the
terminal.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Sequence
from io import StringIO
from itertools import groupby
from pathlib import Path
from select import select
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ringup.tools.demo.kernels import STEPS

WIDTH = 104  # width of a picture, and of text in a pipe
SHADES = " .,:;=+*#%@"
# steps at which the colour changes: few colours make long runs and a small picture
BOUNDS = (
    4,
    6,
    9,
    16,
    40,
    STEPS,
)
COLOURS = ("#0b1a4a", "#1f4fa0", "#3f93cf", "#a9dbe8", "#f7d774", "#d9622b", "#000000")
# rich's style sheet names a server; local fonts are enough
FONT_FACE = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)
PATIENCE_S = 20.0  # TIMEOUT: ours; the demo ends without input
HALF = "▀"
# size of the picture in characters, and rows of the image that are cut above and below
COLUMNS, LINES, CUT = 64, 24, 32


class Show:
    """Headings, lines, tables and one image. `quiet`: no output. `picture`: a file for an SVG of everything."""

    def __init__(self, *, quiet: bool, picture: Path | None) -> None:
        live = sys.stdout.isatty() and not quiet
        self._kept = None if live else StringIO()
        self._quiet, self._picture = quiet, picture
        self.console = Console(
            file=self._kept or sys.stdout,
            record=picture is not None,
            force_terminal=live or picture is not None,
            color_system="truecolor" if picture is not None else "auto",
            width=None if live and picture is None else WIDTH,
            highlight=False,
        )

    def heading(self, text: str, about: str = "") -> None:
        """Begin a chapter."""
        self.console.print()
        self.console.print(Text.assemble((text, "bold"), (f"   {about}" if about else "", "dim")))

    def line(self, text: str, style: str = "") -> None:
        """Print a line."""
        self.console.print(Padding(Text(text, style), (0, 0, 0, 2), expand=False))

    def marks(self, marked: Sequence[tuple[str, str, str]]) -> None:
        """Print words in one line, each with its sign in the sign's colour."""
        line = Text("  ")
        for word, sign, colour in marked:
            line.append(f"{sign} ", colour).append(f"{word}   ")
        self.console.print(line)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table; all columns but the first are aligned right, like numbers."""
        table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
        for i, head in enumerate(heads):
            table.add_column(head, justify="left" if i == 0 else "right", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        self.console.print(Padding(table, (0, 0, 0, 2), expand=False))

    def image(self, steps: Any) -> None:
        """Draw the set, two rows per line: in colours if the terminal has them, else in shades. Plain text always has
        shades.
        """
        start = self._kept.tell() if self._kept is not None else 0
        for line in _coloured(steps) if self.console.color_system else _shaded(steps):
            self.console.print(Text("  ") + line)
        if self._kept is not None and self.console.color_system:
            self._kept.seek(start)
            self._kept.truncate()
            self._kept.writelines(f"  {line.plain}\n" for line in _shaded(steps))

    def ask(self, question: str, default: str) -> str:
        """Return the user's input; the default for empty input, after a time limit, and without a terminal."""
        if self._kept is not None or sys.stdin is None or not sys.stdin.isatty():
            return default
        self.console.print(Text(f"  {question}: "), end="")
        if not select([sys.stdin], [], [], PATIENCE_S)[0]:
            self.console.print()
            return default
        return sys.stdin.readline().strip() or default

    def end(self) -> None:
        """Print the stored text, and write the picture."""
        if self._picture is not None:
            form = FONT_FACE.sub("", CONSOLE_SVG_FORMAT)
            self.console.save_svg(str(self._picture), title="ringup demo", code_format=form, unique_id="demo")
        if self._kept is not None and not self._quiet:
            lines = Text.from_ansi(self._kept.getvalue()).plain.splitlines()
            print("\n".join(line.rstrip() for line in lines))


def _coloured(steps: Any) -> list[Text]:
    """Return half blocks: the upper row as foreground, the lower row as background."""
    small = _window(steps, COLUMNS)
    lines = []
    for upper, lower in zip(small[::2], small[1::2], strict=True):
        line = Text()
        cells = zip(upper, lower, strict=True)
        for (one, other), run in groupby((_colour(above), _colour(below)) for above, below in cells):
            mark, style = (" ", f"on {one}") if one == other else (HALF, f"{one} on {other}")
            line.append(mark * len(list(run)), style)
        lines.append(line)
    return lines


def _colour(steps: int) -> str:
    return COLOURS[bisect_right(BOUNDS, int(steps))]


def _shaded(steps: Any) -> list[Text]:
    small, last = _window(steps, COLUMNS)[::2], len(SHADES) - 1
    return [Text("".join(SHADES[last if n >= STEPS else int(n) % last] for n in row)) for row in small]


def _window(steps: Any, columns: int) -> Any:
    """Return the shown part of an image: an even number of rows around the middle, with the given number of columns."""
    stride = steps.shape[1] // columns
    small = steps[::stride, ::stride]
    cut = small.shape[0] // CUT // 2 * 2
    return small[cut:-cut]

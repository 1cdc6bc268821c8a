"""A figure of a bench: ours, the competitor's, the goal; as a table or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ringup.tools.common.json_text import json_text

Better = Literal["less", "more"]


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound. If `of` is "ratio", the ratio must reach it; if "ours", our figure must not be worse."""

    of: Literal["ours", "ratio"]
    bound: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity, in `unit`. `beside` names what `peer` measured, such as tinygrad or LLVM; `better` says
    whether less or more is better.
    """

    name: str
    unit: str
    ours: float
    peer: float | None = None
    goal: Goal | None = None
    better: Better = "less"
    beside: str = "tinygrad"
    note: str = ""  # how the two sides differ in their work, or what the figure measures

    @property
    def ratio(self) -> float | None:
        """How many times better ours is, in the direction that is better: 2 is twice as good. None without the other
        figure.
        """
        if self.peer is None:
            return None
        above, below = (self.peer, self.ours) if self.better == "less" else (self.ours, self.peer)
        return above / below if below > 0 else None

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached. None without a goal, or if its ratio is not known."""
        if self.goal is None:
            return None
        if self.goal.of == "ratio":
            return None if self.ratio is None else self.ratio >= self.goal.bound
        return self.ours <= self.goal.bound if self.better == "less" else self.ours >= self.goal.bound

    @property
    def goal_text(self) -> str:
        """The goal as text: `ours <= 5 ms`, `ratio >= 20`."""
        if self.goal is None:
            return ""
        if self.goal.of == "ratio":
            return f"ratio >= {number(self.goal.bound)}"
        return f"ours {'<=' if self.better == 'less' else '>='} {number(self.goal.bound)} {self.unit}"

    def as_json(self) -> str:
        """Return one line of JSON."""
        row = {
            "name": self.name,
            "unit": self.unit,
            "ours": self.ours,
            "peer": self.peer,
            "ratio": self.ratio,
            "better": self.better,
            "beside": self.beside if self.peer is not None else None,
        }
        if self.goal is not None:
            row |= {"goal": self.goal_text, "met": self.met}
        if self.note:
            row["note"] = self.note
        return json_text(row)


def number(value: float | None) -> str:
    """Return a quantity with three significant digits, `-` for none."""
    if value is None:
        return "-"
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    text = f"{value:.3g}"
    return f"{value:.6f}".rstrip("0") if "e" in text else text


def table(figures: Sequence[Figure]) -> str:
    """Return the figures as aligned columns, notes below."""
    head = ("", "unit", "ours", "peer", "ratio", "peer is", "goal", "")
    rows = [head]
    notes: list[str] = []
    for figure in figures:
        mark = {None: "", True: "met", False: "MISSED"}[figure.met]
        name = figure.name
        if figure.note:
            if figure.note not in notes:
                notes.append(figure.note)
            name += f" [{notes.index(figure.note) + 1}]"
        beside = figure.beside if figure.peer is not None else ""
        shown = (number(figure.ours), number(figure.peer), number(figure.ratio))
        rows.append((name, figure.unit, *shown, beside, figure.goal_text, mark))
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    right = {2, 3, 4}
    lines = [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    lines += [f"[{i}] {note}" for i, note in enumerate(notes, 1)]
    return "\n".join(line.rstrip() for line in lines)

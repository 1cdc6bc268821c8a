"""The benches of one run as one HTML page: tables, goals, plots. It contains everything it shows and loads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from ringup.tools.bench.figure import Figure, number
from ringup.tools.bench.plot import Plot, svg

STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0; width: 100% } th, td { padding: .2em .6em; border-bottom: 1px solid #ddd }
th { text-align: left } .number { text-align: right; font-variant-numeric: tabular-nums } .note { color: #666; font-size: 90% }
.met { color: #2c7a44 } .missed { color: #b3261e; font-weight: bold } svg { width: 100%; max-width: 760px; margin: 1em 0; display: block }
svg text { font: 12px system-ui, sans-serif; fill: #333 } svg .title { font-weight: bold; font-size: 14px }
svg .middle { text-anchor: middle } svg .end { text-anchor: end }
"""
HEADS = ("", "unit", "ours", "peer", "ratio", "peer is", "goal", "")
NUMBERS = (2, 3, 4)
MET = {None: ("", ""), True: ("met", "met"), False: ("missed", "MISSED")}


@dataclass(frozen=True, slots=True)
class Section:
    """The figures of one bench."""

    name: str
    text: str
    figures: Sequence[Figure]
    plots: Sequence[Plot]


def page(title: str, about: str, sections: Iterable[Section]) -> str:
    """Return the whole page. `about`: a line on the computer and the card."""
    body = "\n".join(_section(section) for section in sections)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style></head>\n'
        f"<body><h1>{escape(title)}</h1>\n<p>{escape(about)}</p>\n{body}\n</body></html>\n"
    )


def _section(section: Section) -> str:
    head = f"<h2>{escape(section.name)}</h2><p>{escape(section.text)}</p>"
    rows = "\n".join(_row(figure) for figure in section.figures)
    notes = dict.fromkeys(figure.note for figure in section.figures if figure.note)
    told = "".join(f'<p class="note">{escape(note)}</p>' for note in notes)
    heads = "".join(
        f'<th class="number">{text}</th>' if i in NUMBERS else f"<th>{text}</th>" for i, text in enumerate(HEADS)
    )
    plots = "\n".join(svg(plot) for plot in section.plots)
    return f"{head}\n<table><tr>{heads}</tr>\n{rows}</table>{told}\n{plots}"


def _row(figure: Figure) -> str:
    kind, mark = MET[figure.met]
    beside = figure.beside if figure.peer is not None else ""
    cells = (
        figure.name, figure.unit, number(figure.ours), number(figure.peer), number(figure.ratio), beside, figure.goal_text, mark,
    )  # fmt: skip
    classes = ["number" if i in NUMBERS else "" for i in range(len(cells))]
    classes[-1] = kind
    return (
        "<tr>"
        + "".join(f'<td class="{name}">{escape(cell)}</td>' for name, cell in zip(classes, cells, strict=True))
        + "</tr>"
    )

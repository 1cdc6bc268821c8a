"""A page of HTML from nested plain values: one self-contained file, for reports that are sent by mail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #1b1f24; background: #fff }
h1 { font-size: 1.5em; margin-bottom: 0.2em } h2 { font-size: 1.1em; margin: 1.6em 0 0.4em; border-bottom: 1px solid #d0d7de }
p.lead { color: #57606a; margin-top: 0 }
table { border-collapse: collapse } td, th { padding: 0.15em 0.9em 0.15em 0; text-align: left; vertical-align: top }
th { color: #57606a; font-weight: 600 } td { font-family: ui-monospace, monospace; font-size: 13px }
pre { background: #f6f8fa; padding: 0.8em; overflow-x: auto; font-size: 13px; line-height: 1.35 }
svg { width: 100%; max-width: 760px; display: block; margin: 0.6em 0; background: #fff }
svg text { font: 12px system-ui, sans-serif; fill: #333 }
svg .title { font-weight: bold; font-size: 14px } svg .middle { text-anchor: middle } svg .end { text-anchor: end }
@media (prefers-color-scheme: dark) { body { background: #0d1117; color: #e6edf3 } pre { background: #161b22 } h2 { border-color: #30363d } }
"""


class Markup(str):
    """HTML of our own, such as a plot. It goes into the page unchanged."""


def page(title: str, lead: str, sections: Mapping[str, Any], *, style: str = "") -> str:
    """Return a page: a title, a line under it, and a section for each value that is not empty; `style` comes after
    the page's own.

    A value is a mapping or a list of mappings (a table), a list of texts (lines), one text, or `Markup`.
    """
    body = "\n".join(line for name, value in sections.items() if value for line in _section(name, value))
    head = f'<meta charset="utf-8">\n<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>'
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n'
        f'<body>\n<h1>{escape(title)}</h1>\n<p class="lead">{escape(lead)}</p>\n{body}\n</body>\n</html>\n'
    )


def _section(name: str, value: Any) -> Iterator[str]:
    yield f"<h2>{escape(name)}</h2>"
    if isinstance(value, Mapping):
        yield from _table([(key, inner) for key, inner in value.items()])
    elif isinstance(value, Markup):
        yield value
    elif isinstance(value, str):
        yield f"<p>{escape(value)}</p>"
    elif isinstance(value[0], Mapping):
        columns = list(value[0])
        yield from _table([[row.get(column, "") for column in columns] for row in value], columns)
    else:
        yield f"<pre>{escape(chr(10).join(map(str, value)))}</pre>"


def _table(rows: Sequence[Sequence[Any]], columns: Sequence[str] = ()) -> Iterator[str]:
    yield "<table>"
    if columns:
        yield "<tr>" + "".join(f"<th>{escape(column.replace('_', ' '))}</th>" for column in columns) + "</tr>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>"
    yield "</table>"


def _cell(value: Any) -> str:
    """Return a value's text; nested values become one line per entry."""
    if isinstance(value, Mapping):
        return "<br>".join(f"{escape(str(key))} {_cell(inner)}" for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return "<br>".join(_cell(inner) for inner in value)
    return escape(str(value))

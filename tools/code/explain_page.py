"""The page of `ringup explain --html`: the schedule, and each kernel with its passes next to each other. One file,
without any external resource.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from ringup.compiler.explain import Explained, Explanation, assembly_of, passes_of
from ringup.tools.code.compile import summary
from ringup.tools.code.explain import AXES, NODES, PLACES, SCHEDULE, axis_rows, facts_of, place_rows, schedule_row
from ringup.tools.common.html_page import Markup, page
from ringup.tools.common.table import Column

STYLE = """
body { max-width: 110em }
table.rows { width: 100% } table.rows td, table.rows th { border-bottom: 1px solid #8882; white-space: nowrap }
td.right, th.right { text-align: right } td.wide { white-space: normal }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.1em 1.2em; margin: 0.4em 0 } dt { color: #57606a }
dd { margin: 0; font-family: ui-monospace, monospace; font-size: 13px }
div.columns { display: grid; grid-template-columns: 1fr 1fr; gap: 0 2em; align-items: start }
@media (max-width: 70em) { div.columns { display: block } }
h3 { font-size: 1em; margin: 1em 0 0.2em; color: #57606a }
.bar { display: inline-block; height: 0.7em; background: #2f81f7; border-radius: 1px } .bar.memory { background: #d29922 }
.role { display: inline-block; min-width: 4.5em; padding: 0 0.5em; border-radius: 3px; color: #fff; text-align: center }
.grid { background: #6639ba } .wave { background: #0969da } .lane { background: #1a7f37 }
.reduce { background: #bc4c00 } .unroll { background: #57606a } .loop { background: #9a6700 }
details { margin: 0.2em 0 } summary { cursor: pointer; font-family: ui-monospace, monospace; font-size: 13px } summary span { color: #57606a }
pre { margin: 0.3em 0; max-height: 46em; overflow: auto; white-space: pre } pre b { font-weight: normal; background: #2ea04333 }
div.panes { display: grid; grid-template-columns: 1fr 1fr; gap: 1em } div.panes pre { min-width: 0 } select { font: inherit }
"""
# fills the two panes of a kernel with the texts of its passes; marks lines that the other pane lacks
SCRIPT = """
document.querySelectorAll("div.compare").forEach(function (box) {
  var selects = box.querySelectorAll("select"), panes = box.querySelectorAll("div.panes pre");
  function lines(i) { return document.getElementById(selects[i].value).textContent.split("\\n"); }
  function fill() {
    [0, 1].forEach(function (i) {
      var other = new Set(lines(1 - i).map(function (line) { return line.trim(); }));
      panes[i].replaceChildren();
      lines(i).forEach(function (line) {
        var fresh = !other.has(line.trim()), node = document.createElement(fresh ? "b" : "span");
        node.textContent = line + "\\n";
        panes[i].appendChild(node);
      });
    });
  }
  selects.forEach(function (select) { select.addEventListener("change", fill); });
  box.querySelector("details").addEventListener("toggle", fill);
});
"""


def page_of(title: str, found: Explanation, kernels: Sequence[Explained]) -> str:
    """Return the page of a compiled file with its kernels."""
    launches = range(len(found.graph.launches))
    shown = [i for i in launches if any(i in one.launches for one in kernels)]
    sections = {f"Schedule: {len(found.graph.launches)} launches": Markup(_schedule(found, shown))}
    for i, one in enumerate(kernels):
        sections[one.name] = Markup("\n".join(_kernel(found, one, f"k{i}")))
    last = next(reversed(sections))
    sections[last] = Markup(f"{sections[last]}\n<script>{SCRIPT}</script>")
    return page(f"{title} on {found.graph.target}", summary(found), sections, style=STYLE)


def _schedule(found: Explanation, numbers: Sequence[int]) -> str:
    slowest = max((one.cost.microseconds for one in found.kernels), default=0.0) or 1.0
    rows = []
    for number in numbers:
        one = next(kernel for kernel in found.kernels if number in kernel.launches)
        cells = [escape(cell) for cell in schedule_row(found, number)]
        width = max(1, round(120 * one.cost.microseconds / slowest))
        kind = "bar memory" if one.cost.bound == "memory" else "bar"
        rows.append([*cells, f'<span class="{kind}" style="width:{width}px"></span>'])
    return _table((*SCHEDULE, Column("time")), rows)


def _kernel(found: Explanation, one: Explained, key: str) -> Iterator[str]:
    yield (
        "<dl>"
        + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts_of(found, one).items())
        + "</dl>"
    )
    yield '<div class="columns"><div><h3>computes</h3>'
    yield _table(NODES, [[escape(cell) for cell in (node.name, node.does, node.type)] for node in one.nodes])
    yield "</div><div><h3>axes</h3>"
    rows = axis_rows(one)
    yield _table(
        AXES, [[f'<span class="role {escape(row[0])}">{escape(row[0])}</span>', *map(escape, row[1:])] for row in rows]
    )
    yield "<h3>memory</h3>"
    yield _table(PLACES, [[escape(cell) for cell in row] for row in place_rows(one)])
    yield "</div></div>"
    yield from _passes(one, key)


def _passes(one: Explained, key: str) -> Iterator[str]:
    """Yield the texts, each in its own fold, and two panes that show any two of them."""
    texts = [(f"{each.level} {each.name}", each.text) for each in passes_of(one.step)]
    texts.append(("assembly", "\n".join(assembly_of(one.step)) + "\n"))
    yield "<h3>after each pass</h3>"
    for i, (name, text) in enumerate(texts):
        count = text.count("\n")
        yield f'<details><summary>{escape(name)} <span>{count} lines</span></summary><pre id="{key}p{i}">{escape(text)}</pre></details>'
    choices = [
        "".join(
            f'<option value="{key}p{i}"{" selected" * (i == chosen)}>{escape(name)}</option>'
            for i, (name, _) in enumerate(texts)
        )
        for chosen in (0, len(texts) - 1)
    ]
    yield (
        '<div class="compare"><details><summary>two side by side <span>lines that the other lacks are '
        "marked</span></summary>"
        + '<div class="panes">'
        + "".join(f"<div><select>{one}</select><pre></pre></div>" for one in choices)
        + "</div></details></div>"
    )


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of cells that are HTML already."""
    head = "".join(f'<th class="{column.justify}">{escape(column.head)}</th>' for column in columns)
    body = "".join(
        "<tr>"
        + "".join(f'<td class="{column.justify}">{cell}</td>' for column, cell in zip(columns, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<table class="rows"><tr>{head}</tr>{body}</table>'

"""Plots of a bench as self-contained SVG: a distribution, curves over size, bars of stages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from ringup.tools.bench.figure import number

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 80, 170, 30, 45  # margins: numbers at the left and below, the legend at the right
COLOURS = ("#3b6fb6", "#c8553d", "#4f9d69", "#8a5fa8", "#b58b2a", "#5b6570", "#2a9d9d", "#b0407a")
BINS = 48
ROW = 24  # height of a bar
TAIL = 0.995  # share of a distribution that is drawn to scale; larger values go into the last bin
MARKS = ((0.5, "median"), (0.99, "99 %"))


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution of values, in `unit`."""

    title: str
    unit: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Curves:
    """Values over a size, both axes logarithmic: points (x, y) by the curve's name."""

    title: str
    x_unit: str
    y_unit: str
    curves: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Bars:
    """A bar for each name; several series are drawn next to each other."""

    title: str
    unit: str
    names: Sequence[str]
    series: Mapping[str, Sequence[float]]


Plot = Distribution | Curves | Bars


def svg(plot: Plot) -> str:
    """Return the plot as an SVG element. A plot without values is its title and a line that says so."""
    if isinstance(plot, Distribution):
        height, body = HEIGHT, _distribution(plot) if plot.values else _nothing()
    elif isinstance(plot, Curves):
        height, body = HEIGHT, _curves(plot) if any(plot.curves.values()) else _nothing()
    else:
        height = TOP + BOTTOM + ROW * len(plot.names)
        body = _bars(plot, height) if plot.names else _nothing()
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(plot.title)}">'
    )
    return "\n".join((head, _text(LEFT, 18, plot.title, "title"), *body, "</svg>"))


def _distribution(plot: Distribution) -> Iterable[str]:
    values = sorted(plot.values)
    low, high = values[0], values[min(len(values) - 1, int(TAIL * len(values)))]
    width = (high - low) / BINS or 1.0
    counts = [0] * BINS
    for value in values:
        counts[min(BINS - 1, int((value - low) / width))] += 1
    x = _linear(low, low + BINS * width, LEFT, WIDTH - RIGHT)
    y = _linear(0, max(counts), HEIGHT - BOTTOM, TOP)
    yield from _frame(HEIGHT, plot.unit, "times")
    for i, count in enumerate(counts):
        at, end, top = x(low + i * width), x(low + (i + 1) * width), y(count)
        yield _box(at, top, end - at - 1, HEIGHT - BOTTOM - top, COLOURS[0])
    for share, name in MARKS:
        value = values[min(len(values) - 1, int(share * len(values)))]
        yield _line(x(min(value, high)), TOP, x(min(value, high)), HEIGHT - BOTTOM, COLOURS[1])
        yield _text(
            WIDTH - RIGHT + 10, TOP + 14 + 18 * MARKS.index((share, name)), f"{name}: {number(value)} {plot.unit}"
        )
    for value in (low, (low + high) / 2, high):
        yield _text(x(value), HEIGHT - BOTTOM + 16, number(value), "middle")
    for tick in (0, max(counts)):
        yield _text(LEFT - 6, y(tick) + 4, str(tick), "end")


def _curves(plot: Curves) -> Iterable[str]:
    points = [point for curve in plot.curves.values() for point in curve]
    xs, ys = [point[0] for point in points], [max(point[1], 1e-9) for point in points]
    low, high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
    x = _logarithmic(min(xs), max(xs), LEFT, WIDTH - RIGHT)
    y = _logarithmic(10.0**low, 10.0 ** max(high, low + 1), HEIGHT - BOTTOM, TOP)
    yield from _frame(HEIGHT, plot.x_unit, plot.y_unit)
    for power in range(low, max(high, low + 1) + 1):
        yield _line(LEFT, y(10.0**power), WIDTH - RIGHT, y(10.0**power), "#ddd")
        yield _text(LEFT - 6, y(10.0**power) + 4, number(10.0**power), "end")
    for value in sorted(set(xs)):
        yield _text(x(value), HEIGHT - BOTTOM + 16, size_text(value), "middle")
    for i, (name, curve) in enumerate(plot.curves.items()):
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join(f"{x(at):.1f},{y(max(value, 1e-9)):.1f}" for at, value in curve)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        yield from _legend(i, name, colour)


def _bars(plot: Bars, height: int) -> Iterable[str]:
    most = max((value for values in plot.series.values() for value in values), default=0.0) or 1.0
    left = LEFT + 140  # names are whole words
    x = _linear(0, most, left, WIDTH - RIGHT)
    thick = (ROW - 6) / max(1, len(plot.series))
    for row, name in enumerate(plot.names):
        top = TOP + row * ROW
        yield _text(left - 6, top + ROW / 2 + 4, name, "end")
        for i, values in enumerate(plot.series.values()):
            end = x(values[row])
            yield _box(left, top + 3 + i * thick, max(1.0, end - left), thick - 1, COLOURS[i % len(COLOURS)])
    for i, name in enumerate(plot.series):
        yield from _legend(i, name, COLOURS[i % len(COLOURS)])
    for value in (0, most / 2, most):
        yield _text(x(value), height - BOTTOM + 16, number(value), "middle")
    yield _text((left + WIDTH - RIGHT) / 2, height - 8, plot.unit, "middle")


def _nothing() -> Iterable[str]:
    yield _text(LEFT, TOP + 30, "nothing was measured")


def _frame(height: int, x_unit: str, y_unit: str) -> Iterable[str]:
    yield _line(LEFT, height - BOTTOM, WIDTH - RIGHT, height - BOTTOM, "#333")
    yield _line(LEFT, TOP, LEFT, height - BOTTOM, "#333")
    yield _text((LEFT + WIDTH - RIGHT) / 2, height - 8, x_unit, "middle")
    yield f'<text transform="translate(16 {(TOP + height - BOTTOM) / 2}) rotate(-90)" class="middle">{escape(y_unit)}</text>'


def _legend(row: int, name: str, colour: str) -> Iterable[str]:
    yield _box(WIDTH - RIGHT + 10, TOP + 6 + 18 * row, 10, 10, colour)
    yield _text(WIDTH - RIGHT + 25, TOP + 15 + 18 * row, name)


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{colour}"/>'


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" fill="{colour}"/>'


def _linear(low: float, high: float, at: float, end: float) -> Callable[[float], float]:
    span = high - low or 1.0
    return lambda value: at + (value - low) / span * (end - at)


def _logarithmic(low: float, high: float, at: float, end: float) -> Callable[[float], float]:
    scale = _linear(math.log(low), math.log(high), at, end)
    return lambda value: scale(math.log(value))


def size_text(size_bytes: float) -> str:
    """Return a size as text: `4 KiB`, `16 MiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.4g} {name}"
    return f"{size_bytes:.4g} B"

"""What a run could not check: the skipped tests, counted by reason, in the last lines. A missing reference fails a
test; it never skips it.
"""

from __future__ import annotations

import re
from collections import defaultdict


def _reason(report):
    """Return why a test was skipped, without pytest's own prefix."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")


def lines(reasons):
    """Return a line for each kind of reason. Reasons that differ only in numbers, such as versions, are one kind."""
    kinds = defaultdict(list)
    for reason in reasons:
        kinds[re.sub(r"\d+", "0", reason)].append(reason)
    for found in sorted(kinds.values(), key=len, reverse=True):
        different = sorted(set(found))
        others = f" (and {len(different) - 1} more like it)" if len(different) > 1 else ""
        yield f"not judged here: {len(found)} test{'s' if len(found) > 1 else ''}: {different[0]}{others}"


def pytest_terminal_summary(terminalreporter):
    for line in lines(map(_reason, terminalreporter.stats.get("skipped", []))):
        terminalreporter.write_line(line)

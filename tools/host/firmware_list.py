"""The result of `ringup firmware check` for one chip, whichever vendor's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

HASH_LETTERS = 16  # letters of a hash in the table; `--json` has the whole hash
# Of a file: kind, name, optional, path, problem; if it was found: size_bytes, sha256; if it was read: version and more.
Row = dict[str, Any]


class Checked(NamedTuple):
    """The files of a chip. `problems` are those that keep it from starting; `more` goes into the document."""

    rows: list[Row]
    problems: list[str]
    total_bytes: int
    fingerprint: int | None
    more: Mapping[str, Any]

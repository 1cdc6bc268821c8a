"""Stores shapes of kernels that a search has found better than the heuristic ones in a file.

The file is JSON, with entries by target and by kernel (a hash of its signature). An entry names one of the candidates
of the kernel's lowering. If that candidate no longer exists, the entry is ignored, so an old file does no harm. A file
that cannot be read counts as empty, with a warning. It is always written as a whole, next to the old one, which it then
replaces.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from ringup.compiler.files.whole_file import write_whole
from ringup.compiler.kernel.choose import Choice, named
from ringup.compiler.schedule.kernel import Kernel
from ringup.compiler.schedule.signature import Signature
from ringup.compiler.target import target as find_target

LOG = logging.getLogger(__name__)
# The version of the file and of the names in it. A file of another version counts as empty.
VERSION: Final = 1
# The start of a file, without spaces, and how many spaces there may be.
BEGINNING: Final = b'{"version":'
SPACES: Final = 64
MAX_BYTES: Final = 64 << 20
Judge = Literal["card", "model", "virtual"]
# Trustworthiness. A virtual card's clock says nothing about the chip.
RANK: Final = {"virtual": 0, "model": 1, "card": 2}


class Entry(NamedTuple):
    """The best shape of a kernel: its name among the candidates, the judge that found it, and the costs of it and of
    the heuristic one (us on a card, cycles by the model).
    """

    choice: str
    judge: Judge
    cost: float
    heuristic_cost: float
    kernel: str


class Tuning:
    """The entries of a file. Without a path, they exist in this process only."""

    def __init__(self, path: Path | None = None) -> None:
        """Read the file at `path`, which need not exist yet. Raises nothing: a file that cannot be read counts as
        empty, with a warning.
        """
        self.path = path
        self._entries: dict[str, Entry] = _read(path) if path is not None else {}
        self._changed: dict[str, Entry] = {}
        self._choices: dict[str, Choice | None] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, signature: Signature, target: str) -> Entry | None:
        """Return the entry of a kernel."""
        return self._entries.get(key_of(signature, target))

    def choice(self, kernel: Kernel, signature: Signature, target: str) -> Choice | None:
        """Return the best shape found, None for the heuristic one or if nothing is known."""
        key = key_of(signature, target)
        found = self._entries.get(key)
        if found is None:
            return None
        if key not in self._choices:
            made = named(kernel, find_target(target).traits, found.choice)
            self._choices[key] = None if made is None or made.is_heuristic else made.choice
        return self._choices[key]

    def keep(self, signature: Signature, target: str, entry: Entry) -> None:
        """Keep an entry; `save` writes it. It does not replace an entry of a more trustworthy judge (`RANK`)."""
        key = key_of(signature, target)
        before = self._entries.get(key)
        if before is not None and RANK[before.judge] > RANK[entry.judge]:
            return
        self._entries[key] = self._changed[key] = entry
        self._choices.pop(key, None)

    def save(self) -> None:
        """Merge new entries into the file, which others may have written since. Raises OSError."""
        if self.path is None or not self._changed:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        entries = _read(self.path) | self._changed
        document = {"version": VERSION, "kernels": {key: one._asdict() for key, one in sorted(entries.items())}}
        write_whole(self.path, json.dumps(document, indent=1).encode())
        self._entries, self._changed = entries | self._entries, {}


def could_be(path: Path) -> bool:
    """Return whether `save` may overwrite a file: a tuning file, even a truncated one, an empty file, a missing one, or
    something that is not an ordinary file.
    """
    if not path.is_file():
        return True
    with path.open("rb") as file:
        begins = b"".join(file.read(len(BEGINNING) + SPACES).split())
    return begins.startswith(BEGINNING) or BEGINNING.startswith(begins)


def key_of(signature: Signature, target: str) -> str:
    """Return the key of a kernel's entry. It is the same in every process."""
    return f"{target}:{sha256(repr(signature).encode()).hexdigest()[:32]}"


def _read(path: Path) -> dict[str, Entry]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        LOG.warning("%s: cannot be read (%s); kernels get their heuristic shapes", path, error.strerror)
        return {}
    try:
        if len(data) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES >> 20} MiB")  # noqa: TRY301
        document = json.loads(data)
        if document["version"] != VERSION:
            LOG.info("%s: written by another version; not used", path)
            return {}
        return {str(key): _entry(row) for key, row in document["kernels"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        LOG.warning("%s: damaged (%s); kernels get their heuristic shapes", path, error)
        return {}


# The condition that each part of an entry must meet.
_PARTS: Final[dict[str, Callable[[Any], bool]]] = {
    "choice": lambda one: isinstance(one, str),
    "judge": lambda one: one in RANK,
    "cost": lambda one: isinstance(one, (int, float)) and not isinstance(one, bool),
    "heuristic_cost": lambda one: isinstance(one, (int, float)) and not isinstance(one, bool),
    "kernel": lambda one: isinstance(one, str),
}


def _entry(row: Any) -> Entry:
    for name, fits in _PARTS.items():
        if not fits(row[name]):
            raise ValueError(f"{name} is {row[name]!r}")
    return Entry(**{name: row[name] for name in _PARTS})

"""The handlers of this process, by form: each is compiled once, together with others that the same program needs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.translator.handlers import module
from ringup.silicon.shader.host.code_cache import key_of
from ringup.silicon.shader.host.native import HostCode, objects_of, processor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ringup.silicon.shader.amd.translator.forms import Form
    from ringup.silicon.shader.host.code_cache import CodeCache

# Levels of LLVM's code generation for handlers and for what they call. FIRST compiles in a third of BETTER's time.
# BETTER's code takes two thirds as long as FIRST's, where it accesses memory and multiplies matrices.
FIRST, BETTER = 0, 1
# Batches kept, about 40 KB each. Programs keep those that they use.
MAX_BATCHES = 1024


@dataclass(eq=False, slots=True)
class Batch:
    """Handlers that were compiled together. `key` is their name on disk."""

    key: str
    names: tuple[str, ...]
    objects: Sequence[bytes]
    code: HostCode
    folders: set[str] = field(default_factory=set)  # where they are kept


class Handlers:
    """The handlers for one kind of processor, compiled at one level. Several threads may ask for them."""

    def __init__(self, cpu: str, level: int) -> None:
        self._cpu, self._level = cpu, level
        self._lock = Lock()
        self._by_name: dict[str, Batch] = {}
        # by last use, oldest first
        self._batches: dict[str, Batch] = {}

    def of(self, forms: Mapping[str, Form], kept: CodeCache | None) -> dict[str, Batch]:
        """Return the batches of some forms' handlers, by name; write those that are new, and keep them on disk."""
        with self._lock:
            found = {name: self._by_name[name] for name in forms if name in self._by_name}
            missing = [form for name, form in forms.items() if name not in found]
            if missing:
                names = tuple(one.name for one in missing)
                text, declarations = module(missing)
                level = self._level
                objects = objects_of(text, level=level, cpu=self._cpu, declarations=declarations, helper_level=level)
                found |= dict.fromkeys(names, self._add(key_of(self._dependences(names)), names, objects))
            for one in dict.fromkeys(found.values()):
                self._use(one, kept)
        return found

    def loaded(self, keys: Iterable[str], kept: CodeCache) -> dict[str, Batch] | None:
        """Return batches that are in memory or on disk, by the handlers' names; None if one is missing."""
        with self._lock:
            found: dict[str, Batch] = {}
            for key in keys:
                batch = self._batches.get(key)
                if batch is None:
                    parts = kept.read(key)
                    if parts is None:
                        return None
                    batch = self._add(key, tuple(json.loads(parts[0])), parts[1:])
                    batch.folders.add(str(kept.folder))
                self._use(batch, kept)
                found |= dict.fromkeys(batch.names, batch)
        return found

    def _dependences(self, names: tuple[str, ...]) -> list[bytes]:
        head = f"handlers {self._level} {processor(self._cpu)}"
        return [head.encode(), *(one.encode() for one in sorted(names))]

    def _add(self, key: str, names: tuple[str, ...], objects: Sequence[bytes]) -> Batch:
        batch = Batch(key, names, objects, HostCode(objects, level=self._level, cpu=self._cpu))
        self._batches[key] = batch
        for name in names:
            self._by_name.setdefault(name, batch)
        if len(self._batches) > MAX_BATCHES:
            oldest = self._batches.pop(next(iter(self._batches)))
            for name in oldest.names:
                if self._by_name.get(name) is oldest:
                    del self._by_name[name]
        return batch

    def _use(self, batch: Batch, kept: CodeCache | None) -> None:
        """Note that a batch is used, and keep it on disk."""
        if batch.key in self._batches:
            self._batches[batch.key] = self._batches.pop(batch.key)
        if kept is not None and str(kept.folder) not in batch.folders:
            kept.write(batch.key, [json.dumps(batch.names).encode(), *batch.objects])
            batch.folders.add(str(kept.folder))


@cache
def handlers(cpu: str, level: int) -> Handlers:
    """Return this process's handlers for LLVM's name of a processor, empty for the host."""
    return Handlers(cpu, level)

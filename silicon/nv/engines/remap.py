"""Components of elements: each component of the target comes from one of the source, from a constant, or stays.

Source: NVC7B5_SET_REMAP_COMPONENTS of clc7b5.h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ringup.autogen.nv import methods_copy as methods
from ringup.silicon.nv.engines.engine import Refused
from ringup.silicon.nv.engines.surfaces import Bytes

CONST_A, CONST_B, NO_WRITE = (
    methods.SET_REMAP_COMPONENTS_DST_X_CONST_A,
    methods.SET_REMAP_COMPONENTS_DST_X_CONST_B,
    methods.SET_REMAP_COMPONENTS_DST_X_NO_WRITE,
)


@dataclass(frozen=True, slots=True)
class Remap:
    """How elements of `sources` components become elements of one component for each of `places`.

    A place is the number of a component of the source, or CONST_A, CONST_B, NO_WRITE. `size` is that of a component in
    bytes, `constants` are the two constants' bytes.
    """

    size: int
    sources: int
    places: tuple[int, ...]
    constants: tuple[bytes, bytes]

    @classmethod
    def of(cls, word: methods.SET_REMAP_COMPONENTS, const_a: int, const_b: int) -> Remap:
        """Read the methods. Raises `Refused` for a component that the source does not have.

        GUESS: a constant's low bytes are used for components of less than four bytes.
        """
        size, sources = word.component_size + 1, word.num_src_components + 1
        places = (word.dst_x, word.dst_y, word.dst_z, word.dst_w)[: word.num_dst_components + 1]
        for place in places:
            if place > NO_WRITE or sources <= place < CONST_A:
                raise Refused(f"a component comes from {place}, of {sources} in the source")
        return cls(size, sources, places, (const_a.to_bytes(4, "little")[:size], const_b.to_bytes(4, "little")[:size]))

    @property
    def source_bytes(self) -> int:
        """The bytes of an element of the source."""
        return self.size * self.sources

    @property
    def target_bytes(self) -> int:
        """The bytes of an element of the target."""
        return self.size * len(self.places)

    def apply(self, given: Callable[[], Bytes], kept: Callable[[], Bytes], width: int, height: int) -> Bytes:
        """Return lines of the target, (height, width * target_bytes).

        `given` reads the source; it is called only if a component comes from there, so a fill needs no source. `kept`
        reads the target, and is called only if a component stays.
        """
        shape = (height, width, len(self.places), self.size)
        out = kept().reshape(shape).copy() if NO_WRITE in self.places else np.empty(shape, np.uint8)
        uses_source = any(place < CONST_A for place in self.places)
        source = given().reshape(height, width, self.sources, self.size) if uses_source else out
        for component, place in enumerate(self.places):
            if place < CONST_A:
                out[:, :, component] = source[:, :, place]
            elif place != NO_WRITE:
                out[:, :, component] = np.frombuffer(self.constants[place - CONST_A], np.uint8)
        return out.reshape(height, width * self.target_bytes)

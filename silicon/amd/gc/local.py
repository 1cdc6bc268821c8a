"""A graphics core among several (an XCC): its engines' view of the registers, and the node that its interrupts name.

Source: gfx_v9_4_3.c (NORMALIZE_XCC_REG_OFFSET and its ranges), amdgpu_irq.h (NODEID_MAX and the
node ids).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ringup.silicon.amd.common.parts import Board, InterruptSink
from ringup.silicon.common.cells import Cells, Door, RegisterSpace

# in dwords: packets name the registers of their own core by the first core's addresses
RANGES = ((0x2000, 0x3400), (0xA000, 0x1_0000))
DISTANCE_BYTES = 0x4_0000
CORES_PER_DIE = 2
# an I/O die's own node, and those of its cores
NODES_PER_DIE = 4


class LocalSpace(RegisterSpace):
    """The card's register bus, where the first core's addresses reach core `number`."""

    def __init__(self, space: RegisterSpace, number: int) -> None:
        super().__init__()
        self._space, self._offset = space, number * DISTANCE_BYTES

    def _place(self, address: int) -> int:
        inside = any(first <= address >> 2 < end for first, end in RANGES)
        return address + self._offset if inside else address

    def attach(self, cells: Cells) -> None:
        """Put a block's registers on the card's bus."""
        self._space.attach(cells)

    def door(self, first: int, size_bytes: int, read: Callable[[int], int], write: Callable[[int, int], None]) -> Door:
        """Map a range of the card's addresses to functions."""
        return self._space.door(first, size_bytes, read, write)

    def close(self, door: Door) -> None:
        """Remove a door from the card's bus."""
        self._space.close(door)

    def owner(self, address: int) -> Cells | None:
        """Return the block that an address belongs to."""
        return self._space.owner(self._place(address))

    def answers(self, address: int) -> bool:
        """Return whether a block or a door has an address now."""
        return self._space.answers(self._place(address))

    def name(self, address: int) -> str:
        """Return `block.REGISTER` for an address, or the address itself."""
        return self._space.name(self._place(address))

    def read(self, address: int) -> int:
        """Read a register."""
        return self._space.read(self._place(address))

    def write(self, address: int, value: int) -> None:
        """Write a register."""
        self._space.write(self._place(address), value)


class Node:
    """The interrupt handler as the blocks of one node see it."""

    def __init__(self, sink: InterruptSink, node_id: int) -> None:
        self._sink, self._node_id = sink, node_id

    def interrupt(
        self,
        client_id: int,
        source_id: int,
        *,
        ring_id: int = 0,
        vmid: int = 0,
        pasid: int = 0,
        data: tuple[int, ...] = (),
        node_id: int = 0,
    ) -> None:
        """Queue one entry with the node's number."""
        self._sink.interrupt(
            client_id, source_id, ring_id=ring_id, vmid=vmid, pasid=pasid, data=data, node_id=node_id or self._node_id
        )


def node_of_die(die: int) -> int:
    """Return the node of an I/O die's own blocks."""
    return die * NODES_PER_DIE


def node_of_core(core: int) -> int:
    """Return the node of a graphics core. GUESS: the cores of a die have the numbers after its own."""
    return node_of_die(core // CORES_PER_DIE) + core % CORES_PER_DIE + 1


def board_of(board: Board, core: int) -> Board:
    """Return the board as the blocks of a core see it."""
    return replace(board, space=LocalSpace(board.space, core))

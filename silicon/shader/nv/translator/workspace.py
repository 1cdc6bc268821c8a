"""Host memory in which a launch's warps run: their states, shared and local memory, and the context of translated code.

Launches of one shape use the same memory one after another, since making it takes longer than a small launch runs.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ringup.silicon.shader.host.context import Word
from ringup.silicon.shader.host.scheduler import LDS_SPARE_BYTES, REGION_WORDS
from ringup.silicon.shader.nv.state import LANES
from ringup.silicon.shader.nv.translator import layout
from ringup.silicon.shader.nv.translator.layout import Field, Own

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint32]
    Wide = NDArray[np.uint64]

STATE_ALIGN = 64
# Workspaces without a launch that are kept, and how big one may be for that.
KEPT, KEPT_BYTES = 8, 64 << 20
_MISS = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64
)
_INTERPRET = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64, ctypes.c_uint64)


class Owner(Protocol):
    """A launch that runs in a workspace: what translated code calls."""

    def find_region(self, site: int, row: int, gpu_va: int, *, write: bool) -> bool:
        """Write a region of memory to a site and its row of the table; return whether there is one."""
        ...

    def interpret(self, group: int, warp: int, at: int) -> bool:
        """Execute the instruction at a place; return whether the warp may go on."""
        ...


class Form(NamedTuple):
    """What a workspace is made for: groups at once, threads of a group by axis, words and bytes of memory."""

    resident: int
    block: tuple[int, int, int]
    registers: int
    shared_bytes: int
    local_bytes: int
    sites: int

    @property
    def threads(self) -> int:
        """How many threads a group has."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps(self) -> int:
        """How many warps a group has."""
        return -(-self.threads // LANES)


def _address(array: NDArray[np.generic]) -> int:
    return int(array.__array_interface__["data"][0])


class Workspace:
    """Memory of one form. `states` are `(group, warp, word)`, `shared` `(group, byte)`, `local` is
    `(group, warp, word, lane)`, or None if a launch has no local memory.
    """

    def __init__(self, form: Form) -> None:
        self.form = form
        self.owner: Owner | None = None
        resident, warps = form.resident, form.warps
        words = layout.REGISTERS + LANES * form.registers
        count = resident * warps
        raw = np.zeros(count * words + STATE_ALIGN, np.uint32)
        skip = (-_address(raw) % STATE_ALIGN) // 4
        self.states: Words = raw[skip : skip + count * words].reshape(resident, warps, words)
        self.slots: Wide = np.zeros((resident, warps), np.uint64)
        stride = -(-(form.shared_bytes + LDS_SPARE_BYTES) // 64) * 64
        self.shared: NDArray[np.uint8] = np.zeros((resident, stride), np.uint8)
        self.local: Words | None = None
        if form.local_bytes:
            self.local = np.zeros((resident, warps, -(-form.local_bytes // 4), LANES), np.uint32)
        self.context: Wide = np.zeros(layout.CONTEXT_WORDS, np.uint64)
        self.sites: Wide = np.zeros((max(form.sites, 1), 4), np.uint64)
        self.regions: Wide = np.zeros(REGION_WORDS, np.uint64)
        self._callbacks = _MISS(self._on_miss), _INTERPRET(self._on_interpret)
        miss, interpret = (ctypes.cast(one, ctypes.c_void_p).value or 0 for one in self._callbacks)
        self._fixed = {
            Word.MISS: miss, Word.INTERPRET: interpret, Word.REGIONS: _address(self.regions),
            Own.SITES: _address(self.sites), Word.LDS_SIZE: form.shared_bytes, Own.LOCAL_SIZE: form.local_bytes,
        }  # fmt: skip
        self.places = _address(self.context), _address(self.states), self.states.strides[1], _address(self.slots)
        self.template = self._template()
        shared = _address(self.shared) + np.arange(resident, dtype=np.uint64) * np.uint64(stride)
        self._shared_places = shared.view(np.uint32).reshape(resident, 1, 2)
        if self.local is not None:
            local = _address(self.local) + np.arange(count, dtype=np.uint64) * np.uint64(self.local.strides[1])
            self._local_places = local.view(np.uint32).reshape(resident, warps, 2)

    @property
    def size_bytes(self) -> int:
        """The bytes of its big arrays."""
        local = 0 if self.local is None else self.local.nbytes
        return self.states.nbytes + self.shared.nbytes + local

    def _template(self) -> Words:
        """Return the words before the registers of each warp of a group that begins."""
        form = self.form
        found: Words = np.zeros((form.warps, layout.REGISTERS), np.uint32)
        number = np.arange(form.warps * LANES, dtype=np.uint32).reshape(form.warps, LANES)
        x, y, _ = form.block
        for axis, ids in enumerate((number % x, number // x % y, number // (x * y))):
            at = layout.TIDS + LANES * axis
            found[:, at : at + LANES] = ids
        for warp in range(form.warps):
            lanes = (1 << min(LANES, form.threads - warp * LANES)) - 1
            found[warp, [Field.ACTIVE, Field.ALIVE]] = lanes
        found[:, Field.LAST] = LANES - 1
        return found

    def take(self, owner: Owner) -> None:
        """Give the workspace to a launch. States and shared memory keep what they had."""
        self.owner = owner
        self.context[:] = 0
        for word, value in self._fixed.items():
            self.context[word] = value
        self.forget()

    def forget(self) -> None:
        """Forget where memory is."""
        self.sites[:] = 0
        self.regions[:] = 0

    def begin(self, idents: list[tuple[int, int, int]], *, first: bool, forgets_values: bool) -> None:
        """Set up the warps of some groups; `first`: no group of the launch has run here. `forgets_values`: no register
        was given a value.
        """
        count, states, template = len(idents), self.states[: len(idents)], self.template
        # Registers and convergence barriers keep what they had, as on a card.
        states[:, :, : layout.CONVERGENCE] = template[:, : layout.CONVERGENCE]
        end = layout.REGISTERS if first else layout.WAITS_AT
        states[:, :, layout.PCS : end] = template[:, layout.PCS : end]
        states[:, :, Field.CTAID_X : Field.CTAID_X + 3] = np.array(idents, np.uint32)[:, None, :]
        states[:, :, Field.SHARED : Field.SHARED + 2] = self._shared_places[:count]
        self.shared[:count] = 0
        if self.local is not None:
            states[:, :, Field.LOCAL : Field.LOCAL + 2] = self._local_places[:count]
        if forgets_values:
            states[:, :, layout.DEFINED : layout.REGISTERS] = 0
        self.slots[:count] = layout.Slot.READY

    def _on_miss(self, _: int, site: int, row: int, gpu_va: int, write: int) -> int:
        return int(self.owner is not None and self.owner.find_region(site, row, gpu_va, write=bool(write)))

    def _on_interpret(self, state: int, at: int) -> int:
        group, warp = divmod((state - self.places[1]) // self.places[2], self.form.warps)
        return int(self.owner is None or not self.owner.interpret(group, warp, at))


class Workspaces:
    """The workspaces that no launch uses."""

    def __init__(self) -> None:
        self._free: list[Workspace] = []

    def take(self, form: Form, owner: Owner) -> Workspace:
        """Return a workspace for a launch."""
        found = next((one for one in self._free if one.form == form), None)
        if found is None:
            found = Workspace(form)
        else:
            self._free.remove(found)
        found.take(owner)
        return found

    def give(self, workspace: Workspace) -> None:
        """Take a workspace back from a launch that has ended."""
        workspace.owner = None
        if workspace.size_bytes <= KEPT_BYTES:
            self._free = [workspace, *self._free][:KEPT]

"""The booter, a signed program that SEC2 runs: it loads GSP-RM into the protected region and starts it on the GSP's
RISC-V core, and takes both down again. Before a sleep it saves the region, and afterwards it loads that instead.

Sources: GspFwWprMeta in gsp_fw_wpr_meta.h; kernel_gsp_tu102.c (the layout that the driver computes),
kernel_gsp_booter_tu102.c (mailboxes).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ringup.autogen.nv import gsp_boot
from ringup.autogen.nv.gsp_boot import GspFwWprMeta
from ringup.silicon.common.faults import Faults
from ringup.silicon.nv.board.falcon import Falcon, Target
from ringup.silicon.nv.chips.row import ChipRow
from ringup.silicon.nv.common.faults import BOOTER_ERROR
from ringup.silicon.nv.firmware import saved
from ringup.silicon.nv.firmware.region import Fetch, Loaded, LoadError, Refused, check_layout, install
from ringup.silicon.nv.memory.protected import ProtectedVram


class Booter:
    """Both programs. `gsp` is the falcon that GSP-RM runs on; `on_start` starts what is behind it."""

    def __init__(
        self, chip: ChipRow, vram: ProtectedVram, gsp: Falcon, on_start: Callable[[Loaded], None], faults: Faults
    ) -> None:
        self._chip, self._vram, self._gsp, self._on_start, self._faults = chip, vram, gsp, on_start, faults

    def load(self, falcon: Falcon) -> int:
        """Check and copy GSP-RM as the metadata says whose bus address the mailboxes hold; return 0 or an error."""
        address = falcon.mailbox0.value | falcon.mailbox1.value << 32
        injected = self._faults.get(BOOTER_ERROR)
        if injected is not None:
            return injected if injected > 0 else 1
        try:
            loaded = self._load(falcon, address)
        except Refused as refusal:
            falcon.mistake("the booter: {}", str(refusal))
            return int(refusal.error)
        self._on_start(loaded)
        return 0

    def unload(self, falcon: Falcon) -> int:
        """Take the protected region down; return 0 or an error."""
        if self._gsp.riscv_active:
            falcon.mistake("the booter: it is to unload GSP-RM while the GSP runs it")
            return int(LoadError.GSP_RUNS)
        if (falcon.mailbox0.value, falcon.mailbox1.value) != (0xFF, 0xFF):
            try:
                address = falcon.mailbox0.value | falcon.mailbox1.value << 32
                saved.save(self._vram, _host(falcon), partial(falcon.store, Target.COHERENT_SYSMEM), address)
            except Refused as refusal:
                falcon.mistake("the booter: {}", str(refusal))
                return int(refusal.error)
        # GUESS: the region is scrubbed, so that nothing secret stays
        self._vram.clear(self._vram.first, self._vram.end)
        self._vram.protect(0, 0)
        return 0

    def _load(self, falcon: Falcon, address: int) -> Loaded:
        raw = falcon.fetch(Target.COHERENT_SYSMEM, address, GspFwWprMeta.SIZE)
        meta = GspFwWprMeta.view(bytearray(raw))
        if meta.magic == gsp_boot.GSP_FW_SR_META_MAGIC:
            return saved.restore(self._chip.name, self._chip.vram_bytes, self._vram, _host(falcon), address)
        if meta.magic != gsp_boot.GSP_FW_WPR_META_MAGIC or meta.revision != 1 or meta.verified:
            raise Refused(LoadError.NO_METADATA, f"there is no metadata at bus address {address:#x}")
        check_layout(meta, self._chip.vram_bytes)
        self._check_frts(meta)
        arguments = self._gsp.mailbox0.value | self._gsp.mailbox1.value << 32
        return install(self._chip.name, _host(falcon), self._vram, meta, arguments)

    def _check_frts(self, meta: GspFwWprMeta) -> None:
        """Check that the protected region is what FWSEC leaves on this chip: FRTS data, or nothing. GUESS: a region
        that is up already is refused on a chip without FRTS.
        """
        if not self._chip.has_frts:
            if meta.frtsSize or self._vram.up:
                raise Refused(LoadError.NO_FRTS, f"{self._chip.name} has no FRTS data, and none may be protected")
        elif not self._vram.up or self._vram.first != meta.frtsOffset:
            raise Refused(LoadError.NO_FRTS, f"FWSEC has not protected {meta.frtsOffset:#x}")


def _host(falcon: Falcon) -> Fetch:
    """Return what reads the host's memory as a falcon does."""
    return lambda address, size_bytes: falcon.fetch(Target.COHERENT_SYSMEM, address, size_bytes)

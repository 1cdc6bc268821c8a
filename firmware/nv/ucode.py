"""A falcon program as it goes into a falcon's memories, with the signatures of which the host writes one into it.

FWSEC (from a card's ROM) and the booters (from files) have the same form. Source: OGKM g_kernel_gsp_nvoc.h,
KernelGspFlcnUcodeBootDirect, …BootWithLoader and …BootFromHs; kernel_gsp_booter.c, s_patchBooterUcodeSignature;
kernel_gsp_frts_tu102.c, s_executeFwsec_TU102; nouveau falcon/ga100.c and gsp/ga102.c, the signature functions.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

from ringup.errors import FirmwareError
from ringup.firmware.nv.containers import rounded_up

LOG = logging.getLogger(__name__)
RSA3K_BYTES = 384  # of a signature that the boot ROM checks; a Turing falcon's own has 16


@dataclass(frozen=True, slots=True)
class Part:
    """A range of the image and its place in a falcon's memory.

    `memory_bytes` is the physical address in IMEM or DMEM. `virtual_bytes` is the address that IMEM blocks are tagged
    with; it has no meaning for data.
    """

    offset_bytes: int
    size_bytes: int
    memory_bytes: int
    virtual_bytes: int = 0

    @property
    def end_bytes(self) -> int:
        return self.offset_bytes + self.size_bytes

    @property
    def padded_bytes(self) -> int:
        """The size in whole blocks of 256 bytes, as DMA loads it."""
        return rounded_up(self.size_bytes)


@dataclass(frozen=True, slots=True)
class DmemMapper:
    """FWSEC's interface for commands; all offsets are bytes in DMEM.

    The host writes the command's number to `init_cmd` and its arguments to `cmd_in_buffer`.
    """

    offset_bytes: int
    init_cmd_offset_bytes: int
    cmd_in_buffer_offset_bytes: int
    cmd_in_buffer_size_bytes: int
    cmd_out_buffer_offset_bytes: int
    cmd_out_buffer_size_bytes: int
    ucode_build_time_stamp: int
    ucode_feature: int
    ucode_cmd_mask0: int
    ucode_cmd_mask1: int


@dataclass(frozen=True, slots=True)
class FalconUcode:
    """A checked falcon program.

    `image` is what DMA reads: code and data, filled with zeros to whole blocks of 256 bytes, without a signature.
    `non_secure` is code that starts unsigned and enters the secure code; a falcon whose boot ROM checks signatures has
    none. `boot_bytes` is the virtual address where the program starts: what goes into BOOTVEC, unless `needs_loader`.

    `signature_offset_bytes` is where in the image a signature goes; None if the program is not patched.
    `pkc_data_offset_bytes` is the same place in DMEM, for BROM_PARAADDR. `engine_id_mask` and `ucode_id` are for
    BROM_ENGIDMASK and BROM_CURR_UCODE_ID, and name the fuse that holds the version of the signature.

    `signature_versions` has a bit for each fuse version with a signature (FWSEC); None if signatures are ordered from
    the newest version down to 0 (booter). `needs_loader`: the generic loader loads the program and enters it; see
    `loader`.
    """

    name: str
    image: bytes = field(repr=False)
    non_secure: Part | None
    secure: Part
    data: Part
    boot_bytes: int
    signatures: tuple[bytes, ...] = field(default=(), repr=False)
    signature_offset_bytes: int | None = None
    pkc_data_offset_bytes: int = 0
    engine_id_mask: int = 0
    ucode_id: int = 0
    signature_versions: int | None = None
    needs_loader: bool = False
    mapper: DmemMapper | None = None

    def signature(self, fuse_version: int) -> bytes:
        """Return the signature for a card's fuse version: 0, or 1 + the highest set bit of the fuse of `ucode_id`.

        Raises `FirmwareError` if the program has none of that version: the card's fuses refuse older programs.
        """
        if not self.signatures:
            raise FirmwareError(f"{self.name}: the program has no signatures")
        if self.signature_versions is None:
            index = len(self.signatures) - 1 - fuse_version if len(self.signatures) > 1 else 0
            known = f"0 to {len(self.signatures) - 1}"
        else:
            bit = 1 << fuse_version
            index = (self.signature_versions & (bit - 1)).bit_count() if self.signature_versions & bit else -1
            known = ", ".join(str(n) for n in range(16) if self.signature_versions >> n & 1) or "none"
        if not 0 <= index < len(self.signatures):
            raise FirmwareError(
                f"{self.name}: no signature for fuse version {fuse_version}; the program has those of {known}"
                f" ({len(self.signatures)} signatures). It is too old or too new for this card"
            )
        return self.signatures[index]

    def signed(self, fuse_version: int) -> FalconUcode:
        """Return the program with the signature of a fuse version in its image; see `signature`.

        A program without a place for a signature, such as Turing's FWSEC, is returned as it is.
        """
        if self.signature_offset_bytes is None:
            return self
        return self._patched(self.signature_offset_bytes, self.signature(fuse_version))

    def commanded(self, init_cmd: int, arguments: bytes) -> FalconUcode:
        """Return FWSEC with a command in its DMEM: its number and its arguments; see `fwsec`.

        Raises `FirmwareError` for a program without that interface, and for arguments that do not fit its buffer.
        """
        mapper = self.mapper
        if mapper is None:
            raise FirmwareError(f"{self.name}: the program has no interface for commands")
        room = self.data.size_bytes - mapper.cmd_in_buffer_offset_bytes
        if room < len(arguments):
            raise FirmwareError(
                f"{self.name}: command {init_cmd:#x} has {len(arguments)} bytes of arguments;"
                f" the program's data has {room} from its buffer on"
            )
        # QUIRK: the buffer may be stated too small. OGKM s_vbiosPatchInterfaceData reports it, and goes on
        if mapper.cmd_in_buffer_size_bytes < len(arguments):
            LOG.info(
                "%s: command %#x has %d bytes of arguments; the program's buffer is stated with %d",
                self.name,
                init_cmd,
                len(arguments),
                mapper.cmd_in_buffer_size_bytes,
            )
        start = self.data.offset_bytes
        numbered = self._patched(start + mapper.init_cmd_offset_bytes, init_cmd.to_bytes(4, "little"))
        return numbered._patched(start + mapper.cmd_in_buffer_offset_bytes, arguments)

    def _patched(self, offset_bytes: int, data: bytes) -> FalconUcode:
        image = self.image[:offset_bytes] + data + self.image[offset_bytes + len(data) :]
        return replace(self, image=image)

    def bytes_of(self, part: Part) -> bytes:
        """Return a part's bytes in whole blocks; the last one is filled with what follows in the image, or zeros."""
        found = self.image[part.offset_bytes : part.offset_bytes + part.padded_bytes]
        return found.ljust(part.padded_bytes, b"\0")

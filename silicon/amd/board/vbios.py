"""The VBIOS: a PCI expansion ROM with AMD's ATOM tables, as in a card's flash.

Source: atomfirmware.h (tables), amdgpu atom.c and amdgpu_bios.c (what a reader checks), PCI Firmware Specification 3.2,
chapter 5.
"""

from __future__ import annotations

import struct

from ringup.autogen.amd import atom
from ringup.autogen.regdb import open_chip
from ringup.autogen.structs import memory
from ringup.silicon.amd.board.chips import ChipRow
from ringup.silicon.common.cells import block_map

ROM_BYTES = 64 << 10
BLOCK = 512  # unit of lengths
SIGNATURE = b"\x55\xaa"
ATI_MAGIC = b" 761295520"  # AMD_VBIOS_SIGNATURE of amdgpu_bios.c
ATI_MAGIC_OFFSET = 0x30
PCIR_POINTER = 0x18
STRINGS = 0x100
FIRST_TABLE = 0x400
HEADER = 0x2C0
ROM_HEADER_REVISION = (2, 2)
LAST_IMAGE = 0x80
OPCODE_OR_REGISTER, OPCODE_END = 0x0D, 0x5B  # atom.c, opcode_table
SOURCE_IMMEDIATE_DWORD = 0x05  # attribute: source is an immediate, 32 bits
# BIOS_SCRATCH_7, ATOM_S7_ASIC_INIT_COMPLETE_MASK
SCRATCH_7, INIT_COMPLETE = 7, 0x200
HBM3 = 0x80  # ATOM_DGPU_VRAM_TYPE_HBM3


class _Rom:
    """A ROM image under construction: data is appended, tables get a header."""

    def __init__(self) -> None:
        self.data = bytearray(b"\xff" * ROM_BYTES)
        self.next = FIRST_TABLE

    def put(self, offset: int, data: bytes) -> None:
        self.data[offset : offset + len(data)] = data

    def place(self, data: bytes) -> int:
        """Store bytes at the next free offset and return it."""
        at = self.next
        self.put(at, data)
        self.next += -(-len(data) // 4) * 4
        return at

    def table(self, view: object, size_bytes: int, revision: tuple[int, int]) -> int:
        """Store a data table. Its first four bytes are its size and revisions."""
        return self.place(struct.pack("<HBB", size_bytes, *revision) + bytes(memory(view)[4:size_bytes]))


def build(chip: ChipRow) -> bytes:
    """Return the ROM image of a chip, `ROM_BYTES` long."""
    rom = _Rom()
    gpu = next(row for row in chip.functions if row.name == "gpu")
    rom.put(0, bytes(FIRST_TABLE))
    # the entry point returns at once
    rom.put(0, SIGNATURE + bytes([ROM_BYTES // BLOCK, 0xCB]))
    rom.put(ATI_MAGIC_OFFSET, ATI_MAGIC)
    rom.put(atom.OFFSET_TO_VBIOS_DATE, chip.vbios_date.encode() + b"\0")
    _strings(rom, chip)
    pcir = 0x1C0
    rom.put(PCIR_POINTER, struct.pack("<H", pcir))
    class_code = gpu.class_code.to_bytes(3, "little")
    rom.put(
        pcir,
        struct.pack("<4sHHHHB3sHHBBH", b"PCIR", gpu.vendor_id, gpu.device_id, 0, 0x18, 0, class_code,
                    ROM_BYTES // BLOCK, 0, 0, LAST_IMAGE, 0),
    )  # fmt: skip
    _header(rom, commands=_commands(rom, chip), tables=_data(rom, chip), subsystem=gpu.subsystem)
    rom.data[-1] = 0
    rom.data[-1] = -sum(rom.data) & 0xFF  # the sum of all bytes is 0
    return bytes(rom.data)


def _strings(rom: _Rom, chip: ChipRow) -> None:
    """Store part number, ASIC, bus, memory; then CR LF and the product's name; then the version."""
    four = (chip.part_number, chip.name.upper(), "PCI_EXPRESS", "HBM" if chip.memory_type == HBM3 else "GDDR6")
    text = b"".join(word.encode() + b"\0" for word in four) + b"\r\n" + chip.product.encode() + b"\0"
    rom.put(STRINGS, text + chip.vbios_version.encode() + b"\0")
    rom.data[atom.OFFSET_TO_GET_ATOMBIOS_NUMBER_OF_STRINGS] = len(four)
    rom.put(atom.OFFSET_TO_GET_ATOMBIOS_STRING_START, struct.pack("<H", STRINGS))


def _header(rom: _Rom, *, commands: int, tables: int, subsystem: tuple[int, int]) -> None:
    size = atom.atom_rom_header_v2_2.SIZE
    header = atom.atom_rom_header_v2_2(
        subsystem_vendor_id=subsystem[0],
        subsystem_id=subsystem[1],
        masterhwfunction_offset=commands,
        masterdatatable_offset=tables,
    )
    body = bytearray(memory(header)[:size])
    body[:8] = struct.pack("<HBB4s", size, *ROM_HEADER_REVISION, b"ATOM")
    rom.put(HEADER, bytes(body))
    rom.put(atom.OFFSET_TO_ATOM_ROM_HEADER_POINTER, struct.pack("<H", HEADER))


def _commands(rom: _Rom, chip: ChipRow) -> int:
    """Store the command tables. `asic_init` only marks the card as posted: the card's own firmware has done
    the rest.
    """
    scratch = block_map(chip.name, chip.bus.block, 0).addresses[f"BIF_BX0_BIOS_SCRATCH_{SCRATCH_7}"] // 4
    code = struct.pack("<BBHI", OPCODE_OR_REGISTER, SOURCE_IMMEDIATE_DWORD, scratch, INIT_COMPLETE) + bytes(
        [OPCODE_END]
    )
    parameters = atom.asic_init_parameters_v2_1.SIZE
    asic_init = rom.place(struct.pack("<HBBBB", 6 + len(code), 2, 1, 0, parameters) + code)
    size = atom.atom_master_command_function_v2_1.SIZE
    listed = atom.atom_master_command_function_v2_1()
    listed.listofcmdfunctions.asic_init = asic_init
    return rom.table(listed, size, (2, 1))


def _data(rom: _Rom, chip: ChipRow) -> int:
    """Store the data tables and return the offset of their list."""
    listed = atom.atom_master_data_table_v2_1()
    places = listed.listOfdatatables
    places.firmwareinfo = _firmware_info(rom, chip)
    places.smu_info = _smu_info(rom, chip)
    if "lsdma" in {place.block for place in open_chip(chip.name).row.places}:
        places.gfx_info = _gfx_info(rom, chip)
    places.vram_info = _vram_info(rom, chip)
    places.umc_info = _umc_info(rom, chip)
    if hasattr(chip.power.interface, "BoardTable_t"):
        board = chip.power.interface.BoardTable_t.SIZE
        places.smc_dpm_info = rom.place(struct.pack("<HBB", 4 + board, 4, 10) + bytes(board))
    # indirect IO programs: none; a byte that is not ATOM_IIO_START ends the list
    places.indirectioaccess = rom.place(struct.pack("<HBB", 8, 1, 1) + bytes(4))
    return rom.table(listed, atom.atom_master_data_table_v2_1.SIZE, (2, 1))


def _firmware_info(rom: _Rom, chip: ChipRow) -> int:
    scratch_0 = block_map(chip.name, chip.bus.block, 0).addresses["BIF_BX0_BIOS_SCRATCH_0"] // 4
    table = atom.atom_firmware_info_v3_4(
        firmware_revision=0x0016_0001,
        bootup_sclk_in10khz=chip.boot_gfx_clock_10khz,
        bootup_mclk_in10khz=chip.boot_memory_clock_10khz,
        firmware_capability=atom.ATOM_FIRMWARE_CAP_FIRMWARE_POSTED,
        bios_scratch_reg_startaddr=scratch_0,
        fw_reserved_size_in_kb=chip.reserved_bytes >> 10,
    )
    return rom.table(table, atom.atom_firmware_info_v3_4.SIZE, (3, 4))


def _smu_info(rom: _Rom, chip: ChipRow) -> int:
    table = atom.atom_smu_info_v4_0(
        core_refclk_10khz=chip.reference_clock_10khz,
        bootup_gfxclk_bypass_10khz=chip.boot_gfx_clock_10khz,
        bootup_socclk_10khz=chip.boot_gfx_clock_10khz,
        bootup_fclk_10khz=chip.boot_gfx_clock_10khz,
    )
    return rom.table(table, atom.atom_smu_info_v4_0.SIZE, (4, 0))


def _gfx_info(rom: _Rom, chip: ChipRow) -> int:
    gc = chip.gc
    lsdma, smuio = (block_map(chip.name, block, 0).addresses for block in ("lsdma", "smuio"))
    table = atom.atom_gfx_info_v3_0(
        max_shader_engines=gc.core.shader_engines,
        max_cu_per_sh=gc.core.wgps_per_array * 2,
        max_sh_per_se=gc.core.arrays_per_engine,
        max_backends_per_se=gc.backends_per_engine,
        max_texture_channel_caches=gc.gl2_channels,
        regaddr_lsdma_queue0_rb_rptr=lsdma["LSDMA_QUEUE0_RB_RPTR"] // 4,
        regaddr_lsdma_queue0_rb_wptr=lsdma["LSDMA_QUEUE0_RB_WPTR"] // 4,
        regaddr_golden_tsc_count_lower=smuio["GOLDEN_TSC_COUNT_LOWER"] // 4,
        golden_tsc_count_lower_refclk=chip.reference_clock_10khz,
        active_wgp_per_se=gc.core.wgps_per_array * gc.core.arrays_per_engine,
        active_rb_per_se=gc.backends_per_engine,
        active_se=gc.core.shader_engines,
    )
    return rom.table(table, atom.atom_gfx_info_v3_0.SIZE, (3, 0))


def _vram_info(rom: _Rom, chip: ChipRow) -> int:
    table = atom.atom_vram_info_header_v3_0(
        vram_module_num=1,
        memory_type=chip.memory_type,
        channel_num=chip.memory_channels,
        channel_width=chip.memory_channel_bits.bit_length() - 1,
        channel_enable=(1 << min(32, chip.memory_channels)) - 1,  # the member has no more bits
    )
    table.vram_module[0].dram_size_per_ch = (chip.vram_bytes >> 20) // chip.memory_channels
    return rom.table(table, atom.atom_vram_info_header_v3_0.SIZE, (3, 0))


def _umc_info(rom: _Rom, chip: ChipRow) -> int:
    table = atom.atom_umc_info_v4_0(
        vram_type=chip.memory_type,
        mem_refclk_10khz=chip.reference_clock_10khz,
        channel_num=chip.memory_channels,
        channel_width=chip.memory_channel_bits.bit_length() - 1,
    )
    return rom.table(table, atom.atom_umc_info_v4_0.SIZE, (4, 0))

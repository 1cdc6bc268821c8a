"""Launch descriptors (QMD): 256 or 384 bytes in memory that say what to launch, and constant bank 0 behind them.

Versions differ by rows that name fields of the generated layouts. Sources: open-gpu-doc clc5c0qmd.h to clcec0qmd.h;
Mesa nak/qmd.rs for the fields that a launch needs.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ringup.autogen.layout import Word
from ringup.autogen.nv import qmdv02_03, qmdv02_04, qmdv03_00, qmdv04_00, qmdv05_00
from ringup.errors import NotSupported
from ringup.queues.nv.launch import Launch
from ringup.queues.nv.program import THREAD_UNIT, LoadedKernel
from ringup.queues.nv.rows import MAX_BANK_BYTES, WARP_THREADS, GenerationRow

BANKS = 8
# bytes: of a descriptor's address; of a constant bank's address (Mesa nvk_min_cbuf_alignment) and size
QMD_ALIGN, BANK_ALIGN, BANK_UNIT = 256, 64, 16
# bytes: of a block's shared memory
SHARED_UNIT = 256
WORD, QUAD, TRIPLE = struct.Struct("<I"), struct.Struct("<Q"), struct.Struct("<3I")


@dataclass(frozen=True, slots=True, kw_only=True)
class QmdRow:
    """The fields of one version. The `..._shift`: how many low bits of a value are not stored."""

    word: type[Word]
    version: str = "qmd_version"
    grid: tuple[str, str, str] = ("cta_raster_width", "cta_raster_height", "cta_raster_depth")
    registers: str = "register_count_v"
    program: tuple[str, str] = ("program_address_lower", "program_address_upper")
    program_shift: int = 0
    shared: str = "shared_memory_size"
    shared_shift: int = 0
    local: str = "shader_local_memory_low_size"
    local_shift: int = 0
    bank: tuple[str, str] = ("constant_buffer_addr_lower", "constant_buffer_addr_upper")
    bank_shift: int = 0
    # fields that are the same in every launch
    fixed: Mapping[str, int] = field(default_factory=dict)


GRID_HOPPER = ("grid_width", "grid_height", "grid_depth")
BANK_HOPPER = ("constant_buffer_addr_lower_shifted6", "constant_buffer_addr_upper_shifted6")
CACHED = {"sm_global_caching_enable": 1}
QMD_ROWS = {
    (2, 3): QmdRow(word=qmdv02_03.QMDV02_03, fixed=CACHED),
    (2, 4): QmdRow(word=qmdv02_04.QMDV02_04, fixed=CACHED),
    (3, 0): QmdRow(word=qmdv03_00.QMDV03_00, fixed=CACHED),
    (4, 0): QmdRow(
        word=qmdv04_00.QMDV04_00,
        version="qmd_minor_version",
        grid=GRID_HOPPER,
        registers="register_count",
        bank=BANK_HOPPER,
        bank_shift=6,
        fixed={"qmd_type": qmdv04_00.QMDV04_00_QMD_TYPE_GRID_CTA},
    ),
    (5, 0): QmdRow(
        word=qmdv05_00.QMDV05_00,
        version="qmd_minor_version",
        grid=GRID_HOPPER,
        registers="register_count",
        program=("program_address_lower_shifted4", "program_address_upper_shifted4"),
        program_shift=4,
        shared="shared_memory_size_shifted7",
        shared_shift=7,
        local="shader_local_memory_low_size_shifted4",
        local_shift=4,
        bank=BANK_HOPPER,
        bank_shift=6,
        # the group that NVK names on Blackwell
        fixed={"qmd_type": qmdv05_00.QMDV05_00_QMD_TYPE_GRID_CTA, "qmd_group_id": 0x1F},
    ),
}
# the same numbers in every version
NO_CALL_LIMIT = qmdv03_00.QMDV03_00_API_VISIBLE_CALL_LIMIT_NO_CHECK
SYSMEMBAR = qmdv03_00.QMDV03_00_CWD_MEMBAR_TYPE_L1_SYSMEMBAR


class Image(NamedTuple):
    """What a launch stores for the card: the descriptor and, at `bank_at`, constant bank 0.

    The address of the bank is missing: `bank_value + (address >> shift)` belongs as 64 bits at `address_at`.
    `params_at`: where the parameters go.
    """

    data: bytes
    bank_at: int
    params_at: int
    address_at: int
    bank_value: int


def shared_config(row: GenerationRow, size_bytes: int) -> int:
    """Return the number by which a descriptor names the smallest configuration of an SM with so much shared memory.

    Source: Mesa nak/qmd.rs, gv100_sm_config_smem_size: units of 4 KB, plus one.
    """
    for config in row.shared_configs:
        if config >= size_bytes:
            return config // 4096 + 1
    raise ValueError(f"an SM of {row.target} has {row.shared_configs[-1]} bytes of shared memory, not {size_bytes}")


def descriptor(row: GenerationRow, loaded: LoadedKernel, launch: Launch, bank_bytes: int) -> Word:
    """Return the descriptor of a launch. Bank 0 has `bank_bytes`; its address is 0."""
    names, kernel = QMD_ROWS[row.qmd], loaded.kernel
    shared = -(-(kernel.shared_bytes + launch.dynamic_shared_bytes) // SHARED_UNIT) * SHARED_UNIT
    # as many blocks as threads allow
    blocks = max(1, min(row.max_blocks_per_sm, row.max_threads_per_sm // max(launch.threads, WARP_THREADS)))
    config = {
        "min_sm_config_shared_mem_size": shared_config(row, shared),
        "max_sm_config_shared_mem_size": shared_config(row, row.shared_configs[-1]),
        "target_sm_config_shared_mem_size": shared_config(row, min(blocks * shared, row.shared_configs[-1])),
    }
    program = loaded.entry_va >> names.program_shift
    values: dict[str, Any] = {
        names.version: row.qmd[1],
        "qmd_major_version": row.qmd[0],
        "api_visible_call_limit": NO_CALL_LIMIT,
        "cwd_membar_type": SYSMEMBAR,
        names.program[0]: program & 0xFFFF_FFFF,
        names.program[1]: program >> 32,
        names.registers: kernel.registers,
        "barrier_count": kernel.barriers,
        names.shared: shared >> names.shared_shift,
        names.local: local_bytes(kernel.local_bytes) >> names.local_shift,
        **names.fixed,
        **config,
        **dict(zip(names.grid, launch.grid, strict=True)),
        **{f"cta_thread_dimension{axis}": count for axis, count in enumerate(launch.block)},
        **_banks(names, loaded, bank_bytes),
    }
    return names.word.at(row.compute_class)(0, **values)


def _banks(names: QmdRow, loaded: LoadedKernel, bank_bytes: int) -> dict[str, tuple[int, ...]]:
    banks = {0: (0, bank_bytes)} | {bank: loaded.bank_va(bank) for bank in loaded.kernel.banks}
    if max(banks) >= BANKS:
        raise NotSupported(f"{loaded.name} uses constant bank {max(banks)}; a launch has {BANKS}")
    valid, invalidate, low, high, sizes = ([0] * BANKS for _ in range(5))
    for bank, (gpu_va, size_bytes) in banks.items():
        stored = gpu_va >> names.bank_shift
        valid[bank] = invalidate[bank] = 1
        low[bank], high[bank] = stored & 0xFFFF_FFFF, stored >> 32
        # whole units of an address (Mesa nvk_cmd_dispatch.c); what lies behind belongs to the same memory
        sizes[bank] = -(-size_bytes // BANK_ALIGN) * (BANK_ALIGN // BANK_UNIT)
    return {
        "constant_buffer_valid": tuple(valid),
        "constant_buffer_invalidate": tuple(invalidate),
        names.bank[0]: tuple(low),
        names.bank[1]: tuple(high),
        "constant_buffer_size_shifted4": tuple(sizes),
    }


def local_bytes(thread_bytes: int) -> int:
    """Return a thread's local memory in whole units."""
    return -(-thread_bytes // THREAD_UNIT) * THREAD_UNIT


def image(row: GenerationRow, loaded: LoadedKernel, launch: Launch) -> Image:
    """Return what a launch stores, but for its parameters and the address of bank 0."""
    kernel, layout = loaded.kernel, row.bank
    params_at = kernel.params_at or layout.params
    if params_at != layout.params:
        raise NotSupported(
            f"{kernel.name} reads its parameters at {params_at:#x} of bank 0, code for {row.target} at"
            f" {layout.params:#x}: compile it for {row.target}"
        )
    bank_bytes = -(-(params_at + kernel.param_bytes) // BANK_ALIGN) * BANK_ALIGN
    if bank_bytes > MAX_BANK_BYTES:
        raise ValueError(f"{kernel.name}: bank 0 has {bank_bytes} bytes; {MAX_BANK_BYTES} is the limit")
    word, names = descriptor(row, loaded, launch, bank_bytes), QMD_ROWS[row.qmd]
    bank_at = -(-row.qmd_bytes // BANK_ALIGN) * BANK_ALIGN
    data = bytearray(-(-(bank_at + bank_bytes) // QMD_ALIGN) * QMD_ALIGN)
    data[: row.qmd_bytes] = int(word).to_bytes(row.qmd_bytes, "little")
    TRIPLE.pack_into(data, bank_at + layout.block, *launch.block)
    TRIPLE.pack_into(data, bank_at + layout.grid, *launch.grid)
    if layout.shared_window is not None:
        QUAD.pack_into(data, bank_at + layout.shared_window, row.shared_window_va)
    QUAD.pack_into(data, bank_at + layout.local_window, row.local_window_va)
    # the "low" part of local memory begins at address 0, and a stack grows down. CUDA's stacks are at the end of the
    # 24 bits of addresses, the "high" part: code that ptxas makes without optimisation (-O0, -G) checks that R1 is
    # there, and traps here
    WORD.pack_into(data, bank_at + layout.stack_top, local_bytes(kernel.local_bytes))
    address_at = word.FIELDS[names.bank[0]].lo // 8
    (bank_value,) = QUAD.unpack_from(data, address_at)
    return Image(bytes(data), bank_at, bank_at + params_at, address_at, bank_value)

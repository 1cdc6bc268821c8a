"""The display engine of a board without connectors. Commands and sizes are those of ctrl0073*.h and ctrl2080internal.h
of 570.144; the order is that of r535_disp_oneinit and r535_disp_init of nouveau 7.3.
"""

import struct

import pytest

from ringup.silicon.nv.card import VirtualNvidia
from ringup.silicon.nv.chips import CHIPS
from ringup.silicon.nv.rm.boards import rows as boards

OK, INVALID_ARGUMENT, INVALID_CLASS, NOT_SUPPORTED = 0, 0x1F, 0x22, 0x56
# INTERNAL_DISPLAY_WRITE_INST_MEM, …_GET_STATIC_INFO, INTERNAL_INIT_BRIGHTC_STATE_LOAD, INTERNAL_INTR_GET_KERNEL_TABLE
INSTANCE, STATIC, BRIGHTNESS, INTERRUPTS = 0x20800A49, 0x20800A01, 0x20800AC6, 0x20800A5C
VIDEO, SYSTEM = 2, 1


def place(address, space=VIDEO):
    return struct.pack("<QQII", address, 0x10000, space, 2)


def test_a_board_without_connectors_has_heads_and_supports_no_display(up):
    cpu = up("gb202", release="570.144")
    client = cpu.root()
    inner, subdevice = cpu.internal()
    assert cpu.control(inner, subdevice, INSTANCE, place(0x10000))[0] == OK
    # NV04_DISPLAY_COMMON; a device has one
    assert cpu.alloc(client, 0x80, 0x730000, 0x73)[0] == OK
    assert cpu.alloc(client, 0x80, 0x730001, 0x73)[0] != OK
    status, info = cpu.control(inner, subdevice, STATIC, bytes(36))
    # feHwSysCap: four heads, four SORs; windowPresentMask; numHeads; internalDispActiveMask
    assert (status, *struct.unpack_from("<II", info), *struct.unpack_from("<I4xI", info, 12)) == (OK, 0xF0F, 0xFF, 4, 0)
    assert cpu.control(inner, subdevice, BRIGHTNESS, struct.pack("<I", NOT_SUPPORTED).ljust(4104, b"\0"))[0] == OK
    # DP_SET_MANUAL_DISPLAYPORT, SYSTEM_GET_NUM_HEADS, SPECIFIC_GET_ALL_HEAD_MASK, SYSTEM_GET_SUPPORTED
    assert cpu.control(client, 0x730000, 0x731365, bytes(4))[0] == OK
    assert cpu.control(client, 0x730000, 0x730102, bytes(12)) == (OK, struct.pack("<III", 0, 0, 4))
    assert cpu.control(client, 0x730000, 0x730287, bytes(8)) == (OK, struct.pack("<II", 0, 0xF))
    assert cpu.control(client, 0x730000, 0x730107, b"\0\0\0\0" + b"\xff" * 8) == (OK, bytes(12))
    # NVCA70_DISPLAY; its channels have no model
    assert cpu.alloc(client, 0x80, 0xCA700000, 0xCA70)[0] == OK
    assert cpu.alloc(client, 0xCA700000, 0xCA7D0000, 0xCA7D, bytes(56))[0] != OK
    # MC_ENGINE_IDX_DISP and _DISP_LOW have vectors of their own
    table = cpu.control(inner, subdevice, INTERRUPTS, bytes(2068))[1]
    rows = [struct.unpack_from("<HxxIII", table, 4 + 16 * number) for number in range(*struct.unpack_from("<I", table))]
    vectors = {index: stall for index, _, stall, _ in rows if stall != 0xFFFFFFFF}
    assert {2, 176} <= set(vectors)
    assert len(set(vectors.values())) == len(vectors)


@pytest.mark.parametrize("memory", [place(96 << 30), place(0x10000, SYSTEM)], ids=["beyond the board", "not in VRAM"])
def test_instance_memory_of_channels_lies_in_video_memory(up, memory):
    cpu = up("gb202", release="570.144")
    assert cpu.control(*cpu.internal(), INSTANCE, memory)[0] == INVALID_ARGUMENT


@pytest.mark.parametrize("chip", CHIPS)
def test_the_fuse_of_the_display_and_the_boards_engine_agree(chip):
    fuse = 0x21C04 if chip == "tu102" else 0x820C04
    card = VirtualNvidia(chip, vram_bytes=512 << 20)
    assert card.bars[0].read32(fuse) & 1 == (boards.find(chip).display is None)


def test_a_board_without_a_display_engine_refuses_its_objects(up):
    cpu = up("ga102", release="570.144")
    client = cpu.root()
    assert cpu.alloc(client, 0x80, 0x730000, 0x73)[0] == INVALID_CLASS
    assert cpu.control(*cpu.internal(), STATIC, bytes(36))[0] == NOT_SUPPORTED

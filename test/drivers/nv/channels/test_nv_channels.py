"""Channels' parts by themselves: the instance block's words, doorbells, tables of engines, lines of faults, hostile
answers.
"""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest

from ringup.autogen.nv import rm_alloc
from ringup.autogen.nv import rm_ctrl_2080_fifo as fifo
from ringup.autogen.nv import rm_ctrl_2080_internal as internal
from ringup.autogen.structs import memory
from ringup.drivers.nv.bus.chips import CHIPS
from ringup.drivers.nv.channels import channel, context, engines, facts, faults
from ringup.drivers.nv.rm.client import RmClient
from ringup.errors import DeviceHung, NotSupported
from ringup.queues.nv.rows import ROWS

RELEASE = "535.261.03"
# ctrl2080fifo.h and ctrl2080internal.h
DEVICE_TABLE, UNITS, CONTEXT_BUFFERS = 0x20801112, 0x20800A2A, 0x20800A32

STRUCTS = {
    DEVICE_TABLE: fifo.NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS,
    UNITS: internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_INFO_PARAMS,
    CONTEXT_BUFFERS: internal.NV2080_CTRL_INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO_PARAMS,
}


class Answers:
    """A door whose controls are answered by functions that fill a struct in."""

    layouts = RELEASE

    def __init__(self, **answers):
        self.answers = {getattr(self, name): fill for name, fill in answers.items()}

    table, units, buffers = DEVICE_TABLE, UNITS, CONTEXT_BUFFERS

    def control(self, client, handle, command, params=b"", doing=""):
        told = STRUCTS[command].at(RELEASE).view(bytearray(params))
        self.answers[command](told)
        return bytes(memory(told))


def entries(*rows, more=0, count=None):
    """Fill a table of engines in: (type, runlist) each."""

    def fill(told):
        told.numEntries, told.bMore = len(rows) if count is None else count, more
        for index, (type_, runlist) in enumerate(rows):
            told.entries[index].engineData[2] = type_
            told.entries[index].engineData[3] = runlist

    return fill


def read_engines(fill):
    return engines.read(RmClient(Answers(table=fill), 1), 2)


def test_queues_are_for_copy_engines_that_do_not_share_the_graphics_engines_runlist():
    found = read_engines(entries((10, 0), (12, 2), (1, 0), (11, 1), (0x13, 5)))
    assert (found.graphics.type, found.graphics.runlist) == (1, 0)
    assert [(one.type, one.runlist) for one in found.copies] == [(11, 1), (12, 2)]
    # a chip on which all of them do
    assert [one.type for one in read_engines(entries((1, 0), (9, 0))).copies] == [9]


@pytest.mark.parametrize(
    ("fill", "error", "said"),
    [
        (entries(count=33), DeviceHung, "33 engines in a table for 32"),
        (entries((1, 0), more=1), DeviceHung, "more than 512 engines"),
        (entries((1, 0x80), (9, 1)), DeviceHung, "runlist 0x80 of engine 0x1"),
        (entries((9, 1)), NotSupported, "without a graphics engine or a copy engine"),
        (entries((1, 0)), NotSupported, "without a graphics engine or a copy engine"),
    ],
)
def test_tables_of_engines_that_cannot_be_are_refused(fill, error, said):
    with pytest.raises(error, match=said):
        read_engines(fill)


def units(tpcs, sms):
    def fill(told):
        # ctrl0080gr.h: GR_INFO_INDEX_SHADER_PIPE_SUB_COUNT, _LITTER_NUM_SM_PER_TPC
        told.engineInfo[0].infoList[9].data = tpcs
        told.engineInfo[0].infoList[0x20].data = sms

    return fill


@pytest.mark.parametrize(("tpcs", "sms"), [(0, 2), (513, 2), (36, 0), (36, 9)])
def test_units_that_cannot_be_are_refused(tpcs, sms):
    static = SimpleNamespace(subdevice=3)
    with pytest.raises(DeviceHung, match=f"{tpcs} TPCs with {sms} SMs"):
        facts.read(RmClient(Answers(units=units(tpcs, sms)), 1), static, CHIPS[0], None, 0)


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_every_chip_has_a_generation_and_a_3d_class(chip):
    row = facts.row_of_chip(chip)
    assert row in ROWS
    # OGKM g_gpu_class_list.c: xx97 beside xxc0
    assert context.GRAPHICS_CLASSES[row.compute_class] & 0xFF == 0x97


def test_a_context_buffer_that_cannot_be_is_refused():
    def fill(told):
        told.engineContextBuffersInfo[0].engine[0x10].size = 0xFFFF_FFFF

    client = RmClient(Answers(buffers=fill), 1)
    objects = SimpleNamespace(internal=client, running=SimpleNamespace(static=SimpleNamespace(subdevice=3)))
    with pytest.raises(DeviceHung, match="a context buffer of 4294967295 bytes"):
        context.GraphicsContexts(objects, None)._sizes()


def test_an_instance_block_has_the_directory_for_the_channel_and_one_subcontext():
    # dev_ram.ref: NV_RAMIN_PAGE_DIR_BASE at 0x200 (version 2, 64 KiB, VRAM), NV_RAMIN_SC_PDB_VALID at 0x298,
    # NV_RAMIN_SC_PAGE_DIR_BASE(i) at 0x2a0 + 16 i, target INVALID for the rest
    block = bytes(0x200) + channel.instance_block(0x1_2345_6000)
    assert len(block) == 0x2A0 + 64 * 16
    assert struct.unpack_from("<Q", block, 0x200) == (0x1_2345_6C00,)
    assert struct.unpack_from("<II", block, 0x298) == (1, 0)
    assert struct.unpack_from("<QQ", block, 0x2A0) == (0x1_2345_6C00, 0)
    for index in (1, 63):
        assert struct.unpack_from("<IIII", block, 0x2A0 + 16 * index) == (1, 1, 0, 0)


def test_a_channels_number_is_in_its_flags():
    # nvos.h, NVOS04_FLAGS: index value 10:8, page value 20:12, page fixed 21, privileged 5
    assert channel._flags(0, privileged=False) == 1 << 21
    assert channel._flags(8 * 5 + 3, privileged=True) == 1 << 21 | 5 << 12 | 3 << 8 | 1 << 5
    assert rm_alloc.NVOS04_FLAGS_CHANNEL_USERD_INDEX_PAGE_VALUE == (20, 12)


def test_numbers_are_given_again_and_bounded():
    numbers = channel.ChannelNumbers()
    assert [numbers.take(None) for _ in range(3)] == [0, 1, 2]
    numbers.give_back(1)
    numbers.give_back(1)
    assert numbers.take(None) == 1
    numbers.taken.update(dict.fromkeys(range(2048)))
    with pytest.raises(DeviceHung, match="2048 channels are the most"):
        numbers.take(None)


@pytest.mark.parametrize(
    ("text", "gpu_va"),
    [
        # lines as users report them
        (
            "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f15_38000000. Fault is of type FAULT_PDE",
            0x7F15_3800_0000,
        ),
        ("MMU Fault: ENGINE CE0 HUBCLIENT_CE0 faulted @ 0x0_00001000. Fault is of type FAULT_PTE", 0x1000),
        ("Graphics Exception: ESR 0x405840=0x8204000c", None),
        ("faulted @ 0x_0", None),
        ("@ 0x123456789_00000000", None),
        ("", None),
    ],
)
def test_the_address_of_a_fault_is_read_from_its_line(text, gpu_va):
    assert faults.fault_address(text) == gpu_va

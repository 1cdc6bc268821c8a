"""Packets of HSA queues: the bytes that gcc stores through hsa.h, the packet of ROCm's runtime, and what is refused."""

import random
import struct
import subprocess

import pytest

from ringup.queues.amd import aql
from ringup.queues.amd.aql import Condition, Order, PacketType, Scope
from ringup.queues.amd.decode_aql import AqlDecoder, decode_aql
from ringup.queues.amd.pm4 import Pm4
from ringup.queues.amd.umr_text import lines

GFX11 = (11, 0, 0)
STREAMS = 4000
# the fields are set by their names in the header, so that gcc decides where they are
STORED_BY_C = r"""
#include <stdio.h>
#include <string.h>
#include "hsa.h"
#include "hsa_ext_amd.h"

static uint16_t header(int type, int barrier, int acquire, int release)
{
    return type << HSA_PACKET_HEADER_TYPE | barrier << HSA_PACKET_HEADER_BARRIER
        | acquire << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE | release << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE;
}

static void show(const void *packet)
{
    for (int i = 0; i < 64; i++)
        printf("%02x", ((const unsigned char *)packet)[i]);
    printf("\n");
}

int main(void)
{
    hsa_kernel_dispatch_packet_t dispatch;
    memset(&dispatch, 0, sizeof dispatch);
    dispatch.header = header(HSA_PACKET_TYPE_KERNEL_DISPATCH, 1, HSA_FENCE_SCOPE_SYSTEM, HSA_FENCE_SCOPE_AGENT);
    dispatch.setup = 2 << HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS;
    dispatch.workgroup_size_x = 64, dispatch.workgroup_size_y = 4, dispatch.workgroup_size_z = 1;
    dispatch.grid_size_x = 1000, dispatch.grid_size_y = 77, dispatch.grid_size_z = 1;
    dispatch.private_segment_size = 132, dispatch.group_segment_size = 4096;
    dispatch.kernel_object = 0x7f0012345640;
    dispatch.kernarg_address = (void *)0x7f00abcdef10;
    dispatch.completion_signal.handle = 0x7f0000001240;
    show(&dispatch);

    hsa_agent_dispatch_packet_t agent;
    memset(&agent, 0, sizeof agent);
    agent.header = header(HSA_PACKET_TYPE_AGENT_DISPATCH, 0, HSA_FENCE_SCOPE_NONE, HSA_FENCE_SCOPE_NONE);
    agent.type = 0x8001;
    agent.return_address = (void *)0x7f0000002008;
    agent.arg[0] = 1, agent.arg[1] = ~0ull, agent.arg[2] = 3;
    agent.completion_signal.handle = 0x40;
    show(&agent);

    hsa_barrier_and_packet_t all;
    memset(&all, 0, sizeof all);
    all.header = header(HSA_PACKET_TYPE_BARRIER_AND, 0, HSA_FENCE_SCOPE_AGENT, HSA_FENCE_SCOPE_SYSTEM);
    for (int i = 0; i < 5; i++)
        all.dep_signal[i].handle = 0x1000 + 64 * i;
    all.completion_signal.handle = 0x2000;
    show(&all);

    hsa_barrier_or_packet_t any;
    memset(&any, 0, sizeof any);
    any.header = header(HSA_PACKET_TYPE_BARRIER_OR, 1, HSA_FENCE_SCOPE_NONE, HSA_FENCE_SCOPE_NONE);
    any.dep_signal[0].handle = 0x3000, any.dep_signal[1].handle = 0x3040;
    show(&any);

    hsa_amd_barrier_value_packet_t value;
    memset(&value, 0, sizeof value);
    value.header.header = header(HSA_PACKET_TYPE_VENDOR_SPECIFIC, 1, HSA_FENCE_SCOPE_NONE, HSA_FENCE_SCOPE_NONE);
    value.header.AmdFormat = HSA_AMD_PACKET_TYPE_BARRIER_VALUE;
    value.signal.handle = 0x4000, value.value = -5, value.mask = 0xff, value.cond = HSA_SIGNAL_CONDITION_GTE;
    value.completion_signal.handle = 0x4040;
    show(&value);
    return 0;
}
"""
BUILT = (
    aql.kernel_dispatch(
        0x7F0012345640,
        (1000, 77, 1),
        (64, 4, 1),
        dimensions=2,
        kernarg_address=0x7F00ABCDEF10,
        private_segment_size=132,
        group_segment_size=4096,
        completion_signal=0x7F0000001240,
        order=Order(True, Scope.SYSTEM, Scope.AGENT),
    ),
    aql.agent_dispatch(0x8001, (1, (1 << 64) - 1, 3), return_address=0x7F0000002008, completion_signal=0x40),
    aql.barrier_and(
        *range(0x1000, 0x1140, 64), completion_signal=0x2000, order=Order(False, Scope.AGENT, Scope.SYSTEM)
    ),
    aql.barrier_or(0x3000, 0x3040, order=Order(True)),
    aql.barrier_value(0x4000, -5, Condition.GTE, mask=0xFF, completion_signal=0x4040, order=Order(True)),
)


def test_packets_are_the_bytes_that_gcc_stores_through_the_header(headers, tmp_path):
    source, program = tmp_path / "packets.c", tmp_path / "packets"
    source.write_text(STORED_BY_C)
    # the header wants HSA_LARGE_MODEL from the compiler's macros, and finds __LP64__
    subprocess.run(["gcc", "-I", str(headers("hsa")), str(source), "-o", str(program)], check=True)
    stored = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.split()
    assert [packet.hex() for packet in BUILT] == stored


def test_pm4_is_run_by_the_packet_of_rocms_runtime():
    # ROCr amd_aql_queue.cpp, AqlQueue::ExecutePM4: header 0 with its fences, AMD_AQL_FORMAT_PM4_IB, INDIRECT_BUFFER
    # of 4 dwords with `valid`, dw_cnt_remain 0xa, eight zeros, the signal
    packet = aql.pm4_indirect(
        Pm4(GFX11),
        0x7F00_1234_5678,
        21,
        completion_signal=0x1_0000_0040,
        order=Order(False, Scope.SYSTEM, Scope.SYSTEM),
    )
    assert struct.unpack("<16I", packet) == (
        *(0x0001_1400, 0xC002_3F00, 0x1234_5678, 0x7F00, 21 | 1 << 23, 0xA),
        *[0] * 8,
        *(0x40, 1),
    )


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"grid": (0, 1, 1)}, "grid_size_x is 1 to 0xffffffff, not 0x0"),
        ({"grid": (1 << 32, 1, 1)}, "grid_size_x is 1 to 0xffffffff, not 0x100000000"),
        ({"grid": (1, -1, 1)}, "grid_size_y is 1 to 0xffffffff, not -0x1"),
        ({"block": (65536, 1, 1)}, "workgroup_size_x is 1 to 0xffff, not 0x10000"),
        ({"block": (1, 1, 0)}, "workgroup_size_z is 1 to 0xffff, not 0x0"),
        ({"block": (1, 2, 1), "dimensions": 1}, "workgroup_size_y is 1 to 0x1, not 0x2"),
        ({"grid": (1, 1, 3), "dimensions": 2}, "grid_size_z is 1 to 0x1, not 0x3"),
        ({"dimensions": 0}, "setup.dimensions is 1 to 0x3, not 0x0"),
        ({"dimensions": 4}, "setup.dimensions is 1 to 0x3, not 0x4"),
        ({"private_segment_size": 1 << 32}, "private_segment_size is 0 to 0xffffffff, not 0x100000000"),
        ({"group_segment_size": -4}, "group_segment_size is 0 to 0xffffffff, not -0x4"),
        ({"kernarg_address": 8}, "kernarg_address is a 64-bit address aligned to 16 bytes, not 0x8"),
        ({"kernarg_address": 1 << 64}, "kernarg_address is 0 to 0xffffffffffffffff, not 0x10000000000000000"),
        ({"completion_signal": 0x1008}, "completion_signal is a 64-bit address aligned to 64 bytes, not 0x1008"),
        ({"kernel_object": 0}, "kernel_object is a 64-bit address aligned to 64 bytes and not 0, not 0x0"),
        ({"order": Order(True, 3)}, "acquire_fence_scope is 0 to 0x2, not 0x3"),
        ({"order": Order(True, 0, -1)}, "release_fence_scope is 0 to 0x2, not -0x1"),
    ],
)
def test_a_dispatch_that_no_packet_can_hold_is_refused_by_its_field(fields, error):
    wanted = {"kernel_object": 0x1000, "grid": (1, 1, 1), "block": (1, 1, 1)} | fields
    with pytest.raises(ValueError, match=f"^{error}$"):
        aql.kernel_dispatch(**wanted)


def test_other_packets_name_the_field_too():
    with pytest.raises(ValueError, match=r"^dep_signal\[1\] is a 64-bit address aligned to 64 bytes, not 0x8$"):
        aql.barrier_and(0x40, 8)
    with pytest.raises(ValueError, match=r"^dep_signal holds at most 5 signals, not 6$"):
        aql.barrier_or(*range(0, 384, 64))
    with pytest.raises(
        ValueError, match=r"^value is -9223372036854775808 to 0x7fffffffffffffff, not 0x8000000000000000$"
    ):
        aql.barrier_value(0x40, 1 << 63)
    with pytest.raises(ValueError, match=r"^cond is 0 to 0x3, not 0x4$"):
        aql.barrier_value(0x40, 0, 4)
    with pytest.raises(ValueError, match=r"^arg holds at most 4 values, not 5$"):
        aql.agent_dispatch(1, (1, 2, 3, 4, 5))
    with pytest.raises(TypeError, match=r"^arg\[0\] is a whole number from 0 to 0xffffffffffffffff, not 1.5$"):
        aql.agent_dispatch(1, (1.5,))
    with pytest.raises(ValueError, match=r"^INDIRECT_BUFFER runs 1 to 1048575 dwords, not 0$"):
        aql.pm4_indirect(Pm4(GFX11), 0x1000, 0)


def test_only_whole_packets_that_are_there_are_taken():
    aql.check_packets(b"".join(BUILT))
    with pytest.raises(ValueError, match="65 bytes are not whole packets"):
        aql.check_packets(BUILT[0] + b"\0")
    with pytest.raises(ValueError, match="packet 1 has the type INVALID"):
        aql.check_packets(BUILT[0] + aql.invalid())


def test_what_was_built_is_read_back_by_the_names_of_the_header():
    dispatch, agent, all_, any_, value = decode_aql(b"".join(BUILT), GFX11)
    assert [one.name for one in (dispatch, agent, all_, any_, value)] == [
        "KERNEL_DISPATCH",
        "AGENT_DISPATCH",
        "BARRIER_AND",
        "BARRIER_OR",
        "BARRIER_VALUE",
    ]
    assert not any(one.note for one in (dispatch, agent, all_, any_, value))
    assert dispatch.fields | {"grid_size_y": 77, "private_segment_size": 132, "barrier": 1} == dispatch.fields
    assert dispatch.fields["kernarg_address"] == 0x7F00ABCDEF10
    assert agent.fields["agent_function"] == 0x8001
    assert [all_.fields[f"dep_signal[{n}]"] for n in range(5)] == list(range(0x1000, 0x1140, 64))
    assert (value.fields["value"], value.fields["mask"], value.fields["cond"]) == (-5, 0xFF, 3)
    assert all_.offset_dwords == 32


def test_pm4_that_a_packet_runs_is_shown_below_it():
    pm4 = Pm4(GFX11)
    body = pm4.write_data(0x9000, 7)
    memory = struct.pack(f"<{len(body)}I", *body)
    packet = aql.pm4_indirect(pm4, 0x8000, len(body))
    (shown,) = decode_aql(packet, GFX11, lambda gpu_va, size: memory[:size] if gpu_va == 0x8000 else b"")
    assert [one.name for one in shown.inner] == ["WRITE_DATA"]
    assert shown.fields["ib_base"] == 0x8000
    text = "\n".join(lines([shown], everything=False))
    assert "PM4_IB" in text
    assert "    [0x0000] WRITE_DATA" in text


@pytest.mark.parametrize(
    ("changed", "note"),
    [
        ({0: 1}, "no packet: a queue stops here until one is stored"),
        ({0: 0x17}, "no packet has the type 23"),
        ({0: 0, 2: 9}, "no vendor packet of AMD has this format"),
        ({2: 0}, "setup 0x0: a grid has 1 to 3 dimensions"),
        ({10: 9}, "reserved0 is 0x9, not 0"),
        ({56: 8}, "completion_signal 0x7f0000001208 is not aligned to 64 bytes"),
    ],
)
def test_a_damaged_dispatch_says_what_is_wrong(changed, note):
    data = bytearray(BUILT[0])
    for at, value in changed.items():
        data[at] = value
    (shown,) = decode_aql(bytes(data), GFX11)
    assert shown.note == note


def test_a_grid_of_nothing_and_a_cut_packet_are_noted():
    zero = bytearray(BUILT[0])
    zero[12:16] = bytes(4)
    (shown,) = decode_aql(bytes(zero), GFX11)
    assert shown.note == "grid_size_x 0"
    (cut,) = decode_aql(BUILT[0][:20], GFX11)
    assert cut.note == "truncated: a packet has 16 dwords, 5 are left"
    assert cut.fields["grid_size_x"] == 1000
    assert "kernel_object" not in cut.fields


@pytest.mark.seeds(2)
def test_noise_is_shown_whole_and_never_raises(seed):
    draw = random.Random(f"aql {seed}")
    valid = b"".join(BUILT) + aql.pm4_indirect(Pm4(GFX11), 0x1000, 5)
    decoder = AqlDecoder(GFX11, lambda _, size_bytes: draw.randbytes(draw.randrange(min(size_bytes, 64) + 1)))
    for _ in range(STREAMS):
        start = draw.randrange(len(valid) // 64) * 64
        data = bytearray(valid[start : start + draw.randrange(16, 200)])
        for _ in range(draw.randrange(6)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        data = data[: len(data) // 4 * 4]
        packets = decoder.decode(bytes(data))
        assert b"".join(struct.pack(f"<{len(one.raw)}I", *one.raw) for one in packets) == data
        assert list(lines(packets))


def test_every_type_of_a_packet_is_decoded():
    for kind in PacketType:
        (shown,) = decode_aql(struct.pack("<H", kind).ljust(64, b"\0"), GFX11)
        assert shown.fields["type"] == kind

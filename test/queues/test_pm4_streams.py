"""Whole PM4 streams: a production driver's streams built and decoded bit by bit, templates, round trips over random
operands.
"""

import random
import struct

import pytest

from ringup.autogen.amd import gc_compute as regs
from ringup.queues.amd.decode_pm4 import decode_pm4
from ringup.queues.amd.packets import Atomic, Compare
from ringup.queues.amd.pm4 import Pm4
from ringup.queues.amd.pm4_cache import NEW_CODE, NEXT_DISPATCH, Caches
from ringup.queues.amd.pm4_stream import Pm4Commands
from ringup.queues.dwords import to_bytes

NAVI31 = (11, 0, 0)
ONES = 0xFFFF_FFFF
# What Mesa 25's RADV submits for a dispatch of 5 x 3 x 2 groups on a navi31: its preamble and its stream.
PREAMBLE = (
    "c00279000000038000000000 00000000c00176000000020d00000080c002760000000216ffffffffffffffffc002760000000219ffffffffffffffffc0047600"
    "00000224000000000000000000000000 00000000c00576000000022bffffffffffffffff000000000000000000000040c00176000000027d00000000c0037600"
    "00000204000000000000000000000000c006580000000000ffffffff00ffffff00000000000000000000000a0000c3b1c00176000000020a00000001c0031000"
    "00000000000000000000000000000000ffff1000ffff1000ffff1000ffff1000"
)
STREAM = (
    "c00550006020000000000000ffff800000000000ffff800080000060c00176000000024200040000c00176000000020c00000000c002760000000212602c0002"
    "00000086c00176000000022800000000c00176000000021501000000c003760000000207000000400000000100000001c0031502000000050000000300000002"
    "00002045c000460000000407c006580000000000ffffffff00ffffff00000000000000000000000a0000c030ffff1000ffff1000ffff1000ffff1000ffff1000"
)


def words(text):
    """Return a dump's dwords; each is written with its high digit first."""
    text = text.replace(" ", "")
    return [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]


def test_the_drivers_preamble_is_built_bit_for_bit():
    p = Pm4(NAVI31)
    built = [
        *p.set_uconfig_at(0xC380, 0, 0),  # TA_CS_BC_BASE_ADDR
        *p.set_sh(regs.COMPUTE_PGM_HI(0x80)),
        *p.set_sh(regs.COMPUTE_STATIC_THREAD_MGMT_SE0(ONES), regs.COMPUTE_STATIC_THREAD_MGMT_SE1(ONES)),
        *p.set_sh(regs.COMPUTE_STATIC_THREAD_MGMT_SE2(ONES), regs.COMPUTE_STATIC_THREAD_MGMT_SE3(ONES)),
        *p.set_sh_at(regs.COMPUTE_USER_ACCUM_0, 0, 0, 0, 0),
        *p.set_sh(
            regs.COMPUTE_STATIC_THREAD_MGMT_SE4(ONES),
            regs.COMPUTE_STATIC_THREAD_MGMT_SE5(ONES),
            regs.COMPUTE_STATIC_THREAD_MGMT_SE6(0),
            regs.COMPUTE_STATIC_THREAD_MGMT_SE7(0),
            regs.COMPUTE_DISPATCH_INTERLEAVE(64),
        ),
        *p.set_sh(regs.COMPUTE_DISPATCH_TUNNEL(0)),
        *p.set_sh(regs.COMPUTE_START_X(0), regs.COMPUTE_START_Y(0), regs.COMPUTE_START_Z(0)),
        *p.acquire_mem(NEW_CODE),
        *p.set_sh(regs.COMPUTE_PIPELINESTAT_ENABLE(1)),
        *p.nop(5),
        *p.nop() * 4,
    ]
    assert built == words(PREAMBLE)


def test_the_drivers_dispatch_is_built_bit_for_bit():
    p = Pm4(NAVI31)
    built = [
        *p.prefetch(0xFFFF_8000_0000_0000, 0x60),
        *p.set_sh_at(regs.COMPUTE_USER_DATA_2, 0x40000),
        *p.set_sh(regs.COMPUTE_PGM_LO(0)),
        *p.set_sh(
            regs.COMPUTE_PGM_RSRC1(vgprs=2, float_mode=0xC0, dx10_clamp=1, wgp_mode=1, mem_ordered=1),
            regs.COMPUTE_PGM_RSRC2(user_sgpr=3, tgid_x_en=1),
        ),
        *p.set_sh(regs.COMPUTE_PGM_RSRC3(0)),
        *p.set_sh(regs.COMPUTE_RESOURCE_LIMITS(cu_group_count=1)),
        *p.set_sh(regs.COMPUTE_NUM_THREAD_X(64), regs.COMPUTE_NUM_THREAD_Y(1), regs.COMPUTE_NUM_THREAD_Z(1)),
        *p.dispatch(5, 3, 2, p.initiator.replace(tunnel_enable=1)),
        *p.wait_for_dispatches(),
        *p.acquire_mem(Caches(l2_writeback=True, l2_invalidate=True)),
        *p.nop() * 5,
    ]
    assert built == words(STREAM)


def test_the_drivers_dispatch_is_decoded_packet_by_packet():
    packets = decode_pm4(to_bytes(words(STREAM)), NAVI31)
    names = "DMA_DATA SET_SH_REG SET_SH_REG SET_SH_REG SET_SH_REG SET_SH_REG SET_SH_REG DISPATCH_DIRECT EVENT_WRITE ACQUIRE_MEM"
    assert [packet.name for packet in packets] == names.split() + ["NOP"] * 5
    assert [packet.offset_dwords for packet in packets][:10] == [0, 7, 10, 13, 17, 20, 23, 28, 33, 35]
    assert not any(packet.note for packet in packets)
    assert packets[0].fields["src_addr"] == packets[0].fields["dst_addr"] == 0xFFFF_8000_0000_0000
    assert packets[0].fields["byte_count"] == 96
    assert packets[3].registers == ((0x2E12, 0x602C_0002), (0x2E13, 0x86))
    assert [packets[7].fields[f"dim_{axis}"] for axis in "xyz"] == [5, 3, 2]
    assert packets[7].fields["tunnel_enable"] == packets[7].fields["order_mode"] == 1
    assert packets[8].fields["event_type"] == 7
    assert [name for name, value in packets[9].fields.items() if value == 1] == [
        "glm_wb",
        "glm_inv",
        "gl2_inv",
        "gl2_wb",
    ]


def test_a_submission_waits_for_earlier_dispatches_then_invalidates_caches():
    # nvd.h, PACKET3_EVENT_WRITE: CS_PARTIAL_FLUSH 7, index 4; then gfx_v11_0_emit_mem_sync's ACQUIRE_MEM over
    # everything
    begin = [0xC000_4600, 0x407, 0xC006_5800, 0, ONES, 0xFF_FFFF, 0, 0, 0xA, 0xC3B1]
    assert Pm4Commands(NAVI31).begin == to_bytes(begin)


def test_a_barrier_waits_and_invalidates_the_caches_of_shaders():
    """CS_PARTIAL_FLUSH (event 7, index 4), then ACQUIRE_MEM whose GCR_CNTL invalidates scalar, vector and L1 caches.
    nvd.h, soc15d.h.
    """
    words = struct.unpack("<10I", Pm4Commands((11, 0, 0)).barrier)
    assert words[:2] == (0xC000_4600, 0x407)
    assert words[2] == 0xC006_5800
    assert words[-1] == 1 << 7 | 1 << 8 | 1 << 9  # GLK_INV, GLV_INV, GL1_INV


def test_an_indirect_buffer_of_a_users_queue_names_no_address_space():
    # ROCr amd_gpu_pm4.h, PM4_INDIRECT_BUFFER_DW3: IB_SIZE 19:0, IB_VALID 23
    assert Pm4Commands(NAVI31).call(0x1_2345_6780, 64, 0) == to_bytes([0xC002_3F00, 0x2345_6780, 1, 0x0080_0010])
    # soc21d.h, PACKET3_RELEASE_MEM_DATA_SEL: send 64 bits, send 32
    for bits, select in ((64, 2), (32, 1)):
        commands = Pm4Commands(NAVI31, interrupts=False, word_bits=bits)
        ((at, form, _),) = commands.signal_places
        signal = commands.signal(0x9_0000, 5)
        assert struct.unpack_from("<I", signal, 8)[0] >> 29 == select
        assert (8 * form.size, form.unpack_from(signal, at)) == (bits, (5,))
    # gfx_v11_0_ring_funcs_compute: PACKET3(PACKET3_NOP, 0x3FFF)
    assert Pm4Commands(NAVI31).pad == to_bytes([0xFFFF_1000])


def test_padding_is_one_packet():
    # Mesa amdgpu_cs.cpp, amdgpu_pad_gfx_compute_ib: PKT3(PKT3_NOP, remaining - 2), except for a single dword.
    commands = Pm4Commands(NAVI31)
    wanted = [[], [0xFFFF_1000], [0xC000_1000, 0], [0xC001_1000, 0, 0]]
    assert [commands.padding(count) for count in range(4)] == list(map(to_bytes, wanted))
    assert commands.padding(7) == to_bytes([0xC005_1000, *[0] * 6])


def launch(p):
    """Return a stream like that of a dispatch, with every value zero."""
    return [
        *p.set_sh(regs.COMPUTE_PGM_LO(0), regs.COMPUTE_PGM_HI(0)),
        *p.set_sh_at(regs.COMPUTE_USER_DATA_0, 0, 0),
        *p.dispatch(0, 0, 0),
        *p.write_data(0, 0, 0),
        *p.write_data(0, 0),
        *p.release_mem(0, 0),
    ]


@pytest.mark.parametrize("version", [(9, 4, 3), NAVI31, (12, 0, 1)], ids=str)
def test_a_filled_template_is_the_stream_built_with_those_values(version):
    p = Pm4(version)
    template = p.template(launch(p)).widened("COMPUTE_USER_DATA_0").widened("COMPUTE_PGM_LO", shift=8, align=256)
    built = [
        *p.set_sh(regs.COMPUTE_PGM_LO(0x3456), regs.COMPUTE_PGM_HI(0x12)),
        *p.set_sh_at(regs.COMPUTE_USER_DATA_0, 0x9ABC_DEF0, 0x5678),
        *p.dispatch(7, 8, 9),
        *p.write_data(0x1_0000_0010, 1, 2),
        *p.write_data(0x2_0000_0020, 3),
        *p.release_mem(0x3_0000_0030, 0x4_0000_0005),
    ]
    values = {
        "COMPUTE_PGM_LO": 0x12_0000_3456 << 8,
        "COMPUTE_USER_DATA_0": 0x5678_9ABC_DEF0,
        "DISPATCH_DIRECT.dim_x": 7,
        "DISPATCH_DIRECT.dim_y": 8,
        "DISPATCH_DIRECT.dim_z": 9,
        "WRITE_DATA.dst_addr": 0x1_0000_0010,
        "WRITE_DATA.data": 1,
        "WRITE_DATA.data[1]": 2,
        "WRITE_DATA.dst_addr[1]": 0x2_0000_0020,
        "WRITE_DATA.data[2]": 3,
        "RELEASE_MEM.address": 0x3_0000_0030,
        "RELEASE_MEM.data": 0x4_0000_0005,
    }
    patched = bytearray(b"\xaa" * 8 + template.data)
    template.patch(patched, 8, **values)
    assert patched == b"\xaa" * 8 + to_bytes(built)
    filled = bytearray(b"\xaa" * (len(template.data) + 16))
    # The order differs from that in the stream.
    names = sorted(values)
    stored = [template.holes[name].stored(values[name], name) for name in names]
    template.filler(*names)(filled, 8, *stored)
    assert filled == b"\xaa" * 8 + to_bytes(built) + b"\xaa" * 8


def test_holes_refuse_what_does_not_fit():
    p = Pm4(NAVI31)
    template = p.template(launch(p)).widened("COMPUTE_PGM_LO", shift=8, align=256)
    buffer = bytearray(template.data)
    refused = [
        ({"COMPUTE_PGM_LO": 0x1080}, "COMPUTE_PGM_LO holds 64 bits, a multiple of 256, not 0x1080"),
        ({"DISPATCH_DIRECT.dim_x": 1 << 32}, "DISPATCH_DIRECT.dim_x holds 32 bits"),
        ({"RELEASE_MEM.address": 2}, "RELEASE_MEM.address holds 64 bits, a multiple of 4"),
        ({"DISPATCH_DIRECT.dim_w": 1}, "the template has no DISPATCH_DIRECT.dim_w; it has COMPUTE_PGM_LO, "),
    ]
    for values, message in refused:
        with pytest.raises(ValueError, match=message):
            template.patch(buffer, 0, **values)
    assert buffer == template.data
    with pytest.raises(ValueError, match=r"no hole of 4 bytes lies behind RELEASE_MEM\.int_ctxid"):
        template.widened("RELEASE_MEM.int_ctxid")
    with pytest.raises(struct.error):  # the only check of the fast path
        template.filler("DISPATCH_DIRECT.dim_x")(buffer, 0, 1 << 32)


def test_a_stream_with_an_unknown_packet_has_no_template():
    with pytest.raises(ValueError, match="dword 5 of the stream, 0xc000fe00, begins no packet"):
        Pm4(NAVI31).template([*Pm4(NAVI31).dispatch(1, 1, 1), 0xC000_FE00, 0])


@pytest.mark.parametrize("version", [(9, 4, 3), NAVI31, (11, 5, 1), (12, 0, 0)], ids=str)
def test_packets_built_from_random_operands_decode_to_the_same_operands(version):
    draw, p = random.Random(5), Pm4(version)
    for _ in range(100):
        va, value, count = draw.randrange(1 << 61) * 8, draw.getrandbits(64), draw.randrange(1, 20)
        low, mask = value & ONES, draw.getrandbits(32)
        data = [draw.getrandbits(32) for _ in range(count)]
        how, operation = draw.choice(list(Compare)), draw.choice(list(Atomic))
        stream = [
            *p.write_data(va, *data),
            *p.wait_mem(va, low, mask, how),
            *p.atomic_mem(operation, va, value, value ^ mask),
            *p.release_mem(va, value),
            *p.acquire_mem(NEXT_DISPATCH),
            *p.indirect_buffer(va, count, 5),
            *p.set_sh_at(0x2E40, *data),
        ]
        write, wait, atomic, release, _, call, registers = decode_pm4(stream, version)
        assert (write.fields["dst_addr"], [write.fields[f"data[{i}]"] for i in range(count)]) == (va, data)
        assert [wait.fields[name] for name in ("poll_addr", "reference", "mask", "function")] == [va, low, mask, how]
        assert [atomic.fields[name] for name in ("addr", "src_data", "cmp_data")] == [va, value, value ^ mask]
        assert atomic.fields["atomic"] == operation + 0x20
        assert [release.fields[name] for name in ("address", "data", "data_sel")] == [va, value, 2]
        assert [call.fields[name] for name in ("ib_base", "ib_size", "vmid")] == [va, count, 5]
        assert registers.registers == tuple(enumerate(data, 0x2E40))

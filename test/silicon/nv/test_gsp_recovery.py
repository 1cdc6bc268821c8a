"""A channel's error, and sleep: what the firmware tells and keeps. The CPU's side as nouveau 6.12 has it."""

import struct

import pytest

from ringup.silicon.nv.gsp.firmware import Phase
from ringup.silicon.nv.gsp.ports import Aperture
from ringup.silicon.nv.rm.parts import MmuFault

OK, INVALID_ARGUMENT, INVALID_CLASS, INVALID_OBJECT, INVALID_STATE, NOT_SUPPORTED = 0, 0x1F, 0x22, 0x31, 0x40, 0x56
INVALID_HANDLE, INVALID_PARENT = 0x33, 0x36
CLIENT = 0xC1D00001
ALLOC_MEMORY, UNLOADING, INIT_DONE, RC_TRIGGERED, OS_ERROR_LOG = 4, 47, 0x1001, 0x1004, 0x1006
HOST = 0x1_0000_0000
PAGE = 4096
MMU_FAULT = 31  # ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT


def space_params():
    """NV_VASPACE_ALLOCATION_PARAMETERS: all defaults."""
    return bytes(48)


def failing_params(number, notifier, *, engine=1, space=0, instance=0x10000):
    """NV_CHANNEL_ALLOC_PARAMS of 360 bytes for a channel with an error notifier in system memory."""
    params = bytearray(360)
    flags = (number & 7) << 8 | number >> 3 << 12 | 1 << 21 | 1 << 5
    struct.pack_into("<QIIII", params, 8, 0x1_2006_4000, 512, flags, 0, space)
    struct.pack_into("<I", params, 128, engine)
    for at, base, size, aperture in (
        (144, instance, PAGE, 2),
        (168, 0x20000, 0x200, 2),
        (192, instance, 0x200, 2),
        (248, notifier, 16, 1),
    ):
        struct.pack_into("<QQII", params, at, base, size, aperture, 1)
    return bytes(params)


def make_channel(cpu, handle=0xC0, number=4, notifier=HOST + 0x9000):
    cpu.root(CLIENT)
    assert cpu.alloc(CLIENT, 0x80, 0x5A, 0x90F1, space_params())[0] == OK
    params = failing_params(number, notifier, space=0x5A)
    # tpcConfigID comes behind since 570
    params = params.ljust(368, b"\0") if cpu.release == "570.144" else params
    assert cpu.alloc(CLIENT, 0x80, handle, 0xC56F, params)[0] == OK
    assert cpu.control(CLIENT, handle, 0xA06F0103, b"\1\0")[0] == OK
    return cpu.card.named("channel_allocated")[-1][0]


@pytest.mark.parametrize(
    ("release", "size", "code_at"),
    # 535.113.01 has neither the virtual function nor the journal's length
    [("535.113.01", 20, 8), ("535.261.03", 28, 12)],
)
def test_an_error_stops_the_channel_and_is_told(up, release, size, code_at):
    cpu = up(release=release)
    channel = make_channel(cpu)
    cpu.firmware.channel_failed(channel, MMU_FAULT, "Fault at 0x1234")
    line, failed = cpu.receive(), cpu.receive()
    assert (line.function, failed.function) == (OS_ERROR_LOG, RC_TRIGGERED)
    assert struct.unpack_from("<III", line.body) == (MMU_FAULT, 0, 4)
    assert line.body[12:].rstrip(b"\0") == b"Fault at 0x1234"
    assert len(failed.body) == size
    assert struct.unpack_from("<II", failed.body) == (1, 4)
    assert struct.unpack_from("<II", failed.body, code_at) == (MMU_FAULT, 0)
    assert cpu.card.named("channel_scheduled")[-1] == (channel, False)
    assert cpu.card.named("channel_stopped") == [(channel,)]
    high, low, info, engine, status = struct.unpack("<IIIHH", cpu.memory.read(Aperture.SYSMEM, HOST + 0x9000, 16))
    assert (high << 32 | low) == cpu.clock.now_ns
    assert (info, engine, status) == (MMU_FAULT, 1, 0xFFFF)


def test_570_tells_the_address_of_a_page_fault(up):
    cpu = up(release="570.144")
    channel = make_channel(cpu)
    channel.mmu_faults.append(MmuFault(0x34_5678_9000, 2, True))
    cpu.firmware.channel_failed(channel, MMU_FAULT, "Fault")
    failed = [cpu.receive(), cpu.receive()][1].body
    # rpc_rc_triggered_v17_02 of 570.144: exceptType at 16, the address's halves at 28, the type at 36
    assert len(failed) == 48
    assert struct.unpack_from("<I", failed, 16) == (MMU_FAULT,)
    assert struct.unpack_from("<III", failed, 28) == (0x5678_9000, 0x34, 2)


def test_a_group_fails_together(up):
    cpu = up()
    cpu.root(CLIENT)
    cpu.alloc(CLIENT, 0x80, 0x5A, 0x90F1, space_params())
    cpu.alloc(CLIENT, 0x80, 0x60, 0xA06C, struct.pack("<IIIIB3x", 0, 0, 0x5A, 1, 0))
    for number in (4, 5):
        params = failing_params(number, HOST + PAGE * number, engine=0, instance=0x10000 * number)
        assert cpu.alloc(CLIENT, 0x60, 0xC0 + number, 0xC56F, params)[0] == OK
    first, second = (channel for (channel,) in cpu.card.named("channel_allocated"))
    cpu.firmware.channel_failed(second, MMU_FAULT, "text")
    assert cpu.card.named("channel_stopped") == [(first,), (second,)]
    failed = cpu.answer(RC_TRIGGERED)
    # chid, then scope 1
    assert struct.unpack_from("<4I", failed.body)[1::2] == (5, 1)
    for number in (4, 5):
        assert cpu.memory.read(Aperture.SYSMEM, HOST + PAGE * number + 14, 2) == b"\xff\xff"


def session(cpu, *, channel=0xC0, compute=0xC1, handle=0xD0):
    """Make a compute object and a debugger's session for it."""
    assert cpu.alloc(CLIENT, channel, compute, 0xC7C0, bytes(16))[0] == OK
    return cpu.alloc(CLIENT, 0x80, handle, 0x83DE, struct.pack("<III", 0, CLIENT, compute))[0]


def test_a_debugger_learns_which_page_fault_stopped_a_channel(up):
    cpu = up()
    channel = make_channel(cpu)
    assert session(cpu) == OK
    # NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS: the channel, how many cores; behind 100 of them the faults
    ask = struct.pack("<II", 0xC0, 100).ljust(4824, b"\xff")
    status, answer = cpu.control(CLIENT, 0xD0, 0x83DE030C, ask)
    assert (status, answer[4812]) == (OK, 0)
    channel.mmu_faults += [MmuFault(0x1000 * number + 4, 2, number == 5) for number in range(6)]
    cpu.firmware.channel_failed(channel, MMU_FAULT, "text")
    status, answer = cpu.control(CLIENT, 0xD0, 0x83DE030C, ask)
    # type 2 (PTE), a read
    assert (status, answer[4812], struct.unpack_from("<I", answer, 4816)[0]) == (OK, 1, 2)
    # the global and the warp's error register of the last core
    assert struct.unpack_from("<II", answer, 8 + 99 * 48) == (0, 0)
    status, answer = cpu.control(CLIENT, 0xD0, 0x83DE0328, bytes(72))
    assert (status, struct.unpack_from("<I", answer, 64)[0]) == (OK, 4)
    assert [struct.unpack_from("<QII", answer, 16 * at) for at in (0, 3)] == [(0x2000, 2, 0), (0x5000, 2, 1)]


def test_a_debugger_is_not_told_what_is_not_modelled(up):
    cpu = up()
    channel = make_channel(cpu)
    assert session(cpu) == OK
    cpu.firmware.channel_failed(channel, 13, "an exception of a shader core")
    ask = struct.pack("<II", 0xC0, 100).ljust(4824, b"\0")
    assert cpu.control(CLIENT, 0xD0, 0x83DE030C, ask)[0] == NOT_SUPPORTED
    assert cpu.control(CLIENT, 0xD0, 0x83DE030C, struct.pack("<II", 0xC0, 101) + ask[8:])[0] == INVALID_ARGUMENT
    assert cpu.control(CLIENT, 0xD0, 0x83DE030C, struct.pack("<I", 0xC1) + ask[4:])[0] == INVALID_HANDLE
    # a session is for a graphics or compute object that is there
    debug = [struct.pack("<III", 0, CLIENT, handle) for handle in (0xC0, 0x77)]
    assert cpu.alloc(CLIENT, 0x80, 0xD1, 0x83DE, debug[0])[0] == INVALID_OBJECT
    assert cpu.alloc(CLIENT, 0x80, 0xD1, 0x83DE, debug[1])[0] == INVALID_PARENT
    # it goes with its object
    assert cpu.free(CLIENT, 0xC1) == OK
    assert cpu.control(CLIENT, 0xD0, 0x83DE0328, bytes(72))[0] != OK


def test_an_error_of_a_channel_that_is_gone_is_not_told(up):
    cpu = up()
    channel = make_channel(cpu, notifier=0x1000)
    # a notifier where nothing answers: the channel stops all the same
    cpu.firmware.channel_failed(channel, MMU_FAULT, "text")
    assert cpu.answer(RC_TRIGGERED) is not None
    assert cpu.free(CLIENT, 0xC0) == OK
    cpu.firmware.channel_failed(channel, MMU_FAULT, "text")
    assert cpu.receive() is None
    cpu.firmware.unload()
    cpu.firmware.channel_failed(channel, MMU_FAULT, "text")


def memory_list(client, handle, number, pages, *, length=None, count=None, idr=0):
    """ALLOC_MEMORY as nouveau's fbsr_memlist fills it; the descriptor's own length has 16 bits."""
    length = len(pages) * PAGE if length is None else length
    count = len(pages) if count is None else count
    head = struct.pack("<7I4xQI4x", client, 0x80, handle, number, 0, 0, 0, length, count)
    return head + struct.pack("<HH4x", idr, len(pages) & 0xFFFF) + struct.pack(f"<{len(pages)}Q", *pages)


SYSTEM_LIST, VIDEO_LIST = 0x81, 0x82
BEGIN, REGION = 0x20800AC2, 0x20800AC3


def sleep_area(cpu, regions, *, area_pages=8):
    """Announce what is saved: 2 pages at 0x50_0000 and 3 at 0x70_0000, into scattered pages of system memory."""
    client = cpu.root(0xC1D000F0)
    inner, subdevice = cpu.internal()
    area = [(HOST >> 12) + 0x8000 + 2 * number for number in range(area_pages)]
    assert cpu.call(ALLOC_MEMORY, memory_list(client, 0xCAF00003, SYSTEM_LIST, area)).result == OK
    total = sum(size for _, size in regions)
    begin = struct.pack("<IIIIQ8x", 4, len(regions), client, 0xCAF00003, total)
    assert cpu.control(inner, subdevice, BEGIN, begin)[0] == OK
    assert cpu.free(client, 0xCAF00003) == OK
    saved = 0
    for number, (address, size) in enumerate(regions):
        handle = 0xCAF00004 + number
        pages = [(address >> 12) + page for page in range(size // PAGE)]
        assert cpu.call(ALLOC_MEMORY, memory_list(client, handle, VIDEO_LIST, pages)).result == OK
        region = struct.pack("<III4xQQQ", 4, client, handle, 0, saved, size)
        assert cpu.control(inner, subdevice, REGION, region)[0] == OK
        assert cpu.free(client, handle) == OK
        saved += size
    assert cpu.free(client, client) == OK
    return area


def fall_asleep(cpu, metadata=0):
    assert cpu.call(UNLOADING, struct.pack("<BB2xI", 1, 0, 3)).result == OK
    assert cpu.card.named("suspended") == [(metadata,)]
    cpu.firmware.unload()


def wake(cpu, *, resumed=1):
    """Start as after a sleep: the arguments say so, and nothing else changed."""
    # bInPMTransition, behind the queues (570 has no second pair), oldLevel and flags
    cpu.put(HOST + 0x2000 + (32 if cpu.release == "570.144" else 48) + 8, bytes((resumed,)))
    # nouveau has freed the list of regions
    cpu.put(cpu.arguments, bytes(range(256)))
    cpu.firmware.resume()
    # nouveau must be waiting for INIT_DONE by then
    cpu.clock.sleep_us(500_000)
    assert cpu.firmware.phase is Phase.STARTING
    cpu.clock.sleep_us(600_000)
    cpu.settle()


def test_sleep_keeps_memory_and_objects(up):
    cpu = up()
    channel = make_channel(cpu)
    session = cpu.firmware.session
    roots = session.map.bar1_root
    regions = [(0x50_0000, 2 * PAGE), (0x70_0000, 3 * PAGE)]
    contents = {
        (address + offset): bytes((number + 1,)) * 64
        for number, (address, size) in enumerate(regions)
        for offset in range(0, size, PAGE)
    }
    for address, data in contents.items():
        cpu.memory.write(Aperture.VRAM, address, data)
    cpu.memory.write(Aperture.VRAM, roots + 8, b"an entry")
    # nouveau says it once, when it loads
    cpu.memory.write(Aperture.VRAM, session.map.bar2_root, struct.pack("<Q", 0x5F6AF02))
    area = sleep_area(cpu, regions)
    fall_asleep(cpu)
    assert cpu.card.named("channel_scheduled")[-1] == (channel, False)
    assert cpu.card.named("channel_saved") == [(channel,)]
    assert not cpu.card.named("channel_freed")
    assert cpu.memory.read(Aperture.SYSMEM, area[2] << 12, 4) == b"\2\2\2\2"
    # the card is without power
    cpu.memory.pages = {key: page for key, page in cpu.memory.pages.items() if key[0] is Aperture.SYSMEM}
    cpu.card.calls.clear()
    wake(cpu)
    # neither pointers nor sequence numbers began anew: receive() checks the latter
    assert cpu.receive().function == INIT_DONE
    for address, data in contents.items():
        assert cpu.memory.read(Aperture.VRAM, address, 64) == data
    assert cpu.memory.read(Aperture.VRAM, roots + 8, 8) == b"an entry"
    assert cpu.card.named("bar1_page_directory") == [(roots,)]
    assert cpu.card.named("update_bar_pde") == [(2, 0x5F6AF02, 47)]
    assert cpu.card.named("channel_allocated") == [(channel,)]
    assert cpu.card.named("channel_scheduled") == [(channel, True)]
    assert cpu.firmware.phase is Phase.RUNNING
    assert cpu.free(CLIENT, 0xC0) == OK
    # and once more: what was announced for the first sleep is used up
    assert cpu.call(UNLOADING, struct.pack("<BB2xI", 1, 0, 3)).result == OK
    cpu.firmware.unload()
    wake(cpu)
    assert cpu.receive().function == INIT_DONE
    assert cpu.firmware.violations == []


def test_570_halts_channels_and_saves_its_own_memory_only(up):
    """As r570_fbsr_suspend and r570_fbsr_resume of nouveau 7.3 do it."""
    cpu = up(release="570.144")
    channel = make_channel(cpu)
    session = cpu.firmware.session
    inner, subdevice = cpu.internal()
    # INTERNAL_FIFO_TOGGLE_ACTIVE_CHANNEL_SCHEDULING: the number that named a region before
    assert cpu.control(inner, subdevice, REGION, b"\1")[0] == OK
    assert cpu.card.named("channel_scheduled")[-1] == (channel, False)
    area = [(HOST >> 12) + 0x8000 + number for number in range(8)]
    client = cpu.root(0xC1D000F0)
    assert cpu.call(ALLOC_MEMORY, memory_list(client, 0xCAF00003, SYSTEM_LIST, area)).result == OK
    assert cpu.control(inner, subdevice, BEGIN, struct.pack("<IIB7xQ", client, 0xCAF00003, 1, HOST))[0] == OK
    cpu.memory.write(Aperture.VRAM, session.map.bar1_root + 8, b"an entry")
    # where FBSR_INIT said that the firmware's region goes
    fall_asleep(cpu, metadata=HOST)
    cpu.memory.pages = {key: page for key, page in cpu.memory.pages.items() if key[0] is Aperture.SYSMEM}
    cpu.card.calls.clear()
    wake(cpu)
    assert cpu.receive().function == INIT_DONE
    assert cpu.memory.read(Aperture.VRAM, session.map.bar1_root + 8, 8) == b"an entry"
    # they wait for the driver
    assert cpu.card.named("channel_allocated") == [(channel,)]
    assert cpu.card.named("channel_scheduled") == []
    assert cpu.control(inner, subdevice, REGION, b"\0")[0] == OK
    assert cpu.card.named("channel_scheduled") == [(channel, True)]
    assert cpu.firmware.violations == []


def test_what_slept_is_forgotten_by_a_fresh_start(up):
    cpu = up()
    channel = make_channel(cpu)
    fall_asleep(cpu)
    cpu.firmware.start(cpu.firmware._boot)
    assert cpu.card.named("channel_freed") == [(channel,)]
    cpu.firmware.unload()
    wake(cpu)
    assert cpu.firmware.phase is Phase.STUCK
    assert "resume: nothing was saved" in cpu.firmware.log.find("violation")[-1].text


@pytest.mark.parametrize("resumed", [0, 1])
def test_the_arguments_must_say_that_it_is_a_resume(up, resumed):
    cpu = up()
    fall_asleep(cpu)
    if resumed:
        # other queues
        cpu.put(HOST + 0x2000 + 8, struct.pack("<I", 0))
    wake(cpu, resumed=resumed)
    assert cpu.firmware.phase is Phase.STUCK
    assert cpu.receive() is None


def test_misuse_of_the_save_area(up):
    cpu = up()
    client, (inner, subdevice) = cpu.root(CLIENT), cpu.internal()
    pages = [(HOST >> 12) + number for number in range(4)]
    region = struct.pack("<III4xQQQ", 4, client, 0x92, 0, 0, PAGE)
    assert cpu.control(inner, subdevice, REGION, region)[0] == INVALID_STATE
    assert cpu.call(ALLOC_MEMORY, memory_list(client, 0x91, SYSTEM_LIST, pages)).result == OK
    assert cpu.call(ALLOC_MEMORY, memory_list(client, 0x92, VIDEO_LIST, [1, 2])).result == OK
    for fields, status in (
        ((3, 1, client, 0x91), NOT_SUPPORTED),
        ((4, 1 << 20, client, 0x91), INVALID_ARGUMENT),
        ((4, 1, client, 0x92), INVALID_ARGUMENT),
        ((4, 1, client, 0x80), INVALID_OBJECT),
    ):
        assert cpu.control(inner, subdevice, BEGIN, struct.pack("<IIIIQ8x", *fields, 0))[0] == status
    assert cpu.control(inner, subdevice, BEGIN, struct.pack("<IIIIQ8x", 4, 1, client, 0x91, 0))[0] == OK
    for offset, saved, size in (
        (0, 0, 3 * PAGE),
        (PAGE, 0, 2 * PAGE),
        (0, 3 * PAGE, 2 * PAGE),
        (0, 0, 0),
        (8, 0, PAGE),
        (1 << 40, 0, PAGE),
    ):
        wrong = struct.pack("<III4xQQQ", 4, client, 0x92, offset, saved, size)
        assert cpu.control(inner, subdevice, REGION, wrong)[0] == INVALID_ARGUMENT
    assert cpu.control(inner, subdevice, REGION, region)[0] == OK
    assert cpu.control(inner, subdevice, REGION, region)[0] == INVALID_STATE


def test_misuse_of_memory_lists(up):
    cpu = up()
    client = cpu.root(CLIENT)
    for call, status in (
        (memory_list(client, 0x91, SYSTEM_LIST, []), INVALID_ARGUMENT),
        (memory_list(client, 0x91, SYSTEM_LIST, [1], length=2 * PAGE), INVALID_ARGUMENT),
        (memory_list(client, 0x91, SYSTEM_LIST, [1], idr=1), INVALID_ARGUMENT),
        (memory_list(client, 0x91, 0x2080, [1]), INVALID_CLASS),
        (memory_list(client, 0x91, 0x3E, [1]), INVALID_CLASS),
    ):
        assert cpu.call(ALLOC_MEMORY, call).result == status
    assert cpu.call(ALLOC_MEMORY, memory_list(client, 0x91, SYSTEM_LIST, list(range(1, 40000)))).result == OK
    # a message that is shorter than it says
    assert cpu.call(ALLOC_MEMORY, memory_list(client, 0x92, SYSTEM_LIST, [1], count=1 << 31)) is None
    assert cpu.firmware.violations[0].startswith("length: call 0x4 says it has")


RING, SHADOW = HOST + 0x2_0000, HOST + 0x2_1000
FAULT_QUEUED, REPORT_FAULT, REGISTER_SHADOW = 0x1005, 0x20800177, 0x20800A9D


def fault(instance, *, vram=True):
    """A packet as clc369.h has it: the instance block's address and aperture."""
    return struct.pack("<8I", instance | (0 if vram else 2) << 8, 0, 0x5000, 0, 1, 2, 15, 1 << 31)


def with_shadow(up, *, capacity=128):
    """A firmware with UVM's buffer of one page: the ring's capacity and indices, 64 bytes apart."""
    cpu = up()
    channel = make_channel(cpu)
    cpu.memory.write(Aperture.SYSMEM, RING, struct.pack("<Q", capacity) + bytes(184))
    shadow = struct.pack("<QII3000QIxxxxQ", RING, PAGE, PAGE, SHADOW, SHADOW + PAGE, *[0] * 2998, 0, 0)
    client, subdevice = cpu.internal()
    assert cpu.control(client, subdevice, REGISTER_SHADOW, shadow)[0] == OK
    return cpu, channel, lambda command, params: cpu.control(client, subdevice, command, params)


def indices(cpu):
    return [struct.unpack("<Q", cpu.memory.read(Aperture.SYSMEM, RING + at, 8))[0] for at in (64, 128)]


def test_a_fault_goes_to_the_buffer_that_uvm_registered(up):
    cpu, channel, ask = with_shadow(up)
    assert cpu.firmware.offer_fault(fault(0x10000))
    assert cpu.receive().function == FAULT_QUEUED
    assert indices(cpu) == [0, 1]
    assert cpu.memory.read(Aperture.SYSMEM, SHADOW, 32) == fault(0x10000)
    # UVM cannot handle it: the card stops the channel of that instance block
    assert ask(REPORT_FAULT, fault(0x10000))[0] == OK
    assert cpu.card.named("fault_reported") == [(channel,)]
    for unknown in (fault(0x30000), fault(0x10000, vram=False)):
        assert ask(REPORT_FAULT, unknown)[0] != OK


def test_a_full_or_broken_ring_takes_no_fault(up):
    cpu, _, _ = with_shadow(up, capacity=3)
    assert [cpu.firmware.offer_fault(fault(0x10000)) for _ in range(3)] == [True, True, False]
    assert indices(cpu) == [0, 2]
    cpu.memory.write(Aperture.SYSMEM, RING + 64, struct.pack("<Q", 2))
    # the last place, and around
    assert cpu.firmware.offer_fault(fault(0x20000))
    assert indices(cpu) == [2, 0]
    assert cpu.memory.read(Aperture.SYSMEM, SHADOW + 64, 32) == fault(0x20000)
    for capacity in (0, 1 << 40, 129):
        cpu.memory.write(Aperture.SYSMEM, RING, struct.pack("<Q", capacity))
        assert not cpu.firmware.offer_fault(fault(0x10000))


def test_without_a_buffer_no_fault_is_taken(up):
    cpu = up()
    make_channel(cpu)
    assert not cpu.firmware.offer_fault(fault(0x10000))


def test_channels_of_a_faulting_address_space_say_so_in_their_instance_blocks(up):
    """FAULT_REPLAY_TEX and _GCC, bits 4 and 5, from ENABLE_PAGE_FAULTING of the address space."""
    cpu = up()
    cpu.root(CLIENT)
    for handle, flags in ((0x5A, 0x40), (0x5B, 0)):
        assert cpu.alloc(CLIENT, 0x80, handle, 0x90F1, struct.pack("<II", 0, flags) + bytes(40))[0] == OK
        params = failing_params(handle & 7, HOST + 0x9000, space=handle, instance=0x10000 * (handle & 7))
        assert cpu.alloc(CLIENT, 0x80, 0xC0 + handle, 0xC56F, params)[0] == OK
    first, second = (row[0] for row in cpu.card.named("channel_allocated"))
    assert (first.replays, second.replays) == (True, False)

"""Objects through the queues: what drivers do, and what each misuse is answered. Statuses: resserv of 535.261.03."""

import struct
from pathlib import Path

import pytest

from ringup.silicon.nv.gsp.ports import Aperture
from ringup.silicon.nv.rm.parts import RmError

OK, ILLEGAL_ACTION, DUPLICATE, INSUFFICIENT, INVALID_ARGUMENT, INVALID_CLASS, INVALID_CLIENT = (
    0,
    0x16,
    0x19,
    0x1A,
    0x1F,
    0x22,
    0x23,
)
INVALID_OBJECT, INVALID_HANDLE, INVALID_PARENT, INVALID_PARAMS, INVALID_STATE = 0x31, 0x33, 0x36, 0x3A, 0x40
NOT_SUPPORTED, NOT_FOUND, IN_USE = 0x56, 0x57, 0x63
CLIENT = 0xC1D00001
LIBCUDA = Path(__file__).parents[2] / "data/nv-rm/libcuda_objects.txt"
CHANNEL_CLASS = {"tu102": 0xC46F, "ga102": 0xC56F, "ad102": 0xC56F}
COPY_CLASS = {"tu102": 0xC5B5, "ga102": 0xC7B5, "ad102": 0xC7B5}
GRAPHICS_CLASS = {"tu102": 0xC597, "ga102": 0xC797, "ad102": 0xC997}


def channel_params(
    number=0, engine=1, *, entries=512, space=0, share=0, instance=0x10000, userd=0x20000, vram=2, gpfifo=0x1_2006_4000
):
    """NV_CHANNEL_ALLOC_PARAMS of 360 bytes, with the fields that drivers fill in."""
    params = bytearray(360)
    flags = (number & 7) << 8 | number >> 3 << 12 | 1 << 21 | 1 << 5
    struct.pack_into("<IIQIIII", params, 0, 0, 0, gpfifo, entries, flags, share, space)
    struct.pack_into("<I", params, 128, engine)
    for at, base, size in (
        (144, instance, 0x1000),
        (168, userd, 0x200),
        (192, instance, 0x200),
        (216, 0x30000, 0x5000),
    ):
        struct.pack_into("<QQII", params, at, base, size, vram, 1)
    return bytes(params)


def space_params(index=0, flags=0, big=0):
    return struct.pack("<IIQQQI4xQ", index, flags, 0, 0, 0, big, 0)


def reserved_pdes(root, levels=3):
    """NV90F1_CTRL_VASPACE_COPY_SERVER_RESERVED_PDES_PARAMS as nouveau fills it."""
    params = struct.pack("<IIQQQI4x", 0, 0, 0x20000000, 0x20000000, 0x3FFFFFFF, levels)
    for level in range(6):
        address, shift = (root + level * 0x1000, (0x2F, 0x26, 0x1D)[level]) if level < levels else (0, 0)
        params += struct.pack("<QQIB3x", address, 0x1000, 1 if level < levels else 0, shift)
    return params


@pytest.fixture(params=["tu102", "ga102", "ad102"])
def chip(request):
    return request.param


def test_what_nouveau_does_until_its_node(up, chip):
    """r535_gr_oneinit, r535_mmu_promote_vmm, r535_chan_ramfc_write: a channel for the golden context, then a copy."""
    cpu = up(chip)
    cpu.root(CLIENT)
    assert cpu.alloc(CLIENT, 0x80, 0x90F10000, 0x90F1, space_params()) == (OK, space_params())
    assert cpu.control(CLIENT, 0x90F10000, 0x90F10106, reserved_pdes(0x400000))[0] == OK
    params = channel_params(0, 1, space=0x90F10000)
    status, answer = cpu.alloc(CLIENT, 0x80, 0xF1F00000, CHANNEL_CLASS[chip], params)
    assert (status, answer) == (OK, params)
    ((channel,),) = cpu.card.named("channel_allocated")
    assert (channel.number, channel.engine_type, channel.gpfifo_entries) == (0, 1, 512)
    assert (channel.instance.address, channel.userd.address) == (0x10000, 0x20000)
    # the firmware fills the instance block: signature, GPFIFO, root of the page tables
    instance = cpu.memory.read(Aperture.VRAM, 0x10000, 0x1000)
    assert struct.unpack_from("<I", instance, 0x10)[0] == 0xFACE
    assert struct.unpack_from("<II", instance, 0x48) == (0x20064000, 1 | 9 << 16)
    assert struct.unpack_from("<II", instance, 0x200) == (0x400000 | 1 << 10 | 1 << 11, 0)
    promote = struct.pack("<IIIIIIQQI4x", 1, CLIENT, 0, CLIENT, 0xF1F00000, 0, 0, 0, 1) + struct.pack(
        "<QQQIHBB", 0x500000, 0x20000, 0x8D000, 4, 0, 1, 0
    )
    assert cpu.control(CLIENT, 0x2080, 0x2080012B, promote.ljust(560, b"\0"))[0] == OK
    assert cpu.alloc(CLIENT, 0xF1F00000, 0x97000000, GRAPHICS_CLASS[chip])[0] == OK
    assert cpu.free(CLIENT, 0x97000000) == OK
    assert cpu.free(CLIENT, 0xF1F00000) == OK
    assert cpu.card.named("channel_freed") == [(channel,)]
    # COPY2 is the first copy engine with a runlist of its own
    assert cpu.alloc(CLIENT, 0x80, 0xF1F00001, CHANNEL_CLASS[chip], channel_params(1, 11, space=0x90F10000))[0] == OK
    assert cpu.control(CLIENT, 0xF1F00001, 0xA06F0104, struct.pack("<I", 11))[0] == OK
    assert cpu.control(CLIENT, 0xF1F00001, 0xA06F0103, b"\1\0")[0] == OK
    assert cpu.alloc(CLIENT, 0xF1F00001, 0xC0, COPY_CLASS[chip], struct.pack("<II", 1, 11))[0] == OK
    assert [enable for _, enable in cpu.card.named("channel_scheduled")] == [True]
    assert cpu.firmware.violations == []
    assert cpu.firmware.session.manager.unmodelled == {}


def test_parameters_beyond_the_messages_length_are_found(up):
    """NVIDIA's driver leaves the parameters of RM_ALLOC out of the message's length."""
    cpu = up(release="535.261.03")
    client = cpu.root()
    status, answer = cpu.alloc(client, 0x80, 0x90F10000, 0x90F1, space_params(), in_length=False)
    assert (status, answer) == (OK, space_params())


def test_freeing_a_client_frees_channels_first(up):
    cpu = up()
    cpu.root(CLIENT)
    cpu.alloc(CLIENT, 0x80, 0x5A, 0x90F1, space_params())
    cpu.alloc(CLIENT, 0x80, 0xC0, 0xC56F, channel_params(0, 1, space=0x5A))
    cpu.alloc(CLIENT, 0xC0, 0x3D, 0xC797)
    cpu.control(CLIENT, 0xC0, 0xA06F0103, b"\1\0")
    assert cpu.free(CLIENT, CLIENT) == OK
    freed = [event.text.split(" of client")[0] for event in cpu.firmware.log.find("free", "RM")]
    assert freed == [
        "graphics or compute object 0x3d (AMPERE_B)",
        "channel 0xc0 (AMPERE_CHANNEL_GPFIFO_A)",
        "address space 0x5a (FERMI_VASPACE_A)",
        "subdevice 0x2080 (NV20_SUBDEVICE_0)",
        "device 0x80 (NV01_DEVICE_0)",
        "client 0xc1d00001 (NV01_ROOT)",
    ]
    assert [name for name, *_ in cpu.card.calls if name.startswith("channel_")] == [
        "channel_allocated",
        "channel_scheduled",
        "channel_scheduled",
        "channel_freed",
    ]
    assert cpu.alloc(CLIENT, 0x80, 0x5A, 0x90F1, space_params())[0] == INVALID_HANDLE


def test_freeing_an_address_space_frees_its_channels(up):
    cpu = up()
    cpu.root(CLIENT)
    cpu.alloc(CLIENT, 0x80, 0x5A, 0x90F1, space_params())
    cpu.alloc(CLIENT, 0x80, 0xC0, 0xC56F, channel_params(0, 1, space=0x5A))
    assert cpu.free(CLIENT, 0x5A) == OK
    assert len(cpu.card.named("channel_freed")) == 1
    assert cpu.control(CLIENT, 0xC0, 0xA06F0103, b"\1\0")[0] == NOT_FOUND


MISUSES = {
    "no client": (lambda cpu: cpu.alloc(0, 0x80, 1, 0x90F1, space_params())[0], INVALID_CLIENT),
    "an unknown client": (lambda cpu: cpu.alloc(0xC1D00077, 0x80, 1, 0x90F1, space_params())[0], INVALID_HANDLE),
    # a larger handle is in the same list of clients
    "an unknown client before another": (
        lambda cpu: cpu.alloc(0x1, 0x80, 1, 0x90F1, space_params())[0],
        INVALID_OBJECT,
    ),
    "a client twice": (lambda cpu: cpu.alloc(CLIENT, 0, 0, 0, struct.pack("<II100x", CLIENT, 1))[0], DUPLICATE),
    "an unknown parent": (lambda cpu: cpu.alloc(CLIENT, 0x81, 1, 0x90F1, space_params())[0], NOT_FOUND),
    "a wrong parent": (lambda cpu: cpu.alloc(CLIENT, CLIENT, 1, 0x2080, bytes(4))[0], INVALID_PARENT),
    "a channel below a subdevice": (
        lambda cpu: cpu.alloc(CLIENT, 0x2080, 1, 0xC56F, channel_params())[0],
        INVALID_PARENT,
    ),
    "a handle twice": (lambda cpu: cpu.alloc(CLIENT, 0x80, 0x2080, 0x90F1, space_params())[0], DUPLICATE),
    "the client's handle": (lambda cpu: cpu.alloc(CLIENT, 0x80, CLIENT, 0x90F1, space_params())[0], INVALID_PARENT),
    "an unknown class": (lambda cpu: cpu.alloc(CLIENT, 0x80, 1, 0xABCD)[0], INVALID_CLASS),
    "an older channel class": (lambda cpu: cpu.alloc(CLIENT, 0x80, 1, 0xC46F, channel_params())[0], OK),
    "another chip's engine class": (lambda cpu: _on_channel(cpu, 0xC997), INVALID_CLASS),
    "a class that this engine lacks": (lambda cpu: _on_channel(cpu, 0xC7B0), INVALID_CLASS),
    "no parameters": (lambda cpu: cpu.alloc(CLIENT, 0x80, 1, 0x90F1)[0], INVALID_ARGUMENT),
    "short parameters": (lambda cpu: cpu.alloc(CLIENT, 0x80, 1, 0x90F1, bytes(40))[0], INVALID_PARAMS),
    "a device twice": (lambda cpu: cpu.alloc(CLIENT, CLIENT, 1, 0x80, bytes(56))[0], INSUFFICIENT),
    "another device": (lambda cpu: cpu.alloc(CLIENT, CLIENT, 1, 0x80, struct.pack("<I52x", 1))[0], INVALID_CLASS),
    "a subdevice twice": (lambda cpu: cpu.alloc(CLIENT, 0x80, 1, 0x2080, bytes(4))[0], INSUFFICIENT),
    "I2C twice": (lambda cpu: [cpu.alloc(CLIENT, 0x2080, n, 0x402C)[0] for n in (1, 2)][1], IN_USE),
    "big pages of a strange size": (
        lambda cpu: cpu.alloc(CLIENT, 0x80, 1, 0x90F1, space_params(big=1))[0],
        INVALID_ARGUMENT,
    ),
    "an unknown kind of address space": (
        lambda cpu: cpu.alloc(CLIENT, 0x80, 1, 0x90F1, space_params(9))[0],
        INVALID_STATE,
    ),
    "a ring of a strange size": (
        lambda cpu: cpu.alloc(CLIENT, 0x80, 1, 0xC56F, channel_params(entries=500))[0],
        INVALID_ARGUMENT,
    ),
    "an engine that is not there": (
        lambda cpu: cpu.alloc(CLIENT, 0x80, 1, 0xC56F, channel_params(engine=0x12))[0],
        INVALID_ARGUMENT,
    ),
    "a channel's number twice": (
        lambda cpu: [cpu.alloc(CLIENT, 0x80, n, 0xC56F, channel_params(5))[0] for n in (1, 2)][1],
        INSUFFICIENT,
    ),
    "an instance block nowhere": (
        lambda cpu: cpu.alloc(CLIENT, 0x80, 1, 0xC56F, channel_params(vram=0))[0],
        INVALID_ARGUMENT,
    ),
    "an instance block that is not there": (
        lambda cpu: cpu.alloc(CLIENT, 0x80, 1, 0xC56F, channel_params(vram=1))[0],
        0x1E,
    ),
    "an unknown address space": (lambda cpu: cpu.alloc(CLIENT, 0x80, 1, 0xC56F, channel_params(space=3))[0], NOT_FOUND),
    "an object that is no address space": (
        lambda cpu: cpu.alloc(CLIENT, 0x80, 1, 0xC56F, channel_params(space=0x2080))[0],
        INVALID_HANDLE,
    ),
    "a control of an unknown object": (lambda cpu: cpu.control(CLIENT, 7, 0x2080012C, bytes(20))[0], NOT_FOUND),
    "a control of an unknown client": (
        lambda cpu: cpu.control(0xC1D00077, 7, 0x2080012C, bytes(20))[0],
        INVALID_HANDLE,
    ),
    "a control on another kind": (lambda cpu: cpu.control(CLIENT, 0x80, 0x20800170, bytes(252))[0], NOT_SUPPORTED),
    "an unknown control": (lambda cpu: cpu.control(CLIENT, 0x2080, 0x20801234, bytes(8))[0], NOT_SUPPORTED),
    "a control's short parameters": (
        lambda cpu: cpu.control(CLIENT, 0x2080, 0x20800170, bytes(248))[0],
        INVALID_PARAMS,
    ),
    "a notification without an event": (
        lambda cpu: cpu.control(CLIENT, 0x2080, 0x20800301, struct.pack("<II12x", 35, 2))[0],
        INVALID_STATE,
    ),
    "freeing in an unknown client": (lambda cpu: cpu.free(0xC1D00077, 1), INVALID_HANDLE),
    # the modules are built with RS_COMPATABILITY_MODE
    "freeing an unknown object": (lambda cpu: cpu.free(CLIENT, 0x77), OK),
    "freeing twice": (lambda cpu: [cpu.free(CLIENT, 0x2080) for _ in range(2)][1], OK),
}


def _on_channel(cpu, number):
    assert cpu.alloc(CLIENT, 0x80, 0xC0, 0xC56F, channel_params())[0] == OK
    return cpu.alloc(CLIENT, 0xC0, 1, number)[0]


@pytest.mark.parametrize("misuse", MISUSES)
def test_misuse_has_the_resource_servers_status(up, misuse):
    cpu = up()
    cpu.root(CLIENT)
    do, status = MISUSES[misuse]
    objects = cpu.firmware.session.manager.clients.objects
    assert do(cpu) == status
    # what was refused left nothing behind
    if status and not misuse.startswith(("a channel's", "I2C", "another chip's engine", "a class that")):
        assert cpu.firmware.session.manager.clients.objects == objects
    assert cpu.firmware.violations == []


def test_a_refused_allocation_leaves_its_handle_free(up):
    cpu = up()
    cpu.root(CLIENT)
    assert cpu.alloc(CLIENT, 0x80, 1, 0xC56F, channel_params(entries=3))[0] == INVALID_ARGUMENT
    assert cpu.alloc(CLIENT, 0x80, 1, 0xC56F, channel_params())[0] == OK


def test_a_tree_is_at_most_six_levels_deep(up):
    cpu = up()
    cpu.root(CLIENT)
    group = struct.pack("<IIIIB3x", 0, 0, 0, 1, 0)
    assert cpu.alloc(CLIENT, 0x80, 0x60, 0xA06C, group)[0] == OK
    assert cpu.alloc(CLIENT, 0x60, 0xC0, 0xC56F, channel_params(engine=0))[0] == OK
    assert cpu.alloc(CLIENT, 0xC0, 0xE0, 0xC7C0)[0] == OK
    event = struct.pack("<IIIIQ", CLIENT, 0, 0x7E, 0, 0)
    # client, device, group, channel, object, event; events may be below events
    assert cpu.alloc(CLIENT, 0xE0, 0xE1, 0x7E, event)[0] == OK
    # an event tells of its parent, and an event tells of nothing
    assert cpu.alloc(CLIENT, 0xE1, 0xE2, 0x7E, event)[0] == INVALID_OBJECT
    tree = cpu.firmware.session.manager
    deepest = tree.clients.add(tree.find(CLIENT, 0xE1), 0xE3, tree.find(CLIENT, 0xE1).row)
    with pytest.raises(RmError, match="NV_ERR_ILLEGAL_ACTION"):
        tree.clients.add(deepest, 0xE4, deepest.row)


def test_handles_are_given_when_none_is_named(up):
    cpu = up()
    cpu.root(CLIENT)
    seen = []
    for _ in range(3):
        head = struct.pack("<7I4x", CLIENT, 0x80, 0, 0x90F1, 0, 48, 0)
        seen.append(struct.unpack_from("<I", cpu.call(103, head + space_params()).body, 8)[0])
    assert len(set(seen)) == 3
    assert all(seen)


def test_events_reach_the_client_that_subscribed_them(up):
    cpu = up()
    cpu.root(CLIENT)
    event = struct.pack("<IIIIQ", CLIENT, 0, 0x7E, 0x0C000023, 0xFEED)
    assert cpu.alloc(CLIENT, 0x2080, 0xE0, 0x05, event)[0] == OK
    assert cpu.control(CLIENT, 0x2080, 0x20800301, struct.pack("<II12x", 0x23, 1))[0] == OK
    manager = cpu.firmware.session.manager
    subdevice = manager.find(CLIENT, 0x2080)
    manager.notify(subdevice, 0x23, data=7, info=5)
    # a single notification is switched off by being sent
    manager.notify(subdevice, 0x23)
    message = cpu.receive()
    assert (message.function, message.result) == (0x1003, 0)
    assert struct.unpack_from("<IIIIH", message.body) == (CLIENT, 0xE0, 0x23, 7, 5)
    assert cpu.receive() is None


def test_a_channel_group_runs_and_stops_together(up):
    cpu = up()
    cpu.root(CLIENT)
    cpu.alloc(CLIENT, 0x80, 0x5A, 0x90F1, space_params(0, 0x48))
    root = struct.pack("<III4xQIIIIII", CLIENT, 0x80, 0, 0x201000, 256, 8, 0x5A, 0, 0, 0)
    assert cpu.call(54, root).result == OK
    cpu.alloc(CLIENT, 0x80, 0x60, 0xA06C, struct.pack("<IIIIB3x", 0, 0, 0x5A, 1, 0))
    status, share = cpu.alloc(CLIENT, 0x60, 0x61, 0x9067, struct.pack("<III", 0x5A, 1, 0))
    assert (status, struct.unpack("<III", share)[2]) == (OK, 63)
    for number in (4, 5):
        params = channel_params(number, 0, share=0x61, instance=0x10000 * number)
        assert cpu.alloc(CLIENT, 0x60, 0xC0 + number, 0xC56F, params)[0] == OK
    assert cpu.control(CLIENT, 0x60, 0xA06C0101, b"\1\0")[0] == OK
    assert [(channel.number, enable) for channel, enable in cpu.card.named("channel_scheduled")] == [
        (4, True),
        (5, True),
    ]
    # the doorbell's value, without the runlist
    assert cpu.control(CLIENT, 0xC5, 0xC36F0108, b"\xff" * 4) == (OK, struct.pack("<I", 5))
    first = cpu.card.named("channel_allocated")[0][0]
    assert (first.subcontext, first.page_directory.address) == (63, 0x201000)
    assert cpu.control(CLIENT, 0xC4, 0xA06F0112, b"\1")[0] == OK
    assert cpu.card.named("channel_stopped") == [(first,)]


def test_a_control_block_is_where_the_instance_block_can_name_it(up):
    cpu = up()
    cpu.root(CLIENT)
    assert cpu.alloc(CLIENT, 0x80, 0xC4, 0xC56F, channel_params(4, userd=0x20100))[0] == OK
    channel = cpu.card.named("channel_allocated")[0][0]
    assert channel.userd.address == 0x20000
    assert cpu.memory.read(Aperture.VRAM, 0x10008, 4) == struct.pack("<I", 0x20000)


def test_a_duplicate_is_the_same_address_space(up):
    """UVM duplicates a client's address space, and sets the root on the duplicate."""
    cpu = up(release="535.261.03")
    cpu.root(CLIENT)
    other = cpu.root(0xC1D00007)
    cpu.alloc(CLIENT, 0x80, 0x5A, 0x90F1, space_params(0, 0x48))
    cpu.alloc(CLIENT, 0x80, 0xC0, 0xC56F, channel_params(0, 1, space=0x5A))
    assert cpu.call(21, struct.pack("<7I", other, 0x80, 0x20, CLIENT, 0x5A, 0, 0)).result == OK
    root = struct.pack("<III4xQIIIIII", other, 0x80, 0, 0x201000, 256, 8, 0x20, 0, 0, 0)
    assert cpu.call(54, root).result == OK
    ((channel,),) = cpu.card.named("page_directory_set")
    assert channel.page_directory.address == 0x201000
    assert struct.unpack("<I", cpu.memory.read(Aperture.VRAM, 0x10200, 4))[0] >> 12 == 0x201
    # a retainer keeps the channel alive after its own object went
    assert cpu.alloc(other, 0x80, 0x21, 0xC574, struct.pack("<II", CLIENT, 0xC0))[0] == OK
    assert cpu.free(CLIENT, CLIENT) == OK
    assert cpu.card.named("channel_freed") == []
    assert cpu.free(other, 0x21) == OK
    assert cpu.card.named("channel_freed") == [(channel,)]


def test_who_may_set_a_root(up):
    """As gpu_vaspace.c has it: of a space that someone else owns or shares; UVM does both."""
    cpu = up()
    cpu.root(CLIENT)

    def root(space, address=0x201000):
        return cpu.call(54, struct.pack("<III4xQIIIIII", CLIENT, 0x80, 0, address, 256, 8, space, 0, 0, 0)).result

    def take_away(space):
        return cpu.control(CLIENT, 0x80, 0x00801814, struct.pack("<II", space, 1))[0]

    for handle, flags in ((0x5A, 0), (0x5B, 4), (0x5C, 8), (0x5D, 0x24)):
        assert cpu.alloc(CLIENT, 0x80, handle, 0x90F1, space_params(0, flags))[0] == OK
    assert [root(0x5A), root(0x5D), root(0)] == [NOT_SUPPORTED] * 3
    assert [take_away(0x5B), root(0x5B), root(0x5B)] == [INVALID_STATE, OK, OK]
    assert [root(0x5C), root(0x5C), take_away(0x5C), root(0x5C)] == [OK, INVALID_STATE, OK, OK]
    cpu.alloc(CLIENT, 0x80, 0xC0, 0xC56F, channel_params(0, 1, space=0x5B))
    assert take_away(0x5B) == OK
    ((channel,),) = cpu.card.named("page_directory_set")
    assert channel.page_directory is None
    assert take_away(0x5B) == INVALID_STATE


def test_all_that_libcuda_did_with_objects_is_allowed(up):
    """Replays a log of drivers on a throw-away model: nothing is refused, and of libcuda nothing is left."""
    cpu = up(release="535.261.03")
    for line in LIBCUDA.read_text().splitlines():
        what, *words = line.split()
        if what == "#":
            continue
        if what in ("alloc", "control"):
            *words, size, data = words
            params = bytes.fromhex(data.strip("-")).ljust(int(size), b"\0")
        numbers = [int(word, 16) for word in words]
        match what:
            case "alloc":
                status, _ = cpu.alloc(*numbers, params)
            case "control":
                status, _ = cpu.control(*numbers, params)
            case "free":
                status = cpu.free(*numbers)
            case "dup":
                status = cpu.call(21, struct.pack("<7I", *numbers, 0, 0)).result
            case "root":
                client, device, space, address, flags = numbers
                body = struct.pack("<III4xQIIIIII", client, device, 0, address, 256, flags, space, 0, 0, 0)
                status = cpu.call(54, body).result
        assert status == OK, line
    made = [channel for (channel,) in cpu.card.named("channel_allocated")]
    gone = [channel for (channel,) in cpu.card.named("channel_freed")]
    # the kernel's driver stays loaded, with its channels for clearing memory and for graphics
    assert [channel.number for channel in made if channel not in gone] == [0, 1]
    assert (len(made), len(gone)) == (17, 15)
    left = {client.handle for client in cpu.firmware.session.manager.clients}
    # UVM's client and libcuda's two are gone
    assert not left & {0xC1D00007, 0xC1D00009, 0xC1D0000A}


def test_a_context_is_switched_in_one_of_three_modes(up):
    """NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE: flags, channel, graphics, compute; routing information."""
    cpu = up()
    cpu.root(CLIENT)

    def switch(channel, flags, graphics, compute):
        params = struct.pack("<4IQQ", flags, channel, graphics, compute, 0, 0)
        return cpu.control(CLIENT, 0x2080, 0x20801210, params)[0]

    cpu.alloc(CLIENT, 0x80, 0x5A, 0x90F1, space_params())
    cpu.alloc(CLIENT, 0x80, 0xC0, 0xC56F, channel_params(0, 1, space=0x5A))
    assert [switch(0xC0, 3, mode, mode) for mode in range(4)] == [OK, OK, OK, INVALID_ARGUMENT]
    # a mode without its flag is not looked at
    assert [switch(0xC0, flags, 3, 1) for flags in (1, 2)] == [OK, INVALID_ARGUMENT]
    assert [switch(0xC0, flags, 1, 3) for flags in (1, 2)] == [INVALID_ARGUMENT, OK]
    assert [switch(handle, 1, 0, 0) for handle in (0x80, 0xC1)] == [INVALID_ARGUMENT, NOT_FOUND]

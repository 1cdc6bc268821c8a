"""Controls: that all which drivers send are known with their sizes, and that what they say of a board agrees.

Commands and sizes: those that nvidia.ko, nvidia-smi and libcuda 535.261.03 sent to a throw-away model.
"""

import struct
import uuid

import pytest

from ringup.autogen.nv import gsp_static
from ringup.autogen.nv import rm_ctrl_2080_fifo as fifo
from ringup.autogen.nv import rm_ctrl_2080_gr as gr
from ringup.autogen.nv import rm_ctrl_2080_internal as internal
from ringup.silicon.nv.common.usage import Usage
from ringup.silicon.nv.gsp.ports import Aperture
from ringup.silicon.nv.rm.classes import Kind
from ringup.silicon.nv.rm.controls.every import CONTROLS

OK, INVALID_ADDRESS, INVALID_ARGUMENT, INVALID_PARAMS, NOT_SUPPORTED = 0, 0x1E, 0x1F, 0x3A, 0x56
RELEASE = "535.261.03"
HOST = 0x1_0000_0000
# command and bytes of parameters, on a subdevice
SEEN = (
    (0x20800102, 516),
    (0x20800110, 132),
    (0x20800111, 64),
    (0x2080012B, 560),
    (0x2080012C, 20),
    (0x2080012F, 984),
    (0x20800133, 8),
    (0x2080013F, 136),
    (0x2080014A, 268),
    (0x2080014B, 5),
    (0x20800157, 0),
    (0x20800170, 252),
    (0x2080017E, 8),
    (0x20800301, 20),
    (0x20800810, 124),
    (0x20800A1C, 56),
    (0x20800A1D, 520),
    (0x20800A1E, 4),
    (0x20800A1F, 184),
    (0x20800A22, 23072),
    (0x20800A26, 2368),
    (0x20800A2A, 3392),
    (0x20800A2C, 320),
    (0x20800A2E, 96),
    (0x20800A30, 384),
    (0x20800A32, 1600),
    (0x20800A34, 72),
    (0x20800A36, 92),
    (0x20800A3D, 32),
    (0x20800A38, 24),
    (0x20800A3F, 256),
    (0x20800A40, 3172),
    (0x20800A41, 8204),
    (0x20800A42, 1284),
    (0x20800A46, 1),
    (0x20800A48, 8),
    (0x20800A4C, 4),
    (0x20800A59, 16),
    (0x20800A5C, 2068),
    (0x20800A61, 8),
    (0x20800A70, 0),
    (0x20800A80, 16),
    (0x20800A9B, 2064),
    (0x20800A9C, 0),
    (0x20800A9D, 24032),
    (0x20800A9E, 4),
    (0x20800A9F, 184),
    (0x20800AAC, 16),
    (0x20800AC7, 4),
    (0x20800AC8, 4),
    (0x20800AD8, 8),
    (0x20800AF3, 2),
    (0x20800A6C, 4),
    (0x20800AFA, 96),
    (0x20801112, 3212),
    (0x20801303, 436),
    (0x20801702, 4),
    (0x20801803, 200),
    (0x20801823, 420),
    (0x2080182A, 104),
    (0x2080182B, 28),
    (0x20802609, 8),
    (0x20802A02, 8),
    (0x20802A05, 144),
    (0x20802A06, 4),
    (0x20802A07, 8),
    (0x20802A08, 4),
    (0x20802A09, 132),
    (0x20802A0B, 68),
    (0x2080302C, 532),
    (0x2080302E, 12),
    (0x20803037, 4),
    (0x20803039, 32),
    (0x2080303B, 8),
    (0x20803046, 1),
    (0x20803601, 72),
    (0x2080400B, 1),
    (0x20808159, 332),
    (0x20808161, 952),
    (0x20808513, 1432),
    (0x2080852E, 528),
    (0x20809009, 8),
    (0x2080A068, 4),
    (0x2080A612, 3608),
    (0x2080A618, 6944),
    (0x2080A637, 88024),
)
# those that are refused whatever is asked: the board lacks it, or nobody knows what it is
REFUSED_ALWAYS = {
    0x2080014B,
    0x20800133,
    0x20800157,
    0x2080017E,
    0x20800A3F,
    0x20800AC7,
    0x20800AC8,
    0x2080302C,
    0x2080302E,
    0x20803037,
    0x20803039,
    0x2080303B,
    0x20803046,
    0x20808161,
    0x2080852E,
    0x20809009,
    0x2080A068,
    0x2080A612,
    0x2080A618,
    0x2080A637,
}
# what the parameters must begin with
HEADS = {0x20808513: struct.pack("<III", 1, 0, 44)}
CHIP_CORES = {"tu102": (3072, 48, 0x705), "ga102": (9216, 72, 0x806), "ad102": (18176, 142, 0x809)}


@pytest.fixture(params=["tu102", "ga102", "ad102"])
def chip(request):
    return request.param


class Board:
    """Asks the firmware's own subdevice, as nvidia.ko does, and reads answers by the headers' layouts."""

    def __init__(self, cpu):
        self.cpu = cpu
        self.client, self.subdevice = cpu.internal()

    def ask(self, command, params):
        return self.cpu.control(self.client, self.subdevice, command, params)

    def get(self, module, name, params_name=None):
        layout = getattr(module, f"NV2080_CTRL_{params_name or name}_PARAMS").at(RELEASE)
        status, data = self.ask(getattr(module, f"NV2080_CTRL_CMD_{name}"), bytes(layout.SIZE))
        assert status == OK
        return layout.view(bytearray(data))

    def table(self, name):
        return self.get(internal, f"INTERNAL_STATIC_KGR_GET_{name}")

    def static(self):
        layout = gsp_static.GspStaticConfigInfo.at(RELEASE)
        return layout.view(bytearray(self.cpu.call(65, bytes(2168)).body))

    def listed(self, command, size, indices):
        """A control that takes a list of indices; return the values."""
        params = struct.pack("<I", len(indices)) + b"".join(struct.pack("<II", index, 0) for index in indices)
        status, data = self.ask(command, params.ljust(size, b"\0"))
        assert status == OK
        return [struct.unpack_from("<II", data, 4 + 8 * place)[1] for place in range(len(indices))]


@pytest.fixture
def board(up):
    def make(chip="ga102", **cpu):
        return Board(up(chip, release=RELEASE, **cpu))

    return make


def test_every_control_that_drivers_send_has_a_row(board, chip):
    """None is unmodelled, each takes the parameters that drivers send, and a byte more or less is an error."""
    made = board(chip)
    manager = made.cpu.firmware.session.manager
    refused = set()
    for command, size in SEEN:
        status, data = made.ask(command, HEADS.get(command, b"").ljust(size, b"\0"))
        assert len(data) == size
        assert status != INVALID_PARAMS, hex(command)
        if status == NOT_SUPPORTED:
            refused.add(command)
        assert made.ask(command, bytes(size + 4))[0] == INVALID_PARAMS, hex(command)
    assert refused == REFUSED_ALWAYS
    assert not manager.unmodelled
    made.cpu.root()
    status, data = made.cpu.control(0xC1D00001, 0x80, 0x00800294, bytes(4))
    assert (status, data) == (OK, bytes(4))
    assert made.cpu.alloc(0xC1D00001, 0x2080, 0x402C, 0x402C)[0] == OK
    assert made.cpu.control(0xC1D00001, 0x402C, 0x402C0101, bytes(16)) == (OK, bytes(16))
    assert made.cpu.alloc(0xC1D00001, 0x2080, 0x208F, 0x208F)[0] == OK
    assert made.cpu.control(0xC1D00001, 0x208F, 0x208F1105, bytes(8))[0] == NOT_SUPPORTED


def test_an_unknown_control_is_refused_and_counted(board):
    made = board()
    command = 0x20800AFF
    for _ in range(2):
        status, data = made.ask(command, b"\xa5" * 16)
        assert (status, data) == (NOT_SUPPORTED, b"\xa5" * 16)
    assert made.cpu.firmware.session.manager.unmodelled == {"control 0x20800aff": 2}


def test_what_is_said_of_engines_agrees(board, chip):
    made = board(chip)
    static = made.static()
    caps = {
        number for number in range(len(static.engineCaps) * 32) if static.engineCaps[number // 32] >> number % 32 & 1
    }
    engines = made.get(internal, "INTERNAL_GET_DEVICE_INFO_TABLE")
    host = made.get(fifo, "FIFO_GET_DEVICE_INFO_TABLE")
    listed = struct.unpack_from("<I", made.ask(0x20800170, bytes(252))[1])[0]
    assert len(caps) == engines.numEntries == host.numEntries == listed
    assert set(struct.unpack_from(f"<{listed}I", made.ask(0x20800170, bytes(252))[1], 4)) == caps
    interrupts = made.get(internal, "INTERNAL_INTR_GET_KERNEL_TABLE")
    notified = {
        interrupts.table[number].engineIdx: interrupts.table[number].vectorNonStall
        for number in range(interrupts.tableLen)
        if interrupts.table[number].vectorNonStall != 0xFFFFFFFF
    }
    vectors = [
        vector
        for number in range(interrupts.tableLen)
        for vector in (interrupts.table[number].vectorStall, interrupts.table[number].vectorNonStall)
        if vector != 0xFFFFFFFF
    ]
    assert len(set(vectors)) == len(vectors)
    seen_faults, runlists, pbdmas = set(), {}, {}
    for number in range(host.numEntries):
        entry, device = host.entries[number], engines.deviceInfoTable[number]
        descriptor, _, _, runlist, fault, _, reset, _, mc, device_type, instance, base, driven, group, _ = list(
            entry.engineData
        )[:15]
        assert (fault, reset, device_type, instance) == (
            device.faultId,
            device.resetId,
            device.typeEnum,
            device.instanceId,
        )
        assert (base, group, driven) == (device.runlistPriBase, device.rlEngId, 1)
        assert mc in notified
        assert descriptor & 0xFF == instance
        assert fault not in seen_faults
        seen_faults.add(fault)
        runlists.setdefault(runlist, []).append((device_type, instance))
        pbdmas.setdefault(runlist, []).append(set(list(entry.pbdmaIds)[: entry.numPbdmas]))
    # graphics and its copy engines share a runlist, and each copy engine a PBDMA with graphics: else nvidia.ko says
    # "ASYNC Subcontext only supported on GR/GRCE"
    assert runlists[0] == [(0, 0), (19, 0), (19, 1)]
    assert all(shared <= pbdmas[0][0] for shared in pbdmas[0])
    for runlist, sets in pbdmas.items():
        others = set().union(*(ids for other, found in pbdmas.items() if other != runlist for ids in found))
        assert not set().union(*sets) & others
    falcons = made.get(internal, "INTERNAL_GET_CONSTRUCTED_FALCON_INFO")
    descriptors = {host.entries[number].engineData[0] for number in range(host.numEntries)}
    assert falcons.numConstructedFalcons
    for number in range(falcons.numConstructedFalcons):
        assert falcons.constructedFalconsTable[number].engDesc in descriptors


def test_what_is_said_of_shaders_agrees(board, chip):
    made = board(chip)
    static, masks, order = made.static(), made.table("FLOORSWEEPING_MASKS"), made.table("GLOBAL_SM_ORDER")
    masks_of, order_of = masks.floorsweepingMasks[0], order.globalSmOrder[0]
    cores, sms, version = CHIP_CORES[chip]
    assert (order_of.numSm, order_of.numTpc) == (sms, sms // 2)
    assert masks_of.gpcMask == static.gpcInfo.gpcMask
    assert masks_of.physGpcMask.bit_count() == masks_of.gpcMask.bit_count()
    where = set()
    for number in range(order_of.numSm):
        entry = order_of.globalSmId[number]
        assert masks_of.gpcMask >> entry.gpcId & 1
        assert entry.localTpcId < masks_of.tpcCount[entry.gpcId]
        assert entry.globalTpcId == number // 2 < order_of.numTpc
        where.add((entry.gpcId, entry.localTpcId, entry.localSmId))
    assert len(where) == sms
    for gpc in range(masks_of.gpcMask.bit_length()):
        assert (static.tpcInfo[gpc].gpcId, static.tpcInfo[gpc].tpcMask) == (gpc, masks_of.tpcMask[gpc])
        assert static.zcullInfo[gpc].zcullMask == masks_of.zcullMask[gpc]
        assert max(list(masks_of.tpcToPesMap)) < masks_of.numPesPerGpc[gpc]
        ppc = made.table("PPC_MASKS")
        assert ppc.enginePpcMasks[0].mask[gpc].bit_count() == masks_of.numPesPerGpc[gpc]
    info = made.table("INFO")
    entries = info.engineInfo[0].infoList
    assert [entries[place].index for place in range(len(entries))] == list(range(len(entries)))

    def value(name):
        return entries[getattr(gr, f"NV2080_CTRL_GR_INFO_INDEX_{name}")].data

    assert value("SHADER_PIPE_COUNT") == masks_of.gpcMask.bit_count()
    assert value("SHADER_PIPE_SUB_COUNT") == order_of.numTpc == sum(list(masks_of.tpcCount)) == masks_of.numGfxTpc
    assert value("SM_VERSION") == static.SM_info.version == version
    assert value("GPU_CORE_COUNT") == cores
    assert value("RT_CORE_COUNT") == sms
    assert value("MAX_SUBCONTEXT_COUNT") == 64
    assert value("MAX_WARPS_PER_SM") == static.SM_info.maxWarpsPerSM
    # only the first of eight graphics engines exists
    for place in range(1, 8):
        assert not masks.floorsweepingMasks[place].gpcMask
        assert not order.globalSmOrder[place].numSm
    rop = made.table("ROP_INFO")
    assert rop.engineRopInfo[0].ropUnitCount == value("SHADER_PIPE_COUNT") * value("LITTER_NUM_ROP_PER_GPC")
    assert made.get(internal, "INTERNAL_STATIC_KGR_GET_FECS_RECORD_SIZE", "INTERNAL_STATIC_GR_GET_FECS_RECORD_SIZE")


def test_what_is_said_of_memory_and_bus_agrees(board, chip):
    made = board(chip)
    static, config = made.static(), made.get(internal, "INTERNAL_MEMSYS_GET_STATIC_CONFIG")
    values = made.listed(0x20801303, 436, [0xB, 0x19, 0x1B, 0xD, 0x1A, 0x22, 0x23, 0x8, 0x5, 0x20])
    width, fbps, l2, kind, mask, ltcs, slices, total, bar1, usable = values
    assert (width, l2, kind, mask) == (
        static.fb_bus_width,
        static.l2_cache_size,
        static.fb_ram_type,
        static.fbp_mask,
    )
    assert (config.l2CacheSize, config.ramType, config.ltcCount) == (l2, kind, ltcs)
    assert (slices, fbps) == (ltcs * config.ltsPerLtcCount, mask.bit_count())
    assert total * 1024 == static.fb_length == made.cpu.firmware.chip.vram_bytes
    assert usable * 1024 == static.fbRegionInfoParams.fbRegion[0].limit + 1 == static.bar1PdeBase
    info = made.get(internal, "INTERNAL_GPU_GET_CHIP_INFO")
    assert info.bar1Size << 20 == bar1 * 1024
    # what the CPU hands over may be garbage: kbusInitBarsSize_KERNEL
    data = made.ask(0x20801803, b"\xee" * 200)[1]
    count = struct.unpack_from("<I", data)[0]
    windows = [struct.unpack_from("<IIQQ", data, 8 + 24 * place) for place in range(8)]
    assert count == 3
    assert [size for _, _, size, _ in windows] == [16 << 20, bar1 * 1024, 32 << 20, 0, 0, 0, 0, 0]
    (link,) = made.listed(0x20801823, 420, [0x2D])
    assert (link & 15, link >> 4 & 63, link >> 12 & 15) == (4, 16, 3)
    assert made.ask(0x20800AAC, bytes(16))[1][:2] == b"\1\0"


def test_windows_are_where_the_cpu_said(up, gsp):
    cpu = gsp(release=RELEASE).prepare(system_info=False)
    cpu.push(72, struct.pack("<3Q", 0xA000_0000, 0x38_0000_0000, 0x38_1000_0000).ljust(672, b"\0"))
    cpu.push(73, cpu.registry({}))
    cpu.start().receive()
    data = Board(cpu).ask(0x20801803, bytes(200))[1]
    offsets = [struct.unpack_from("<Q", data, 8 + 24 * place + 16)[0] for place in range(3)]
    assert offsets == [0xA000_0000, 0x38_0000_0000, 0x38_1000_0000]


def test_one_identity_everywhere(board, chip):
    made = board(chip)
    static = made.static()
    own = bytes(static.gidInfo.data)[:16]
    _, data = made.ask(0x2080014A, struct.pack("<II", 0, 2).ljust(268, b"\0"))
    assert data[8:28] == struct.pack("<I", 16) + own
    _, data = made.ask(0x2080014A, bytes(268))
    assert data[12:53] == f"GPU-{uuid.UUID(bytes=own)}\0".encode()
    assert made.ask(0x2080014A, struct.pack("<II", 0, 1).ljust(268, b"\0"))[0] == INVALID_ARGUMENT
    name = bytes(static.gpuNameString)
    assert made.ask(0x20800110, bytes(132))[1][4:68] == name
    wide = made.ask(0x20800110, struct.pack("<I", 1).ljust(132, b"\0"))[1][4:]
    assert wide == name.decode().encode("utf-16-le")
    assert made.ask(0x20800110, struct.pack("<I", 2).ljust(132, b"\0"))[0] == INVALID_ARGUMENT
    assert made.ask(0x20800111, bytes(64))[1] == bytes(static.gpuShortNameString)
    assert name.strip(b"\0") == made.ask(0x2080013F, bytes(136))[1][4:28].strip(b"\0")
    assert made.ask(0x20803601, bytes(72))[1][4:16] == b"\1\1" + b"535.261.03"


def test_the_cpu_may_use_the_bars(board, chip):
    """Else nvidia.ko copies by the firmware, in places where its own rules of locking forbid it to call that."""
    answer = board(chip).get(internal, "INTERNAL_CONF_COMPUTE_GET_STATIC_INFO")
    assert (answer.bIsBar1Trusted, answer.bIsPcieTrusted) == (1, 1)


def test_lists_of_facts_are_checked(board):
    made = board()
    for command, size in ((0x20800102, 516), (0x20801303, 436), (0x20801823, 420), (0x20800810, 124)):
        assert made.ask(command, bytes(size))[0] == INVALID_ARGUMENT
        assert made.ask(command, struct.pack("<I", 1000).ljust(size, b"\0"))[0] == INVALID_ARGUMENT
        unknown = struct.pack("<III", 1, 0x8000_0077, 0)
        assert made.ask(command, unknown.ljust(size, b"\0"))[0] == INVALID_ARGUMENT
    # only what is marked is filled in, and loses its mark; what the CPU filled in stays
    request = struct.pack("<IIIII", 2, 0x8000_002C, 7, 0x26, 0xFFFF_FFFF).ljust(516, b"\0")
    assert made.ask(0x20800102, request) == (
        OK,
        struct.pack("<IIIII", 2, 0x2C, 0x806, 0x26, 0xFFFF_FFFF).ljust(516, b"\0"),
    )
    assert made.listed(0x20800810, 124, [0, 1]) == [0x94020100, 1]
    # as libcuda asks it
    assert made.listed(0x20808159, 332, [0xC, 0x25]) == [0, 0]


def lce_request(mapping, grces=(0, 0), flag=1):
    """CE_UPDATE_PCE_LCE_MAPPINGS; a GRCE's word is NV_CE_GRCE_CONFIG, 0 if it does not share."""
    pces = bytearray(b"\x0f\0\0\0" * 32)
    for pce, lce in mapping.items():
        struct.pack_into("<I", pces, 4 * pce, lce)
    return bytes(pces) + struct.pack("<IIIB3x", *grces, 0, flag)


SHARED = 1 << 30


def test_copy_engines_are_mapped(board, chip):
    made = board(chip)
    first, pces = {
        "tu102": ([0b10, 0b1000, 0b100, 0b1000, 0b10], 4),
        "ga102": ([0b1, 0b10, 0b1, 0b10, 0b1100], 6),
        "ad102": ([0b1, 0b10, 0b1, 0b10, 0b1100], 6),
    }[chip]

    def mask(lce):
        status, data = made.ask(0x20802A02, struct.pack("<II", 9 + lce, 0))
        assert status == OK
        return struct.unpack_from("<I", data, 4)[0]

    def stubbed():
        return struct.unpack("<I", made.ask(0x20802A06, bytes(4))[1])[0]

    *links, hub = struct.unpack_from("<33I", made.ask(0x20802A09, bytes(132))[1])
    assert (links[0] | hub, links[0] & hub, any(links[1:])) == ((1 << pces) - 1, 0, False)
    # kceMapPceLceForSysmemLinks_GA102 has two LCEs for those at the hub
    assert chip == "tu102" or hub.bit_count() == 2
    assert [mask(lce) for lce in range(5)] == first
    # every LCE has a PCE, as drivers of boards without NVLink never map them
    assert stubbed() == 0
    # without the flag a request has no mapping
    assert made.ask(0x20802A05, lce_request({}, flag=0))[0] == OK
    assert stubbed() == 0
    request = lce_request({0: 2, 1: 2, 2: 3, 3: 3}, (SHARED | 2, SHARED | 3))
    assert made.ask(0x20802A05, request)[0] == OK
    assert [mask(lce) for lce in range(5)] == [0b11, 0b1100, 0b11, 0b1100, 0]
    assert stubbed() == 0b10000
    data = made.ask(0x20802A0B, bytes(68))[1]
    assert struct.unpack_from("<I", data, 64)[0] == 0b01111
    for lce in range(5):
        _, one = made.ask(0x20802A07, struct.pack("<II", 9 + lce, 0))
        assert one[4:6] == data[2 * lce : 2 * lce + 2]
    # graphics' own, shared; system memory both ways, peers
    assert [data[2 * lce] for lce in range(5)] == [0x6F, 0x6F, 0x6E, 0x6E, 0]
    for wrong in (
        lce_request({pces: 2}),
        lce_request({0: 9}),
        lce_request({}, (SHARED | 1, 0)),
        lce_request({}, (0, SHARED | 9)),
    ):
        assert made.ask(0x20802A05, wrong)[0] == INVALID_ARGUMENT
    assert mask(4) == 0
    # graphics' own copy engines with PCEs of their own
    assert made.ask(0x20802A05, lce_request({0: 0, 1: 1, 2: 4, 3: 3}))[0] == OK
    assert [mask(lce) for lce in range(5)] == [1, 2, 0, 8, 4]
    for engine in (1, 14):
        assert made.ask(0x20802A02, struct.pack("<II", engine, 0))[0] == INVALID_ARGUMENT


def transfer(source, target, size, *, value=0, operation=0, caching=1):
    """MEMORY_TRANSFER_WITH_GSP: base, size, offset and aperture of both sides."""
    base, room, offset, aperture = source
    params = struct.pack("<QQQII", base, room, offset, aperture, caching) + bytes(16)
    base, room, offset, aperture = target
    return params + struct.pack("<QQQIIQII", base, room, offset, aperture, caching, size, value, operation)


def test_the_firmware_copies_memory(board):
    made = board()
    memory, vram, sysmem = made.cpu.memory, 2, 1
    memory.write(Aperture.SYSMEM, HOST + 0x3000, b"page table entry")
    command = 0x20800AFA
    there = (0x50_0000, 0x1000, 0x10, vram)
    assert made.ask(command, transfer((HOST + 0x3000, 0x1000, 0, sysmem), there, 16))[0] == OK
    assert memory.read(Aperture.VRAM, 0x50_0010, 16) == b"page table entry"
    assert made.ask(command, transfer(there, (HOST + 0x5000, 0x1000, 4, sysmem), 10))[0] == OK
    assert memory.read(Aperture.SYSMEM, HOST + 0x5004, 10) == b"page table"
    assert made.ask(command, transfer((0,) * 4, there, 4, value=0xAB, operation=1))[0] == OK
    assert memory.read(Aperture.VRAM, 0x50_0010, 6) == b"\xab\xab\xab\xab t"
    for source, target, size, how, status in (
        (there, (0, 0x1000, 0, 3), 16, {}, INVALID_ARGUMENT),
        # the surface's size is no bound: nvidia.ko writes all of BAR 1's root to a surface of one entry
        (there, (0x50_0000, 8, 0, vram), 32, {}, OK),
        (there, there, 1 << 40, {}, INVALID_ARGUMENT),
        (there, (0x1000, 0x1000, 0, sysmem), 16, {}, INVALID_ADDRESS),
        (there, there, 16, {"operation": 9}, NOT_SUPPORTED),
    ):
        assert made.ask(command, transfer(source, target, size, **how))[0] == status


def test_buffers_for_faults_and_counters(board):
    made = board()
    pages = [0x1_1220_0000 + 0x1000 * number for number in range(256)]
    request = struct.pack("<IIII256Q", 0xC1D00007, 5, 0x8_0000, 0, *pages)
    assert made.ask(0x20800A9B, request)[0] == OK
    assert made.cpu.card.named("fault_buffer") == [(True, tuple(pages[:128]))]
    assert made.ask(0x20800A9B, request)[0] == NOT_SUPPORTED
    assert made.ask(0x20800A9C, b"")[0] == OK
    assert made.ask(0x20800A9C, b"")[0] == OK
    assert made.cpu.card.named("fault_buffer")[1:] == [(True, None)]
    for size in (0, 257 * 4096):
        assert made.ask(0x20800A9B, struct.pack("<IIII256Q", 1, 5, size, 0, *pages))[0] == INVALID_ARGUMENT
    shadow = struct.pack("<QII3000QIxxxxQ", 0x1000, 0x2000, 0x1000, *pages, *bytes(2744), 1, 0)
    assert made.ask(0x20800A9D, shadow)[0] == OK
    assert made.ask(0x20800A9D, shadow)[0] == NOT_SUPPORTED
    assert made.ask(0x20800A9E, struct.pack("<I", 1))[0] == OK
    assert made.ask(0x20800A9D, shadow)[0] == OK
    counters = struct.pack("<II64Q", 0, 0x1_0000, *pages[:64])
    assert made.ask(0x20800A1D, counters)[0] == OK
    assert made.ask(0x20800A1D, struct.pack("<II64Q", 1, 0x1000, *pages[:64]))[0] == INVALID_ARGUMENT
    assert made.ask(0x20800A1E, bytes(4))[0] == OK
    assert set(made.cpu.firmware.session.manager.buffers) == {
        ("shadow fault buffer", 1),
        ("shadow fault ring", 1),
    }


def test_temperatures_are_asked_by_instructions(board):
    made = board()
    made.cpu.card.celsius = lambda: 41

    def execute(*instructions, flags=0, version=1, count=None):
        """As nvidia-smi sends it: each instruction has 44 bytes, result and flag first."""
        count = len(instructions) if count is None else count
        params = struct.pack("<6I", version, 0, 44, flags, 0, count)
        params += b"".join(struct.pack("<IIIi28x", 0, 0, opcode, index) for opcode, index in instructions)
        status, data = made.ask(0x20808513, params.ljust(1432, b"\0"))
        assert len(data) == 1432
        done = [struct.unpack_from("<IIIiii", data, 24 + 44 * place) for place in range(len(instructions))]
        return status, struct.unpack_from("<I", data, 16)[0], done

    status, successful, done = execute((0x100, 0), (0x500, 0), (0x101, 0), (0x520, 0), (0x540, 0), (0x1500, 0))
    assert (status, successful) == (OK, 6)
    assert all(one[:2] == (OK, 1) for one in done)
    assert [one[3] for one in done[:2]] == [1, 1]
    assert [one[4] for one in done[2:]] == [1, 0, -40, 41]
    # the second sensor does not exist: there it ends
    status, successful, done = execute((0x500, 0), (0x1500, 1), (0x1500, 0))
    assert (status, successful) == (OK, 1)
    assert [one[:2] for one in done] == [(OK, 1), (INVALID_ARGUMENT, 1), (0, 0)]
    assert execute((0x777, 0), (0x1500, 0), flags=1)[1] == 1
    assert execute(version=2)[0] == INVALID_PARAMS
    assert execute(count=33)[0] == INVALID_ARGUMENT


@pytest.mark.parametrize(("release", "size", "engines"), [("535.261.03", 472, 4), ("570.144", 776, 6)])
def test_use_is_told_in_a_ring_of_samples(up, release, size, engines):
    """Layouts: ctrl2080perf.h. A sample: its time, then an engine's use each, video memory and graphics first."""
    cpu = up(release=release)
    client, subdevice = cpu.internal()
    head = 16
    wanted = struct.pack("<B3xI", 2, 72 * size).ljust(head + 72 * size, b"\0")
    cpu.card.usage = lambda: (Usage(0, 139, 0.0, 0.0), Usage(1, 278, 0.5, 0.25))
    status, data = cpu.control(client, subdevice, 0x20802096, wanted)
    assert (status, *struct.unpack_from("<II", data, 8)) == (OK, 2, 2)
    each = (size - 8) // engines
    sample = data[head + size : head + 2 * size]
    assert struct.unpack_from("<Q", sample) == (278,)
    assert [struct.unpack_from("<IIII", sample, 8 + each * place) for place in range(engines)] == [
        (use, 0, 0xFFFFFFFF, 0xFFFFFFFF) for use in (2500, 5000, *[0] * (engines - 2))
    ]
    # a full ring begins where the oldest sample is
    cpu.card.usage = lambda: tuple(Usage(number % 72, number, 0.0, 0.0) for number in range(5, 77))
    status, data = cpu.control(client, subdevice, 0x20802096, wanted)
    assert (status, *struct.unpack_from("<II", data, 8)) == (OK, 72, 5)
    assert cpu.control(client, subdevice, 0x20802096, b"\1" + wanted[1:])[0] == INVALID_ARGUMENT


def test_a_later_release_has_its_own_layouts(up):
    """570.144: every row answers in the layout of that release, or is unmodelled there."""
    cpu = up(release="570.144")
    cpu.root()
    client, subdevice = cpu.internal()
    answered = 0
    for row in (*CONTROLS.rows.values(), *CONTROLS.later.values()):
        # the number of SEND_REGION_INFO is another control's since
        if row.kind is not Kind.SUBDEVICE or row.layout is None or row.name.endswith("SEND_REGION_INFO"):
            continue
        if row.name.endswith("INTERNAL_GET_CONSTRUCTED_FALCON_INFO"):
            # gone since
            assert cpu.control(client, subdevice, row.command, bytes(1284))[0] == NOT_SUPPORTED
            continue
        size = row.layout.at("570.195.03").SIZE
        params = HEADS.get(row.command, b"").ljust(size, b"\0")
        status, data = cpu.control(client, subdevice, row.command, params)
        assert (len(data), status != INVALID_PARAMS) == (size, True), row.name
        answered += 1
    assert answered > 60
    assert [*cpu.firmware.session.manager.unmodelled] == ["control 0x20800a42"]
    assert cpu.firmware.violations == []


def test_what_570_says_of_engines_and_shaders_agrees(up):
    cpu = up(release="570.144")
    cpu.root()
    client, subdevice = cpu.internal()

    def ask(command, data, layout, count):
        status, told = cpu.control(client, subdevice, command, data)
        return status, struct.unpack_from(f"<{count}{layout}", told)

    # GPU_GET_FERMI_GPC_INFO and _TPC_INFO, by which nouveau counts: 72 SMs of an A10
    status, (gpcs,) = ask(0x20800137, bytes(4), "I", 1)
    assert (status, gpcs) == (OK, 0x7F)
    tpcs = [ask(0x20800138, struct.pack("<II", gpc, 0), "I", 2)[1][1] for gpc in range(7)]
    assert 2 * sum(mask.bit_count() for mask in tpcs) == 72
    assert ask(0x20800138, struct.pack("<II", 7, 0), "I", 2)[0] == INVALID_ARGUMENT
    # GR_GET_ZCULL_INFO says what the table for the driver says
    status, zcull = ask(0x20801206, bytes(40), "I", 10)
    assert status == OK
    assert zcull == ask(0x20800A2C, bytes(320), "I", 10)[1]
    # MC_ENGINE_IDX_GSP, CE0 and GR of engine_idx.h of 570.144
    status, table = cpu.control(client, subdevice, 0x20800A5C, bytes(2068))
    (count,) = struct.unpack_from("<I", table)
    indices = {struct.unpack_from("<H", table, 4 + 16 * number)[0] for number in range(count)}
    assert status == OK
    assert {50, 15, 84, 73} <= indices
    # GPU_GET_CONSTRUCTED_FALCON_INFO: those that INTERNAL_… named before
    status, falcons = cpu.control(client, subdevice, 0x208001B0, bytes(1284))
    assert (status, struct.unpack_from("<I", falcons)[0]) == (OK, 5)

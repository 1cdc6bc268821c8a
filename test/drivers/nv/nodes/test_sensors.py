"""What a card's driver tells of its state: read by public controls, absent where the driver refuses."""

import pytest

import ringup
from ringup.autogen.nv import rm_ctrl_2080_bus as bus
from ringup.autogen.nv import rm_ctrl_2080_firmware as state
from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu
from ringup.autogen.structs import memory
from ringup.drivers.nv.nodes.watch import Watch
from ringup.drivers.nv.rm import sensors
from ringup.drivers.nv.rm.client import RmClient
from ringup.drivers.transport.nvidia.status import RmLost, refusal

ABSENT = ("temperature_c", "memory_temperature_c", "performance_state", "busy_percent", "memory_busy_percent")
# nvstatuscodes.h
NOT_SUPPORTED, GPU_IS_LOST = 0x56, 0x0F


class Teller:
    """A door that answers controls with functions of their structs, and refuses all others."""

    layouts = "575.64.05"

    def __init__(self, answers, status=NOT_SUPPORTED):
        self.answers, self.status = answers, status

    def control(self, client, handle, command, params=b"", doing=""):
        if command not in self.answers:
            raise refusal(self.status, "asking")
        layout, answer = self.answers[command]
        data = bytearray(params)
        assert len(data) == layout.at(self.layouts).SIZE
        answer(layout.at(self.layouts).view(data))
        return bytes(data)


def reads(answers, **more):
    return sensors.read(RmClient(Teller(answers, **more), 1), 2)


def test_a_cards_memory_and_link_are_told_and_refused_sensors_are_absent(card):
    seen = card.stats().sensors
    assert seen.vram_total_bytes == card.info.vram_bytes
    assert seen.vram_used_bytes + seen.vram_free_bytes == seen.vram_total_bytes
    assert seen.link_at_best.startswith(("8.0 GT/s PCIe x", "16.0 GT/s PCIe x"))
    assert [getattr(seen, name) for name in ABSENT] == [None] * len(ABSENT)
    before = seen.vram_free_bytes
    with card.alloc(64 << 20):
        assert before - card.stats().sensors.vram_free_bytes >= 64 << 20


@pytest.mark.parametrize("release", ["535.261.03", "550.163.01", "575.64.05"])
def test_every_branch_is_asked_in_its_layouts(opened, release):
    assert opened("ga102", release=release).stats().sensors.vram_total_bytes == 24 << 30


def test_a_look_needs_no_channel_and_leaves_nothing():
    with Watch(ringup.connect("virtual:ga102@nvidia")) as watch:
        model = watch.device.system.model
        assert watch.stats().as_dict()["sensors"]["vram_total_bytes"] == watch.info.vram_bytes
        assert (watch.info.chip, watch.resets) == ("ga102", ("channel",))
    assert not model.files
    assert not model.owners


def test_nothing_told_is_nothing_known():
    seen = reads({})
    assert {getattr(seen, name) for name in sensors.Sensors.__dataclass_fields__} == {None, ""}


def test_a_card_that_is_gone_is_an_error():
    with pytest.raises(RmLost):
        reads({}, status=GPU_IS_LOST)


def test_temperatures_are_told_by_what_they_are_of():
    """ctrl2080thermal.h: two sensors, of the memory (2) and of the GPU (1); the third instruction of a kind fails."""

    def answer(request):
        assert (request.clientAPIVersion, request.clientAPIRevision, request.clientInstructionSizeOf) == (1, 0, 44)
        for one in list(request.instructionList)[: request.instructionListSize]:
            number = one.operands.space[0]
            one.executed, one.result = 1, 0x1F if number > 1 else 0
            if one.opcode == 0x500:
                one.operands.space[0] = 3
            else:
                one.operands.space[1] = {0x1500: (71, 45), 0x520: (0, 1), 0x101: (2, 1)}[one.opcode][number % 2]

    seen = reads({0x20800513: (state.NV2080_CTRL_THERMAL_SYSTEM_EXECUTE_V2_PARAMS, answer)})
    assert (seen.temperature_c, seen.memory_temperature_c) == (45, 71)


@pytest.mark.parametrize(("util", "told"), [((4210, 1500), (42.1, 15.0)), ((20000, 0), (None, None))])
def test_load_is_the_newest_sample_and_no_nonsense(util, told):
    def answer(request):
        assert (request.type, request.bufSize) == (2, 72 * 776)
        for at, time in enumerate((5, 9, 7)):
            request.samples[at].base.timeStamp = time
        request.samples[1].gr.util, request.samples[1].fb.util = util

    seen = reads({0x20802096: (state.NV2080_CTRL_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2_PARAMS, answer)})
    assert (seen.busy_percent, seen.memory_busy_percent) == told


def test_errors_of_memory_are_summed_over_the_units_that_count_them():
    def answer(request):
        for at, counted in enumerate((1, 1, 0)):
            request.units[at].supported, request.units[at].enabled = 1, counted
            request.units[at].sbe.count, request.units[at].dbe.count = 10 + at, at

    seen = reads({0x2080012F: (gpu.NV2080_CTRL_GPU_QUERY_ECC_STATUS_PARAMS, answer)})
    assert (seen.ecc, seen.ecc_corrected_errors, seen.ecc_uncorrected_errors) == (True, 21, 1)


@pytest.mark.parametrize(
    ("word", "told"),
    # ctrl2080bus.h: width in bits 25:20, speed in 19:16
    [
        (16 << 20 | 4 << 16, "16.0 GT/s PCIe x16"),
        (1 << 20 | 1 << 16, "2.5 GT/s PCIe x1"),
        (8 << 20, ""),
        (15 << 16, ""),
    ],
)
def test_the_link_is_told_as_the_kernel_writes_it(word, told):
    def answer(request):
        rows = memory(request)
        assert bytes(rows[:12]) == bytes((2, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0))
        request.busInfoList[0].data = word

    seen = reads({0x20801823: (bus.NV2080_CTRL_BUS_GET_INFO_V2_PARAMS, answer)})
    assert (seen.link, seen.link_at_best) == (told, "")


@pytest.mark.parametrize(("bits", "told"), [(1, 0), (0x100, 8), (0, None), (3, None)])
def test_the_performance_state_is_the_number_of_its_bit(bits, told):
    def answer(request):
        request.currPstate = bits

    assert reads({0x20802068: (state.NV2080_CTRL_PERF_GET_CURRENT_PSTATE_PARAMS, answer)}).performance_state == told

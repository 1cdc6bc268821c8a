"""What NVIDIA's kernel modules demand of requests although the model of them does not: seen with release 535.261.03."""

import pytest

from ringup.autogen.nv import rm_alloc, status
from ringup.autogen.nv import rm_ctrl_2080_fifo as fifo
from ringup.autogen.nv import rm_ctrl_2080_gr as gr
from ringup.autogen.nv import rm_ctrl_channel as channel_controls
from ringup.autogen.nv import rm_memory as rm
from ringup.drivers.transport.nvidia.calls import Calls
from ringup.drivers.transport.nvidia.status import refusal
from ringup.errors import OutOfMemory

MIB = 1 << 20
# AMPERE_DMA_COPY_B, KEPLER_CHANNEL_GROUP_A, NV50_MEMORY_VIRTUAL: clc7b5.h, cla06c.h, cl50a0.h
COPY, GROUP, VIRTUAL = 0xC7B5, 0xA06C, 0x50A0


@pytest.fixture
def requests(ga102, monkeypatch):
    """The parameters of the objects that are made from now on, by class, in order."""
    seen, alloc = {}, ga102.device.calls.alloc
    layouts = {
        COPY: rm_alloc.NVB0B5_ALLOCATION_PARAMETERS,
        GROUP: rm_alloc.NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS,
        VIRTUAL: rm_alloc.NV_MEMORY_ALLOCATION_PARAMS,
    }

    def noting(client, parent, handle, class_id, params=b"", doing=""):
        if class_id in layouts:
            layout = layouts[class_id].at("535.261.03")
            seen.setdefault(class_id, []).append(layout.view(bytearray(params)))
        return alloc(client, parent, handle, class_id, params, doing)

    monkeypatch.setattr(ga102.device.calls, "alloc", noting)
    return seen


@pytest.mark.parametrize("engine", [0, 1, 2])
def test_a_copy_object_names_the_engine_of_its_channel(ga102, requests, engine):
    """Without, the modules make an object of copy engine 0 and move the channel to that engine's runlist."""
    ga102.new_copy_queue(engine).close()
    (group,), (made,) = requests[GROUP], requests[COPY]
    # clb0b5sw.h, NVB0B5_ALLOCATION_PARAMETERS_VERSION_1
    assert (made.version, made.engineType) == (1, group.engineType)


@pytest.mark.parametrize(
    ("size", "where", "pages"),
    [
        (1, "host", rm.NVOS32_ATTR_PAGE_SIZE_4KB),
        (5 * MIB, "host", rm.NVOS32_ATTR_PAGE_SIZE_4KB),
        (1, "vram", rm.NVOS32_ATTR_PAGE_SIZE_BIG),
        (2 * MIB - 1, "vram", rm.NVOS32_ATTR_PAGE_SIZE_BIG),
        (2 * MIB, "vram", rm.NVOS32_ATTR_PAGE_SIZE_HUGE),
    ],
)
def test_addresses_are_asked_for_with_one_page_size(ga102, requests, size, where, pages):
    """Without, the modules pin page tables of all page sizes for the whole range."""
    ga102.alloc(size, where).free()
    (virtual,) = requests[VIRTUAL]
    assert rm.NVOS32_ATTR(virtual.attr).page_size == pages


def test_a_visible_buffer_beyond_the_window_is_refused_before_it_is_made(ga102, requests):
    window = ga102.info.window_bytes
    with pytest.raises(OutOfMemory, match=rf"wide.* it sees {window} bytes of the card's memory at once \(BAR 1\)"):
        ga102.alloc(window + 1, visible=True, name="wide")
    assert not requests


def test_the_drivers_watchdog_is_asked_to_wait_for_long_kernels(opened, monkeypatch):
    """Without, the modules take a kernel of more than 7 s for a card that hangs."""
    seen, control = [], Calls.control

    def noting(calls, client, handle, command, params=b"", doing=""):
        seen.append(command)
        return control(calls, client, handle, command, params, doing)

    monkeypatch.setattr(Calls, "control", noting)
    opened("ga102")
    # before anything runs
    asked = seen.index(fifo.NV2080_CTRL_CMD_RC_SOFT_DISABLE_WATCHDOG)
    assert asked < seen.index(channel_controls.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE)


@pytest.fixture
def controls(ga102, monkeypatch):
    """The controls that are sent from now on: object, command, parameters. What is in `refused` the driver lacks."""
    seen, refused, control = [], set(), ga102.device.calls.control

    def noting(client, handle, command, params=b"", doing=""):
        seen.append((handle, command, params))
        if command in refused:
            raise refusal(status.NV_ERR_NOT_SUPPORTED, doing)
        return control(client, handle, command, params, doing)

    monkeypatch.setattr(ga102.device.calls, "control", noting)
    return seen, refused


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_compute_channel_lets_others_in_between_the_blocks_of_a_kernel(ga102, controls, is_refused):
    """Without, the card finishes a long kernel before it turns to another process, such as a desktop."""
    seen, refused = controls
    if is_refused:
        refused.add(gr.NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE)
    queue = ga102.new_compute_queue()
    queue.submit(queue.stream()).wait()
    channel = queue.hardware
    sent = [
        (at, gr.NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS.view(bytearray(params)))
        for at, (_, command, params) in enumerate(seen)
        if command == gr.NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE
    ]
    ((at, asked),) = sent
    assert (asked.flags, asked.hChannel) == (1, channel.handle)
    assert asked.cilpPreemptMode == gr.NV2080_CTRL_SET_CTXSW_PREEMPTION_MODE_COMPUTE_CTA
    # before the channel runs
    scheduled = [command for _, command, _ in seen].index(channel_controls.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE)
    assert at < scheduled
    queue.close()

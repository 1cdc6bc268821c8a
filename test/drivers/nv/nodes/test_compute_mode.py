"""The administrator's compute mode (`nvidia-smi -c`): NVIDIA's driver keeps it, but stops nobody who does not ask."""

import pytest

import ringup
from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu
from ringup.errors import CardBusy, PermissionNeeded
from ringup.silicon import nvidia_kernel

PROHIBITED = gpu.NV2080_CTRL_GPU_COMPUTE_MODE_RULES_COMPUTE_PROHIBITED
EXCLUSIVE = gpu.NV2080_CTRL_GPU_COMPUTE_MODE_RULES_EXCLUSIVE_COMPUTE_PROCESS


@pytest.fixture
def machine():
    machine = nvidia_kernel("ga102")
    yield machine
    assert not machine.files
    assert not machine.owners
    machine.end()


def opened(machine):
    return ringup.open("nvidia:0", transport={"model": machine})


def set_mode(card, mode):
    """As `nvidia-smi -c` does."""
    objects = card._objects
    objects.client.ask(
        objects.subdevice,
        gpu.NV2080_CTRL_CMD_GPU_SET_COMPUTE_MODE_RULES,
        gpu.NV2080_CTRL_GPU_SET_COMPUTE_MODE_RULES_PARAMS,
        rules=mode,
    )


def works(card):
    with card.alloc(4) as buffer:
        card.copy.upload(buffer, b"card").wait()
        return bytes(card.copy.download(buffer)) == b"card"


def test_a_card_that_is_closed_to_compute_is_not_used(machine):
    with opened(machine) as card:
        set_mode(card, PROHIBITED)
    with pytest.raises(
        PermissionNeeded,
        match=r"nvidia:0: its administrator has closed the card to compute .*`nvidia-smi -c 0` opens it",
    ):
        opened(machine)


def test_a_card_for_one_process_alone_is_taken_and_given_back(machine):
    with opened(machine) as first:
        set_mode(first, EXCLUSIVE)
        with pytest.raises(CardBusy, match=r"nvidia:0: another user has the card for itself .*Exclusive_Process"):
            opened(machine)
        assert works(first)
    # the first one's reservation has ended with it
    with opened(machine) as second:
        assert works(second)


def test_a_card_without_a_mode_has_room_for_several(machine):
    with opened(machine) as first, opened(machine) as second:
        assert works(first)
        assert works(second)

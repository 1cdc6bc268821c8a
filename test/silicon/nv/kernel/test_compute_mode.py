"""The administrator's compute mode, and the reservation of a client. Source: OGKM subdevice_ctrl_gpu_kernel.c."""

import pytest
from nvidia_process.process import Client, Refused

from ringup.autogen.nv import rm
from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu

OK, INVALID_ARGUMENT, IN_USE = 0, 0x1F, 0x63
ACQUIRE, RELEASE = 0x20800145, 0x20800146
NONE, EXCLUSIVE_THREAD, PROHIBITED, EXCLUSIVE_PROCESS = range(4)


@pytest.fixture
def two(machine):
    system = machine()
    return Client(system), Client(system)


def ask(client, command):
    request = client.make(rm.NVOS54_PARAMETERS, hClient=client.root, hObject=client.subdevice, cmd=command)
    try:
        client.call(rm.NV_ESC_RM_CONTROL, request)
    except Refused as error:
        return error.status
    return OK


def set_mode(client, mode):
    params = client.make(gpu.NV2080_CTRL_GPU_SET_COMPUTE_MODE_RULES_PARAMS, rules=mode)
    client.control(client.subdevice, gpu.NV2080_CTRL_CMD_GPU_SET_COMPUTE_MODE_RULES, params)


def mode_of(client):
    params = client.make(gpu.NV2080_CTRL_GPU_QUERY_COMPUTE_MODE_RULES_PARAMS)
    return client.control(client.subdevice, gpu.NV2080_CTRL_CMD_GPU_QUERY_COMPUTE_MODE_RULES, params).rules


def test_without_a_mode_the_last_who_asks_has_the_reservation(two):
    one, other = two
    assert mode_of(one) == NONE
    assert [ask(one, ACQUIRE), ask(other, ACQUIRE)] == [OK, OK]
    assert [ask(one, RELEASE), ask(other, RELEASE), ask(other, RELEASE)] == [IN_USE, OK, IN_USE]


@pytest.mark.parametrize("mode", [EXCLUSIVE_THREAD, EXCLUSIVE_PROCESS])
def test_an_exclusive_card_is_one_clients_until_it_gives_it_back_or_goes(two, mode):
    one, other = two
    set_mode(one, mode)
    assert mode_of(other) == mode
    assert [ask(one, ACQUIRE), ask(one, ACQUIRE), ask(other, ACQUIRE)] == [OK, IN_USE, IN_USE]
    assert [ask(one, RELEASE), ask(other, ACQUIRE)] == [OK, OK]
    other.free(other.root)
    assert ask(one, ACQUIRE) == OK


def test_a_closed_card_has_no_reservation_and_other_modes_there_are_not(two):
    one, other = two
    set_mode(other, PROHIBITED)
    assert ask(one, ACQUIRE) == IN_USE
    with pytest.raises(Refused) as refused:
        set_mode(one, 4)
    assert refused.value.status == INVALID_ARGUMENT
    assert mode_of(one) == PROHIBITED

"""The client that asks NVIDIA's modules in a guest does the same over the kernel's calls in this process."""

import importlib
from pathlib import Path

import pytest

from ringup.compiler.isa.sass import assembly
from ringup.silicon import nvidia_kernel
from ringup.silicon.nv.rm.boards import rows

RELEASE = "535.261.03"
MODULES = Path(__file__).parents[3] / "guest/modules"


@pytest.fixture(params=["tu102", "ga100", "ga102", "ad102"])
def client(request, monkeypatch):
    """The client's two modules, and an open card."""
    monkeypatch.syspath_prepend(str(MODULES))
    channels = importlib.import_module("rm_channels")
    one = channels.rm_client.Rm(nvidia_kernel(request.param, release=RELEASE), RELEASE)
    yield request.param, channels, channels.Card(one)
    one.close()


def test_the_client_is_told_the_row_of_the_chip(client):
    chip, channels, card = client
    told, board = channels.rm_client.card(card.rm), rows.find(chip)
    assert (told["sm_version"], told["sm_count"]) == (board.shaders.sm_version, board.shaders.sm_count)
    assert (told["warps_per_sm"], told["registers_per_sm"]) == ({"tu102": 32, "ga100": 64}.get(chip, 48), 65536)
    assert (told["bus_bits"], told["l2_bytes"]) == (board.frame.bus_bits, board.frame.l2_bytes)


def test_the_client_copies_orders_and_makes_contexts(client):
    _, channels, card = client
    sizes = [1, 3, 4096, 70_001]
    assert channels.copies(card, sizes)["right"] == sizes
    assert channels.orders(card, 4) == {"order": [4, 3, 2, 1], "early": [0, 0, 0], "interrupts": 1}
    assert channels.contexts(card, 12) == {"right": 12}


def test_the_client_launches_a_program(client):
    chip, channels, card = client
    target = {"tu102": "sm_75", "ga100": "sm_80", "ga102": "sm_86", "ad102": "sm_89"}[chip]
    store = "STG.E.SYS" if chip == "tu102" else "STG.E"
    source = f"""
    .target {target}
    .kernel number
    .registers 8
    .parameter 16
      [B------:R-:W0:Y:S02] S2R R0, SR_TID.X
      [B------:R-:W-:Y:S06] MOV R5, 0x4
      [B0-----:R-:W-:Y:S06] IMAD.WIDE.U32 R2, R0, R5, c[0x0][0x160]
      [B------:R-:W-:Y:S02] {store} [R2], R0
      EXIT
    """
    (kernel,) = assembly.assemble(source).kernels
    assert channels.launch(card, kernel.registers, kernel.code, 32)["words"] == list(range(32))

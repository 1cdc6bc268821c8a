"""Commands on an NVIDIA card that no process has open: they need no driver's start, and name no word of a Radeon's."""

import json
import re

import pytest

import ringup as library

# words that are right on a Radeon only
AMDS = re.compile(r"compute unit|wave|\bLDS\b|VGPR|amdgpu|mode1|Radeon|AMD|shader engine|gfx|discovery", re.IGNORECASE)


@pytest.mark.parametrize("chip", ["ga102", "gh100"])
@pytest.mark.parametrize(
    "words",
    [["info"], ["report"], ["reset"], ["down"], ["regs", "NV_PMC_BOOT_0"], ["mem", "read", "0x1001", "5"]],
    ids=" ".join,
)
def test_every_command_answers_people_and_programs_in_the_cards_own_words(ringup, plug, chip, words):
    card = plug(chip, vram_bytes=2 << 30)
    name, *rest = words
    status, out, err = ringup(name, card.name, *rest)
    assert (status, err) == (0, "")
    assert not AMDS.search(out)
    status, out, err = ringup(name, card.name, *rest, "--json")
    assert (status, err) == (0, "")
    assert card.name in json.dumps(json.loads(out))
    assert not AMDS.search(out)


def test_a_card_that_was_left_running_is_seen_reported_and_stopped(ringup, plug):
    card = plug("ga102", vram_bytes=2 << 30)
    library.open(card.name)
    card.kill_holder()
    state = "running: a GSP-RM that another process or driver has started"
    info = json.loads(ringup("info", card.name, "--json")[1])
    assert (info["state"], info["resets"], info["pci_id"]) == (state, ["unload", "function", "slot"], "10de:2236")
    assert [row["kind"] for row in info["firmware"]] == ["gsp", "bootloader", "booter_load", "booter_unload"]
    assert all(row["path"] for row in info["firmware"])
    assert "RISC-V core runs" in ringup("report", card.name)[1]
    assert ringup("down", card.name)[1].splitlines() == [
        f"{card.name} was found {state}",
        "  unload: verified; survived: the VBIOS's initialisation",
        f"{card.name} is stopped, in D3hot",
    ]
    assert json.loads(ringup("info", card.name, "--json")[1])["found_asleep"]


def test_a_register_is_read_by_name_and_written_only_if_asked(ringup, plug):
    card = plug("ga102", vram_bytes=2 << 30)
    # NV_PMC_BOOT_0 of an A10, revision A1
    assert "NV_PMC_BOOT_0 = 0x172000a1" in ringup("regs", card.name, "NV_PMC_BOOT_0")[1]
    status, _, err = ringup("regs", card.name, "NV_PGSP_QUEUE_HEAD[1]=5")
    assert (status, "add --write" in err) == (2, True)
    shown = json.loads(ringup("regs", card.name, "NV_PGSP_QUEUE_HEAD[1]=5", "--write", "--json")[1])
    assert [(one["value"], one["address"]) for one in shown] == [(5, 0x110C08)]


@pytest.mark.parametrize(
    ("register", "status", "says"),
    [
        ("NV_PFALCON_FALCON_MAILBOX0", 11, "is in several engines, at 0x40 from each one's start"),
        ("NV_PRISCV_RISCV_CPUCTL", 11, "is in several engines"),
        ("NV_PGSP_QUEUE_HEAD[8]", 2, "has 8 elements, numbered from 0"),
        ("NV_PGSP_EMEMD", 2, "may advance NV_PGSP_EMEMC: add --write"),
        ("NV_NONE_SUCH", 31, "no register NV_NONE_SUCH"),
    ],
)
def test_a_register_that_cannot_be_read_says_why(ringup, plug, register, status, says):
    card = plug("ga102", vram_bytes=2 << 30)
    seen, out, err = ringup("regs", card.name, register)
    assert (seen, out) == (status, "")
    assert says in err


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["reset", "--first", "mode1"], 2, "has no reset mode1; over this path it has unload, function, slot"),
        (["mem", "read", "0x80000000", "4"], 2, "end beyond VRAM of 0x80000000 bytes"),
        (["mem", "read", "0x1000", "4", "--space", "gpu"], 11, "GPU virtual addresses of virtual:ga102"),
        (["down", "--off"], 11, "only a slot in an enclosure can be switched off"),
    ],
)
def test_what_is_not_there_is_refused_in_one_sentence(ringup, plug, words, status, says):
    card = plug("ga102", vram_bytes=2 << 30)
    name, *rest = words
    seen, out, err = ringup(name, card.name, *rest)
    assert (seen, out) == (status, "")
    assert says in err
    assert len(err.splitlines()) == 1

"""A card leaves the bus at any access of a short command. The command prints the right answer, or one line and the exit
status of a lost card.
"""

import pytest

import ringup as library
from ringup.errors import DeviceLost

LOST = DeviceLost.exit_code
FAULT, NEVER = "all_ones_after_reads", 1 << 30
# The tests try so many accesses of each command; `make fuzz` tries all of them.
FEW = 7
COMMANDS = (
    ("info",),
    ("down",),
    ("down", "--awake"),
    ("reset",),
    ("mem", "read", "0", "64"),
    ("report",),
    ("regs", "GRBM_STATUS"),
)


def words(card, command):
    return (command[0], card.name, *command[1:])


def leave(card):
    """Let a process die while it drives the card."""
    library.open(card.name).alloc(4096)
    card.kill_holder()


def reads_of(card, ringup, command):
    """Run a command on a card that works. Return how many reads it takes and what it prints."""
    card.faults.inject(FAULT, NEVER)
    status, out, err = ringup(*words(card, command))
    assert (status, err) == (0, "")
    return NEVER - card.faults.get(FAULT), out


def check(card, ringup, command, reads, said):
    """Run a command on a card that leaves after so many reads. If the command succeeds, its output must be the right
    one.
    """
    card.faults.inject(FAULT, reads)
    status, out, err = ringup(*words(card, command))
    if status == 0:
        assert (out, err) == (said, "")
        return False
    assert status == LOST, (reads, err)
    assert err.startswith(f"ringup {command[0]}: DeviceLost: ")
    assert (err.count("\n"), "Traceback" in err) == (1, False)
    return True


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_cold_card_that_leaves_at_any_read_is_never_called_well(plug, ringup, command, sample):
    card = plug()
    reads, said = reads_of(card, ringup, command)
    for at in (*sample(range(1, reads - 2), few=FEW), reads - 2):
        card.replug()
        # Every read but the last two decides something.
        assert check(card, ringup, command, at, said)
    for at in (reads - 1, reads):
        card.replug()
        check(card, ringup, command, at, said)


@pytest.mark.parametrize("command", [("down",), ("reset",)], ids=" ".join)
def test_a_card_that_was_left_running_and_leaves_is_never_called_at_rest(plug, ringup, command):
    card = plug()
    leave(card)
    reads, said = reads_of(card, ringup, command)
    for at in range(3, reads - 2, 11):
        card.replug()
        leave(card)
        assert check(card, ringup, command, at, said)


def test_a_card_that_leaves_as_it_falls_asleep_is_lost(plug, ringup):
    card = plug()
    write = card.config.write

    def falls_asleep_for_ever(offset, value, size_bytes=4):
        write(offset, value, size_bytes)
        if value & 3 == 3 and offset == card.gpu.places["pm"] + 4:
            card.unplug()

    card.config.write = falls_asleep_for_ever
    status, out, err = ringup("down", card.name)
    assert (status, out) == (LOST, "")
    assert "putting virtual:navi31 to sleep" in err


@pytest.mark.parametrize("command", [("up",), ("stats",), ("top",), ("report", "--up")], ids=" ".join)
@pytest.mark.parametrize("at", [1, 20, 60, 150, 250])
def test_commands_that_bring_a_card_up_call_one_that_leaves_lost(plug, ringup, command, at):
    card = plug()
    card.faults.inject(FAULT, at)
    status, _, err = ringup(*words(card, command))
    assert status == LOST, err
    assert f"ringup {command[0]}: DeviceLost: " in err

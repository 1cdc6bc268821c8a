"""Every fault of an enclosure, at seeded points of a start, of copies and of kernels. The result is right bytes or one
error in time; then everything works again.
"""

import random

import pytest

from ringup.drivers.usb4.open_firmware import BULK_MS, REQUEST_MS
from ringup.drivers.usb4.port import SLACK_MS
from ringup.errors import GuestError, RingupError, Unmodelled
from ringup.silicon.asm2464pd.hardware.faults import KINDS

# How many points each fault has in each phase.
POINTS = range(1000)
MANY = 1 << 40  # more events than any phase has
PHASES = ("start", "upload", "download", "compute")
# What one failure may cost beyond a phase's own time. The failing transfer uses its whole time limit, and so does one
# that waits for its effect. A queue's wait is 10 s. A bridge whose engine still waits is restarted and is back within 7
# s.
QUEUE_MS, RESTART_MS = 10_000, 7_000
BOUND_MS = BULK_MS + REQUEST_MS + QUEUE_MS + RESTART_MS + SLACK_MS
COUNTED = [kind.name for kind in KINDS if kind.name not in ("link_never_trains", "ep0_64")]
LOST = ("disconnect_after_bytes", "disconnect_after_transfers", "disconnect_and_return")


def run(dock, phase, seed):
    if phase == "start":
        dock.open()
    else:
        getattr(dock, phase)(seed)


def length(dock, phase, fault):
    """Return how many events of the fault the phase has, and the phase's time."""
    if phase == "start":
        dock.close()
    dock.enclosure.faults.inject(fault, MANY)
    begun_us = dock.clock.now_us
    run(dock, phase, 0)
    left = dock.enclosure.faults.get(fault)
    dock.enclosure.faults.clear()
    return MANY - left, dock.clock.now_us - begun_us


def strike(dock, phase, fault, at, seed, bound_us):
    """Inject a fault; return what the user sees: an error's name, or nothing."""
    if phase == "start":
        dock.close()
    dock.enclosure.faults.inject(fault, at)
    begun_us, told = dock.clock.now_us, ""
    try:
        run(dock, phase, seed)
    except (GuestError, Unmodelled):
        raise
    except RingupError as error:
        told = type(error).__name__
    assert dock.clock.now_us - begun_us <= bound_us, (fault, phase, at)
    return told


@pytest.mark.parametrize("fault", COUNTED)
def test_a_fault_at_any_moment_is_right_bytes_or_an_error_in_time_and_all_is_well_again(docks, fault, sample):
    dock = docks()
    dock.open()
    for phase in PHASES:
        events, took_us = length(dock, phase, fault)
        for point in sample(POINTS, few=1):
            at = random.Random(f"{fault} {phase} {point}").randrange(events)
            told = strike(dock, phase, fault, at, point, took_us + 1_000 * BOUND_MS)
            assert not told or fault not in LOST or told in ("DeviceLost", "NoSuchCard"), (phase, at, told)
            # A lost write can make the next writes mistakes. Violations after the recovery still fail the test.
            dock.radeon.violations.clear()
            dock.recover()

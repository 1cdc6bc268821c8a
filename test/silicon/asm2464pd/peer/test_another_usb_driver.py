"""An independent driver for the real bridge, unmodified above libusb, brings up the card behind the virtual bridge and
computes on it.
"""

import random

DATA = random.Random(7).randbytes(1 << 20)


def test_it_boots_the_card_computes_and_copies_both_ways(door, drive):
    answer = drive(DATA)
    assert answer == {"sums": [[11.0, 22.0, 33.0, 44.0]] * 3, "same": True, "arch": "gfx1100"}
    costs = door.costs
    # On its own model of the bridge the driver makes 4,285 transfers to boot, 24 to copy 1 MiB in and 18 to copy it
    # out. Here it waits longer for the card's secure OS, and it polls all the time.
    assert 4_000 < costs["cold boot"].transfers < 9_000
    assert costs["large copy in"].transfers < 60
    assert costs["large copy out"].transfers < 30
    for name in ("large copy in", "large copy out"):  # 1 MiB at 700 MB/s takes 1.5 ms
        assert 1_500 < costs[name].time_us < 5_000

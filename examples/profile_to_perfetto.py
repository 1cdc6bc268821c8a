"""A profile of dispatches and copies by the card's own clock, saved for ui.perfetto.dev.

python examples/profile_to_perfetto.py virtual:navi31 trace.pftrace
"""

import sys

import numpy as np
from assembler_kernel import add_one

import ringup

MHZ = 100  # of the reference clock


def main(name: str, path: str) -> None:
    with ringup.open(name, kind=ringup.Radeon) as card, card.alloc(1 << 20, name="data") as data:
        program = card.load(add_one(card.info.target))
        with card.profile() as profile:
            copied = card.copy.upload(data, np.zeros(1 << 18, np.float32))
            stream = card.compute.stream()
            stream.wait_for(copied)
            for _ in range(3):
                stream.dispatch(program, grid=1, block=32, args=[data])
                stream.barrier()
            card.compute.submit(stream).wait()
        for span in profile.spans():
            print(f"{span.track:20} {span.name:14} {(span.end_ticks - span.begin_ticks) / MHZ:8.2f} us")
        profile.save(path)
        print(f"{path} is for ui.perfetto.dev")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])

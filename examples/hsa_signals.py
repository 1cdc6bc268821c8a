"""Packets of HSA (AQL): two queues, a kernel that waits for a signal, and a signal that says when the kernel ran.

python examples/hsa_signals.py virtual:navi31
"""

import sys

import numpy as np
from assembler_kernel import add_one

import ringup


def main(name: str) -> None:
    # `kind` tells type checkers that this card has queues of HSA.
    with ringup.open(name, kind=ringup.Radeon) as card, card.alloc(128, name="values") as values:
        kernel = card.load(add_one(card.info.target))["add_one"]
        card.copy.fill(values, 0).wait()
        first, second = card.aql, card.new_aql_queue()
        ready, done = card.signal(1, name="ready"), card.signal(1, name="done")

        waiting = second.stream()
        waiting.barrier_and(ready)  # the queue takes no later packet before this signal is 0
        waiting.dispatch(kernel, grid=1, block=32, args=[values], completion=done)
        second.submit(waiting)

        stream = first.stream()
        stream.dispatch(kernel, grid=1, block=32, args=[values], completion=ready)  # the card subtracts 1 at its end
        first.submit(stream)

        done.wait()
        result = card.copy.download_array(values, np.float32, 32)
        print(f"both kernels ran: {result[0]}; the second took {done.duration_us:.2f} us, and began", end=" ")
        print(f"{(done.start_ticks - ready.end_ticks) / 100:.2f} us behind the first")
        assert result[0] == 2.0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])

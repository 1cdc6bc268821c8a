"""Two Radeons: one computes and puts its result into the other's memory, where the other goes on.

python examples/two_cards.py virtual:navi31 virtual:navi33
"""

import sys

import numpy as np
from assembler_kernel import add_one

import ringup


def main(first: str, second: str) -> None:
    # `kind` tells type checkers that these cards have peers.
    with ringup.open(first, kind=ringup.Radeon) as one, ringup.open(second, kind=ringup.Radeon) as other:
        kernels = [card.load(add_one(card.info.target))["add_one"] for card in (one, other)]
        here, there = one.alloc(128, name="here"), other.alloc(128, name="there")
        peer = one.peer(other)  # stores and reads a page in the other card's memory
        print(f"{peer}" + (f": {peer.why}" if peer.why else ""))

        stream = one.compute.stream()
        stream.wait_for(one.copy.fill(here, 0))
        stream.dispatch(kernels[0], grid=1, block=32, args=[here])
        moved = peer.copy(there, here, after=[one.compute.submit(stream)])

        stream = other.compute.stream()
        stream.wait_for(moved)  # a point of the first card
        stream.dispatch(kernels[1], grid=1, block=32, args=[there])
        other.copy.wait_for(other.compute.submit(stream))
        result = other.copy.download_array(there, np.float32, 32)
        print(f"both kernels ran: {result[0]}")
        assert result[0] == 2.0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])

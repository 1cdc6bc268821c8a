"""Copies and kernels on two queues that wait for one another by points, without the host in between.

python examples/copies_and_points.py virtual:navi31
"""

import sys

import numpy as np
from assembler_kernel import add_one

import ringup


def main(name: str) -> None:
    with ringup.open(name) as card:
        program = card.load(add_one(card.info.target))
        source, target = card.alloc(128, name="source"), card.alloc(128, name="target")
        for turn in range(3):
            # a point is reached when all that was submitted up to it is done
            uploaded = card.copy.upload(source, np.full(32, turn, np.float32))
            stream = card.compute.stream()
            stream.wait_for(uploaded)
            stream.dispatch(program, grid=1, block=32, args=[source])
            card.copy.wait_for(card.compute.submit(stream))
            card.copy.copy_buffer(target, source)
            result = card.copy.download_array(target, np.float32, 32)  # behind the copy on the same queue
            print(f"turn {turn}: {result[0]}")
            assert (result == turn + 1).all()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])

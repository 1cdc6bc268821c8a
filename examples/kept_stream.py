"""A kept stream: commands that stay in the card's memory are changed in one place and submitted again.

python examples/kept_stream.py virtual:navi31
"""

import sys

import numpy as np
from assembler_kernel import add_one

import ringup


def main(name: str) -> None:
    with ringup.open(name) as card:
        kernel = card.load(add_one(card.info.target))["add_one"]
        buffers = [card.alloc(128, name=f"buffer {number}") for number in range(4)]
        for buffer in buffers:
            card.copy.fill(buffer, 0).wait()
        stream = card.compute.stream()
        at = stream.dispatch(kernel, grid=1, block=32, args=[buffers[0]])
        kept = card.compute.keep(stream)
        for buffer in buffers:
            kept.patch_args(at + kernel.arg_offset(0), np.uint64(buffer.gpu_va).tobytes())  # argument 0: an address
            point = kept.submit()
        point.wait()
        results = [card.copy.download_array(buffer, np.float32, 32)[0] for buffer in buffers]
        print(f"one stream, submitted {len(buffers)} times: {[float(one) for one in results]}")
        assert results == [1.0] * len(buffers)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])

"""Raw PM4: the packets that the card's command processor reads, appended to a stream one by one.

python examples/raw_packets.py virtual:navi31
"""

import sys

import ringup


def main(name: str) -> None:
    # `kind` tells type checkers that the streams of this card take PM4.
    with ringup.open(name, kind=ringup.Radeon) as card, card.alloc(4096, "host", name="words") as words:
        stream = card.compute.stream()
        pm4 = stream.pm4
        stream.append(pm4.write_data(words.gpu_va, 0x12345678, 0x9ABCDEF0))
        stream.append(pm4.nop())
        card.compute.submit(stream).wait()
        assert words.view is not None
        found = words.view[:8].cast("I")
        print(f"{stream.size_bytes} bytes of packets wrote {found[0]:#x} {found[1]:#x} at {words.gpu_va:#x}")
        assert list(found) == [0x12345678, 0x9ABCDEF0]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])

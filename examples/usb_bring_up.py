"""A card in a USB enclosure comes up, stage by stage, and works; `virtual:navi31@asm2464pd` is one made of software.

python examples/usb_bring_up.py usb:2-1
"""

import sys

import ringup
from ringup.drivers.stages import Stage


def watch(stage: Stage | str) -> None:
    """Print each stage when it has ended; its name alone comes when it begins."""
    if isinstance(stage, Stage):
        print(f"{stage.took_us / 1000:9.1f} ms  {stage.name}{': ' + stage.error if stage.error else ''}")


def main(name: str) -> None:
    with ringup.open(name, watch=watch) as card:
        info = card.info
        print(
            f"{info.chip}: {info.compute_units} compute units, {info.vram_bytes >> 20} MiB of memory, SMU firmware {info.firmware['smu']}"
        )
        with card.alloc(1 << 16, name="bytes") as there:
            sent = bytes(range(256)) * 256
            card.copy.upload(there, sent).wait()
            assert card.copy.download(there) == sent
        print(f"{len(sent)} bytes went there and came back the same")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])

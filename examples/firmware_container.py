"""What is in a firmware file: kind, versions, sections and their bytes. A damaged file is one clear error.

python examples/firmware_container.py /lib/firmware/amdgpu/gc_11_0_0_mec.bin
"""

import sys
from pathlib import Path

import ringup
from ringup.firmware.amd import image


def main(path: str) -> None:
    blob = Path(path).read_bytes()
    parsed = image.parse(blob, Path(path).name)
    print(f"{parsed.name}: {parsed.kind} {parsed.version:#x}, for IP version {parsed.ip_version}")
    for section in parsed.sections:
        print(f"  {section.name:24} {section.size_bytes:8} bytes at {section.offset_bytes:#x}")
        assert len(parsed.data(section)) == section.size_bytes
    try:
        image.parse(blob[: len(blob) // 2], parsed.name)
    except ringup.RingupError as error:
        print(f"half of it: {error}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])

"""Parameters of allocations as NVIDIA's drivers fill them in, from the headers of 535."""

import struct


def channel_params(
    number=0, engine=1, *, entries=512, space=0, share=0, instance=0x10000, userd=0x20000, vram=2, gpfifo=0x1_2006_4000
):
    """NV_CHANNEL_ALLOC_PARAMS of 360 bytes, with the fields that drivers fill in."""
    params = bytearray(360)
    flags = (number & 7) << 8 | number >> 3 << 12 | 1 << 21 | 1 << 5
    struct.pack_into("<IIQIIII", params, 0, 0, 0, gpfifo, entries, flags, share, space)
    struct.pack_into("<I", params, 128, engine)
    for at, base, size in (
        (144, instance, 0x1000),
        (168, userd, 0x200),
        (192, instance, 0x200),
        (216, 0x30000, 0x5000),
    ):
        struct.pack_into("<QQII", params, at, base, size, vram, 1)
    return bytes(params)


def space_params(index=0, flags=0, big=0):
    return struct.pack("<IIQQQI4xQ", index, flags, 0, 0, 0, big, 0)

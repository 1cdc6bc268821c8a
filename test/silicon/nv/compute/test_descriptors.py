"""Launch descriptors of each version, read by the card. Bit numbers are those of cl*c0qmd.h of open-gpu-doc."""

import dataclasses

import pytest

from ringup.silicon.nv.compute import descriptors
from ringup.silicon.nv.compute.descriptors import Action, BadDescriptor, Dependent, LacksModel, Release, Trap
from ringup.silicon.nv.compute.launch import Bank, Launch, Windows

BYTES = 384
AT = 0x2_0000_0100
WINDOWS = Windows(shared=0xFE << 24, local=0xFF << 24)


def bits(fields):
    """Return a descriptor's bytes: `{576: 3}` puts 3 at bit 576 and up."""
    value = 0
    for place, number in fields.items():
        value |= number << place
    return value.to_bytes(BYTES, "little")


# by version: a class that takes it; where it has the version, the grid, the block, registers and barriers, shared
# memory, local memory, program, the first constant bank, and the sampler bit
TURING = {
    580: 2, 384: 7, 416: 3, 448: 2, 592: 32, 608: 4, 624: 2, 648: 40, 955: 1, 544: 1024, 928: 16, 960: 32, 1536: 0x1000,
    1568: 5, 640: 0b101, 1024: 0x8000, 1056: 1, 1075: 4, 1152: 0x9000, 1203: 2, 382: 1, 1016: 0x75,
}  # fmt: skip
GRID = {
    (2, 2): (0xC5C0, TURING | {576: 2}),
    (2, 3): (0xC5C0, TURING | {576: 3}),
    (2, 4): (0xC6C0, TURING | {576: 4}),
    (3, 0): (0xC7C0, {
        580: 3, 384: 7, 416: 3, 448: 2, 592: 32, 608: 4, 624: 2, 648: 40, 763: 1, 544: 1024, 736: 16, 1600: 32,
        1536: 0x1000, 1568: 5, 640: 0b101, 1024: 0x8000, 1056: 1, 1075: 4, 1152: 0x9000, 1203: 2, 382: 1, 1656: 0x75,
    }),
    (4, 0): (0xCBC0, {
        580: 4, 23: 2, 1024: 7, 1056: 3, 1088: 2, 1152: 32, 1168: 4, 1184: 2, 1200: 40, 1211: 1, 584: 1024, 512: 16,
        544: 32, 1216: 0x1000, 1248: 5, 416: 1, 424: 1, 1536: 0x1_0000_8000 >> 6, 1587: 4, 1664: 0x9000 >> 6, 1715: 2,
        569: 1, 536: 0x75,
    }),
    (5, 0): (0xCDC0, {
        468: 5, 151: 2, 1248: 7, 1280: 3, 1312: 2, 1088: 32, 1104: 4, 1120: 2, 1128: 40, 1137: 1, 1152: 1024 >> 7,
        1184: 1, 1200: 2, 1024: 0x5_0000_1000 >> 4, 1856: 1, 1864: 1, 1344: 0x1_0000_8000 >> 6, 1395: 4,
        1472: 0x9000 >> 6, 1523: 2, 457: 1, 448: 0x75,
    }),
}  # fmt: skip
LAUNCH = Launch(
    descriptor=AT, version=(0, 0), program=0x5_0000_1000, grid=(7, 3, 2), block=(32, 4, 2), registers=40, barriers=1,
    shared_bytes=1024, local_low_bytes=16, local_high_bytes=32,
    constants=(Bank(0x1_0000_8000, 64), None, Bank(0x9000, 32), *(None,) * 5), sass_version=0x75, linked_samplers=True,
    sequential=False, windows=WINDOWS,
)  # fmt: skip


@pytest.mark.parametrize("version", GRID, ids=lambda version: f"{version[0]}.{version[1]}")
def test_a_grid_of_each_version_is_one_launch(version):
    class_id, fields = GRID[version]
    found = descriptors.read(class_id, AT, bits(fields), WINDOWS)
    assert found.launch == dataclasses.replace(LAUNCH, version=version)
    assert (found.releases, found.dependents, found.dependences) == ((), (), 0)


def also(version, fields):
    class_id, grid = GRID[version]
    return descriptors.read(class_id, AT, bits(grid | fields), WINDOWS)


@pytest.mark.parametrize(
    ("version", "fields", "release"),
    [
        ((2, 3), {138: 1, 736: 0x8010, 768: 3, 799: 1, 800: 77}, Release(0x3_0000_8010, 77, 1)),
        ((2, 3), {139: 1, 832: 0x40, 896: 5, 884: 6, 888: 1, 890: 1},
         Release(0x40, 5, 4, reduction=6, signed=True)),
        ((3, 0), {823: 1, 768: 0x8010, 800: 3, 830: 1, 832: 77}, Release(0x3_0000_8010, 77, 1)),
        ((3, 0), {1719: 1, 1664: 0x40, 1725: 1, 1726: 2, 1723: 2, 1728: 1, 1760: 9},
         Release(0x40, 9 << 32 | 1, 2, wide=True, trap=Trap.CONDITIONAL)),
        ((4, 0), {320: 1, 321: 1, 640: 0x8010, 672: 3, 704: 77}, Release(0x3_0000_8010, 77, 1)),
        ((4, 0), {336: 1, 340: 1, 341: 2, 800: 1, 832: 4}, Release(1 << 32, 4, 4, reduction=2)),
        ((5, 0), {288: 1, 289: 1, 480: 0x8010, 512: 3, 544: 77}, Release(0x3_0000_8010, 77, 1)),
    ],
)  # fmt: skip
def test_a_descriptor_names_the_semaphores_that_it_releases(version, fields, release):
    assert also(version, fields).releases == (release,)


@pytest.mark.parametrize(
    ("version", "fields", "dependent"),
    [
        ((2, 3), {141: 1, 142: 1, 480: 0x123}, Dependent(0x12300, Action.SCHEDULE)),
        ((2, 4), {141: 1, 142: 3, 480: 0x123}, Dependent(0x12300, Action.INVALIDATE_COPY_SCHEDULE)),
        ((3, 0), {512: 1, 513: 4, 480: 0x123}, Dependent(0x12300, Action.DECREMENT_DEPENDENCE)),
        ((4, 0), {373: 1, 374: 1, 480: 0x123}, Dependent(0x12300, Action.SCHEDULE)),
        ((5, 0), {344: 1, 345: 1, 416: 0x123}, Dependent(0x12300, Action.SCHEDULE)),
    ],
)
def test_a_descriptor_names_what_follows_it(version, fields, dependent):
    assert also(version, fields).dependents == (dependent,)


def test_a_null_grid_of_hopper_only_depends_and_releases():
    # as libcuda 535 sends it: type 1, dependence counter 2
    found = descriptors.read(0xCBC0, AT, bits({580: 4, 23: 1, 0: 2, 320: 1, 321: 1, 640: 0x10, 704: 1}), WINDOWS)
    assert (found.launch, found.dependences, found.releases) == (None, 2, (Release(0x10, 1, 1),))


@pytest.mark.parametrize(
    ("class_id", "version", "text"),
    [
        (0xC5C0, (3, 0), "has version 3.0; class 0xc5c0 takes 2.2, 2.3"),
        (0xC7C0, (2, 2), "has version 2.2; class 0xc7c0 takes 2.3, 2.4, 3.0"),
        (0xC9C0, (4, 0), "class 0xc9c0 takes 2.4, 3.0"),
    ],
)
def test_a_descriptor_of_another_generation_is_refused(class_id, version, text):
    fields = dict(GRID[version][1]) | ({580: 4, 576: 0} if version == (4, 0) else {})
    with pytest.raises(BadDescriptor, match=text):
        descriptors.read(class_id, AT, bits(fields), WINDOWS)


def test_what_the_model_lacks_is_named():
    with pytest.raises(LacksModel, match="is a queue"):
        also((3, 0), {136: 1})
    with pytest.raises(LacksModel, match="clusters"):
        descriptors.read(0xCBC0, AT, bits({580: 4, 23: 3}), WINDOWS)
    with pytest.raises(LacksModel, match=r"version 5\.1"):
        descriptors.read(0xCDC0, AT, bits({468: 5, 464: 1, 151: 2, 832: 32}), WINDOWS)


def test_a_group_without_threads_or_with_too_many_is_refused():
    grid = GRID[3, 0][1]
    with pytest.raises(BadDescriptor, match=r"groups of \(0, 4, 2\) threads"):
        descriptors.read(0xC7C0, AT, bits(grid | {592: 0}), WINDOWS)
    with pytest.raises(BadDescriptor, match=r"groups of \(256, 4, 2\) threads"):
        descriptors.read(0xC7C0, AT, bits(grid | {592: 256}), WINDOWS)

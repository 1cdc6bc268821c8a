"""Fat binaries: every form of a bundle, several bundles in a host program, the choice among them, damage. Layouts: LLVM
ClangOffloadBundler.
"""

import contextlib
import hashlib
import random
import struct
import zlib

import pytest
import zstandard

from ringup.errors import CompileError, NotSupported, RingupError, WrongTarget
from ringup.queues.amd.objects import fat_binary
from ringup.queues.amd.objects.code_object import parse

IDS = (
    "host-x86_64-unknown-linux-gnu-",
    "hipv4-amdgcn-amd-amdhsa--gfx1100",
    "hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-",
    "hipv4-amdgcn-amd-amdhsa-unknown-gfx11-generic",
)
PACKERS = {0: zlib.compress, 1: zstandard.ZstdCompressor().compress}


def bundle(contents, ids=IDS):
    """Return a plain bundle; its entries are aligned to pages."""
    table, at, body = struct.pack("<Q", len(ids)), 4096, b""
    for name, data in zip(ids, contents, strict=True):
        table += struct.pack("<QQQ", at, len(data), len(name)) + name.encode()
        body += data.ljust(-(-len(data) // 4096) * 4096, b"\0")
        at = 4096 + len(body)
    return (b"__CLANG_OFFLOAD_BUNDLE__" + table).ljust(4096, b"\0") + body


def packed(plain, version=3, method=1, says=None, **wrong):
    """Return a compressed bundle; `wrong` replaces fields of the header."""
    data = PACKERS[method](plain)
    layout = {1: "<IQ", 2: "<IIQ", 3: "<QQQ"}[version]
    size = 8 + struct.calcsize(layout) + len(data)
    digest = int.from_bytes(hashlib.md5(plain).digest()[:8], "little")
    values = {"size": size, "unpacked": len(plain), "digest": digest} | wrong
    fields = list(values.values())[version == 1 :]
    return b"CCOB" + struct.pack("<HH", version, says or method) + struct.pack(layout, *fields[:3]) + data


def host(section, name=b".hip_fatbin", machine=62):
    """Return a host program: an ELF file with that section."""
    names = b"\0" + name + b"\0.shstrtab\0"
    start, header = 4096, struct.Struct("<16sHHIQQQIHHHHHH")
    table = start + len(section) + len(names)
    rows = [
        struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        struct.pack("<IIQQQQIIQQ", 1, 1, 2, start, start, len(section), 0, 0, 4096, 0),
        struct.pack("<IIQQQQIIQQ", len(name) + 2, 3, 0, 0, start + len(section), len(names), 0, 0, 1, 0),
    ]
    head = header.pack(b"\x7fELF\x02\x01\x01", 3, machine, 1, 0, 0, table, 0, 64, 56, 0, 64, len(rows), 2)
    return head.ljust(start, b"\0") + section + names + b"".join(rows)


def read(data):
    return [(one.bundle, one.target, bytes(one.data)) for one in fat_binary.members(data, "fat")]


CONTENTS = (b"", b"eleven", b"nine" * 3000, b"all")
MEMBERS = [(0, "gfx1100", b"eleven"), (0, "gfx942:sramecc+:xnack-", b"nine" * 3000), (0, "gfx11-generic", b"all")]


@pytest.mark.parametrize("method", PACKERS)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_bundle_gives_its_code_objects(version, method):
    plain = bundle(CONTENTS)
    assert read(plain) == read(packed(plain, version, method)) == MEMBERS


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_program_for_a_host_holds_one_for_each_source(version):
    one, two = packed(bundle(CONTENTS), version), packed(bundle((b"x86", b"more", b"", b"")), version)
    section = (
        one.ljust(8192, b"\0") + two.ljust(8192, b"\0") + bundle((b"", b"plain", b"", b"")) + packed(bundle(CONTENTS))
    )
    found = read(host(section))
    assert found[:3] == MEMBERS
    assert found[3:5] == [(1, "gfx1100", b"more"), (2, "gfx1100", b"plain")]
    assert [row[0] for row in found[5:]] == [3, 3, 3]


def test_one_object_is_no_fat_binary(compile_cl):
    data = compile_cl("kernel void k(global int *out) { *out = 1; }")
    assert not fat_binary.is_fat(data)
    assert not fat_binary.is_fat(b"")
    assert all(map(fat_binary.is_fat, (host(b""), bundle(CONTENTS), packed(b""))))


def test_the_object_for_a_chip_is_chosen(compile_cl):
    """Code for the chip itself is preferred to code for its family. Of several sources, the one that has the kernel is
    chosen.
    """
    one = compile_cl("kernel void first(global int *out) { *out = 1; }")
    two = compile_cl("kernel void second(global int *out) { *out = 2; }")
    other = compile_cl("kernel void second(global int *out) { *out = 3; }", cpu="gfx1201")
    ids = (
        "hipv4-amdgcn-amd-amdhsa--gfx1100",
        "hipv4-amdgcn-amd-amdhsa--gfx1201",
        "hipv4-amdgcn-amd-amdhsa--gfx11-generic",
    )
    # of an ELF header: gfx11-generic, version 1
    generic = bytes(48) + bytes((0x54, 0, 0, 1))
    data = host(packed(bundle((one, other, generic), ids)).ljust(1 << 16, b"\0") + bundle((two, b"", b""), ids))
    assert list(parse(data, chip="gfx1100", kernel="first").kernels) == ["first"]
    assert list(parse(data, chip="gfx1100", kernel="seco").kernels) == ["second"]
    assert bytes(fat_binary.choose(data, "fat", "gfx1201").data) == other
    assert bytes(fat_binary.choose(data, "fat", "gfx1151").data) == generic
    for chip, kernel, error, message in (
        ("gfx1100", "", CompileError, "holds 2 code objects for gfx1100, one of each source; name a kernel"),
        ("gfx1100", "third", CompileError, "has no kernel third; it has first, second"),
        ("gfx1201", "first", CompileError, "has no kernel first; it has second"),
        ("gfx942", "", WrongTarget, "holds code for gfx1100, gfx1201, gfx11-generic: none of it runs on gfx942"),
    ):
        with pytest.raises(error, match=message):
            parse(data, "fat", chip, kernel=kernel)
    with pytest.raises(
        CompileError, match="holds code objects for gfx1100, gfx1201, gfx11-generic: say for which chip"
    ):
        parse(data)


def test_a_kernel_is_found_by_its_name_or_a_part_of_it():
    names = ["_Z3addi", "_Z3addij", "_Z3subi"]
    assert fat_binary.match(names, "_Z3addi", "fat") == "_Z3addi"
    assert fat_binary.match(names, "sub", "fat") == "_Z3subi"
    with pytest.raises(CompileError, match="has 2 kernels with 'add' in their names: _Z3addi, _Z3addij"):
        fat_binary.match(names, "add", "fat")
    with pytest.raises(CompileError, match=r"has no kernel mul; it has k0, .*k7 and 2 more"):
        fat_binary.match([f"k{i}" for i in range(10)], "mul", "fat")


PLAIN = bundle(CONTENTS)
DAMAGED = {
    "the hash": (packed(PLAIN, digest=1), CompileError, "bundle 0: its bytes are not those that were packed"),
    "the size unpacked": (packed(PLAIN, unpacked=len(PLAIN) + 1), CompileError, "bytes came out, where its header says"),
    "too little unpacked": (packed(PLAIN, unpacked=100), CompileError, "its frame holds more than 100 bytes"),
    "too much unpacked": (packed(PLAIN, unpacked=1 << 40), CompileError, "1099511627776 bytes unpacked, above"),
    "the size packed": (packed(PLAIN, size=1 << 30), CompileError, "1073741824 bytes packed, of"),
    "the method": (packed(PLAIN, says=7), NotSupported, "compressed in version 3, by method 7; versions 1, 2, 3 and methods 0, 1"),
    "a frame cut short": (packed(PLAIN, 1)[:-9], CompileError, "cut short"),
    "the frame": (packed(PLAIN)[:32] + b"zstd" + packed(PLAIN)[36:], CompileError, "zstd: "),
    "the stream": (packed(PLAIN, 1, 0)[:30] + b"zlib" + packed(PLAIN, 1, 0)[34:], CompileError, "zlib: |bytes came out"),
    "the header": (packed(PLAIN)[:20], CompileError, "its header would end at byte"),
    "an entry": (PLAIN[:9000], CompileError, "entry hipv4-amdgcn-amd-amdhsa--gfx942:sramecc.:xnack- would end at byte"),
    "the count": (PLAIN[:24] + b"\xff" * 8 + PLAIN[32:], CompileError, "entries, above 4096"),
    "an ID": (PLAIN[:48] + b"\xff" * 8 + PLAIN[56:], CompileError, "an ID of 18446744073709551615 bytes"),
    "what follows": (PLAIN + b"junk", CompileError, "bundle 1 begins with 6a756e6b, not as one"),
    "no section": (host(b"", b".text"), CompileError, "a program for a host, without code for AMD's shader cores"),
    "the section": (host(PLAIN)[:8000], CompileError, "the section headers would end"),
    "a host of 32 bits": (b"\x7fELF\x01" + host(PLAIN)[5:], NotSupported, "another sort than 64 bits"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_named(name):
    data, error, message = DAMAGED[name]
    with pytest.raises(error, match=message):
        read(data)


@pytest.mark.parametrize(
    "form", [PLAIN, packed(PLAIN), packed(PLAIN, 1, 0), host(packed(PLAIN).ljust(4096, b"\0") + PLAIN)]
)
def test_damaged_bytes_raise_only_our_errors(form):
    pick = random.Random(len(form))
    places = [*range(64), *(pick.randrange(len(form)) for _ in range(150))]
    for place in places:
        data = bytearray(form)
        data[place] ^= 1 << pick.randrange(8)
        for some in (bytes(data), form[:place]):
            with contextlib.suppress(RingupError):
                read(some)

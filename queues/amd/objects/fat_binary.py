"""Fat binaries: code objects for several processors in one file, as HIP's compiler writes them. Bytes in, members out.

A bundle is a table of entries, each with an ID such as `hipv4-amdgcn-amd-amdhsa--gfx1100`, and their bytes. It may be
compressed. A program for the host (ELF for any machine but AMD's shader cores) contains one bundle for each of its
source files, one after the other, in the section `.hip_fatbin`. Source: LLVM ClangOffloadBundler, "Bundled Binary File
Layout", "Bundle Entry ID" and "Compression and Decompression".
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from struct import Struct

from ringup.errors import CompileError, NotSupported, WrongTarget
from ringup.queues.amd.objects import processors as amd_target
from ringup.queues.amd.objects.elf import EHDR, EM_AMDGPU, MAGIC, SHDR, SHT_NOBITS, Bytes, header, sections
from ringup.queues.amd.objects.processors import E_FLAGS

PLAIN, COMPRESSED = b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB"
SECTION_NAME = b".hip_fatbin"
# the bytes of e_machine and e_flags in the ELF header
MACHINE_AT, FLAGS_AT = 18, 48
# of a table: the number of its rows; the offset, the bytes and the bytes of the ID of one entry
COUNT, ENTRY = Struct("<Q"), Struct("<QQQ")
# of a compressed bundle: version, method
VERSION = Struct("<HH")
# the header of a compressed bundle after that, by version: [bytes of the whole bundle,] bytes unpacked, hash
SIZES = {
    1: Struct("<IQ"),
    2: Struct("<IIQ"),
    3: Struct("<QQQ"),
}
# the hash: the first bytes of the MD5 of the unpacked bytes
DIGEST = Struct("<Q")
MAX_ENTRIES, MAX_ID_BYTES = 4096, 4096
MAX_BUNDLES = 100_000
MAX_BUNDLE_BYTES = 1 << 30  # unpacked
# of all bundles of a file together. They are unpacked one after the other
MAX_UNPACKED_BYTES = 16 << 30
# the window of a zstd frame: clang packs with long-distance matching
WINDOW_BYTES = 1 << 30
# packed bytes between two checks of how many bytes are unpacked
STEP_BYTES = 1 << 16
# names in an error
SHOWN = 8
_DESCRIPTORS = re.compile(rb"([\x21-\x7e]+)\.kd\0")
# kind, architecture, vendor, system, environment, target ID
ID_PARTS = 6


@dataclass(frozen=True)
class Member:
    """One code object. `bundle`: the number of its bundle in the file, from 0. `target`: its target ID, such as
    `gfx942:xnack-`.
    """

    bundle: int
    entry_id: str
    data: memoryview

    @property
    def target(self) -> str:
        """Return the target ID. Code for the host has none."""
        parts = self.entry_id.split("-", ID_PARTS - 1)
        return parts[-1] if len(parts) == ID_PARTS else ""

    @property
    def processor(self) -> str:
        """Return the target ID without its features."""
        return self.target.partition(":")[0]

    def kernels(self) -> tuple[str, ...]:
        """Return the names of its kernels: a search for the names of their descriptors, without parsing the object."""
        return tuple(dict.fromkeys(name.decode() for name in _DESCRIPTORS.findall(self.data)))

    def runs_on(self, chip: amd_target.Target | str) -> bool:
        """Return whether the object runs on a chip, by its target ID. The version of a generic target is only in its
        ELF header.
        """
        version = E_FLAGS(int.from_bytes(self.data[FLAGS_AT : FLAGS_AT + 4], "little")).generic_version
        try:
            replace(amd_target.parse(self.target), generic_version=version).check_runs_on(chip, self.entry_id)
        except (ValueError, WrongTarget):
            return False
        return True


def is_fat(data: bytes) -> bool:
    """Return whether bytes are a bundle, or a program for a host, which may contain bundles."""
    if data.startswith(MAGIC) and len(data) >= EHDR.size:
        return int.from_bytes(data[MACHINE_AT : MACHINE_AT + 2], "little") != EM_AMDGPU
    return data.startswith((PLAIN, COMPRESSED))


def members(data: bytes, what: str) -> Iterator[Member]:
    """Yield the code objects of a fat binary in their order. Entries for the host and empty entries are skipped. `what`
    is the file's name in errors.

    Raises `CompileError` for a damaged file and for a program without `.hip_fatbin`, `NotSupported` for an unknown kind
    of bundle.
    """
    view = memoryview(data)
    if data.startswith(MAGIC):
        view = _section(Bytes(data, what))
    at, number, left = 0, 0, MAX_UNPACKED_BYTES
    while (at := _next(view, at)) < len(view):
        if number == MAX_BUNDLES:
            raise CompileError(f"{what}: more than {MAX_BUNDLES} bundles; build it again")
        where = f"{what}: bundle {number}"
        if view[at : at + len(COMPRESSED)] == COMPRESSED:
            bundle, size_bytes = _unpacked(view[at:], where, min(left, MAX_BUNDLE_BYTES))
            left -= len(bundle)
            yield from (found for found, _ in _entries(memoryview(bundle), where, number))
        else:
            size_bytes = len(PLAIN)
            for found, end in _entries(view[at:], where, number):
                size_bytes = max(size_bytes, end)
                yield found
        at += size_bytes
        number += 1


def choose(data: bytes, what: str, chip: amd_target.Target | str, kernel: str = "") -> Member:
    """Return the one code object for a chip. `kernel`: of several objects for the chip, return the one with this
    kernel. It may be a part of a name that no other kernel's name contains.

    Code for the chip itself is preferred to code for its family. Raises `WrongTarget` if there is no object for the
    chip, `CompileError` if none has the kernel or if several objects fit.
    """
    found = list(members(data, what))
    fit = [one for one in found if one.runs_on(chip)]
    if not fit:
        targets = ", ".join(dict.fromkeys(one.target for one in found)) or "nothing"
        raise WrongTarget(f"{what} holds code for {targets}: none of it runs on {chip}; compile it for that too")
    own = [one for one in fit if one.processor not in amd_target.GENERIC]
    left = own or fit
    if kernel:
        name = match(dict.fromkeys(name for one in left for name in one.kernels()), kernel, what)
        left = [one for one in left if name in one.kernels()]
    if len(left) > 1:
        raise CompileError(
            f"{what} holds {len(left)} code objects for {chip}, one of each source;"
            f" name a kernel{', which several have' * bool(kernel)}"
        )
    return left[0]


def match(names: Iterable[str], wanted: str, what: str) -> str:
    """Return the name that is equal to `wanted`, or the only one that contains it. Raises `CompileError` otherwise."""
    names = list(names)
    if wanted in names:
        return wanted
    found = [name for name in names if wanted in name]
    if len(found) == 1:
        return found[0]
    some = found or names
    shown = ", ".join(some[:SHOWN]) + f" and {len(some) - SHOWN} more" * (len(some) > SHOWN)
    if found:
        raise CompileError(f"{what} has {len(found)} kernels with {wanted!r} in their names: {shown}")
    raise CompileError(f"{what} has no kernel {wanted}; it has {shown or 'none'}")


def _section(file: Bytes[bytes]) -> memoryview:
    """Return the section with the bundles of a program for a host."""
    head = header(file)
    other_rows = head.shnum and head.shentsize != SHDR.size
    if not head.is_64_bit_little or other_rows or head.shstrndx >= max(head.shnum, 1):
        raise NotSupported(f"{file.what}: an ELF file of another sort than 64 bits, little-endian, with sections")
    rows = sections(file, head)
    names_at = rows[head.shstrndx] if rows else None
    names = file.take(names_at.offset, names_at.size, "the names of sections") if names_at else b""
    for row in rows:
        if names[row.name :].startswith(SECTION_NAME + b"\0") and row.type != SHT_NOBITS:
            file.take(row.offset, row.size, SECTION_NAME.decode())
            return memoryview(file.data)[row.offset : row.offset + row.size]
    raise CompileError(
        f"{file.what}: a program for a host, without code for AMD's shader cores ({SECTION_NAME.decode()})"
    )


def _next(view: memoryview, at: int) -> int:
    """Return where the next bundle begins. Linkers align bundles, with zeros between them."""
    step = 4096
    while at < len(view):
        piece = bytes(view[at : at + step])
        if rest := piece.lstrip(b"\0"):
            return at + len(piece) - len(rest)
        at += step
    return len(view)


def _entries(view: memoryview, what: str, number: int) -> Iterator[tuple[Member, int]]:
    """Yield the members of a plain bundle, each with the byte where it ends."""
    if view[: len(PLAIN)] != PLAIN:
        raise CompileError(
            f"{what} begins with {bytes(view[:8]).hex()}, not as one ({PLAIN.decode()} or {COMPRESSED.decode()})"
        )
    file = Bytes(view, what)
    (count,) = COUNT.unpack(file.take(len(PLAIN), COUNT.size, "its count of entries"))
    if count > MAX_ENTRIES:
        raise file.bad(f"{count} entries, above {MAX_ENTRIES}")
    at = len(PLAIN) + COUNT.size
    for _ in range(count):
        offset, size_bytes, id_bytes = ENTRY.unpack(file.take(at, ENTRY.size, "its table"))
        if id_bytes > MAX_ID_BYTES:
            raise file.bad(f"an ID of {id_bytes} bytes")
        entry_id = bytes(file.take(at + ENTRY.size, id_bytes, "an ID")).decode("ascii", "replace")
        at += ENTRY.size + id_bytes
        piece = file.take(offset, size_bytes, f"entry {entry_id}")
        if size_bytes and not entry_id.startswith("host-"):
            yield Member(number, entry_id, piece), offset + size_bytes


def _unpacked(view: memoryview, what: str, limit_bytes: int) -> tuple[bytes, int]:
    """Return the unpacked bytes of a compressed bundle, and how many bytes it takes in the file."""
    file = Bytes(view, what)
    version, method = VERSION.unpack(file.take(len(COMPRESSED), VERSION.size, "its header"))
    if version not in SIZES or method not in METHODS:
        raise NotSupported(
            f"{what}: compressed in version {version}, by method {method}; versions {', '.join(map(str, SIZES))}"
            f" and methods {', '.join(map(str, METHODS))} are read: unpack it with clang-offload-bundler"
        )
    start = len(COMPRESSED) + VERSION.size
    *packed, unpacked_bytes, digest = SIZES[version].unpack(file.take(start, SIZES[version].size, "its header"))
    start += SIZES[version].size
    if unpacked_bytes > limit_bytes:
        raise file.bad(f"{unpacked_bytes} bytes unpacked, above {limit_bytes}")
    if packed and not start < packed[0] <= len(view):
        raise file.bad(f"{packed[0]} bytes packed, of {len(view)} that are there")
    end = packed[0] if packed else len(view)
    bundle, rest = METHODS[method](view[start:end], unpacked_bytes, file)
    if len(bundle) != unpacked_bytes:
        raise file.bad(f"{len(bundle)} bytes came out, where its header says {unpacked_bytes}")
    if hashlib.md5(bundle, usedforsecurity=False).digest()[: DIGEST.size] != DIGEST.pack(digest):
        raise file.bad("its bytes are not those that were packed: the hash differs")
    return bundle, end if packed else len(view) - rest


def _zlib(packed: memoryview, unpacked_bytes: int, file: Bytes[memoryview]) -> tuple[bytes, int]:
    """Return the unpacked bytes, and how many bytes of `packed` follow the compressed data."""
    decoder = zlib.decompressobj()
    try:
        return decoder.decompress(packed, unpacked_bytes + 1), len(decoder.unused_data)
    except zlib.error as error:
        raise file.bad(f"zlib: {error}") from error


def _zstd(packed: memoryview, unpacked_bytes: int, file: Bytes[memoryview]) -> tuple[bytes, int]:
    """Return the unpacked bytes of one frame, and how many bytes of `packed` follow it."""
    # imported here: few commands need it
    import zstandard

    try:
        if zstandard.get_frame_parameters(packed).content_size > unpacked_bytes:
            raise file.bad(f"its frame holds more than {unpacked_bytes} bytes")
        decoder = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES).decompressobj()
        found, size_bytes = [], 0
        for at in range(0, len(packed), STEP_BYTES):
            found.append(decoder.decompress(packed[at : at + STEP_BYTES]))
            size_bytes += len(found[-1])
            if decoder.eof or size_bytes > unpacked_bytes:
                return b"".join(found), len(decoder.unused_data) + max(0, len(packed) - at - STEP_BYTES)
    except zstandard.ZstdError as error:
        raise file.bad(f"zstd: {error}") from error
    raise file.bad("its zstd frame is cut short")


METHODS: dict[int, Callable[[memoryview, int, Bytes[memoryview]], tuple[bytes, int]]] = {0: _zlib, 1: _zstd}

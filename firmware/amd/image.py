"""One amdgpu firmware file: a 32-byte common header, a header of its kind, and the sections that these two describe.

`parse` checks that every section is inside the file, after the header and apart from the others. The CRC in the header
is reported, but never a reason to refuse a file: a quarter of the files that AMD publishes follow no known rule.
Source: amdgpu_ucode.h, struct common_firmware_header; amdgpu_ucode.c, amdgpu_ucode_validate.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field
from itertools import pairwise

from construct import Int32ul
from construct import Struct as Layout

from ringup.autogen.amd import ucode
from ringup.errors import FirmwareError
from ringup.firmware.amd.containers import CODE, CONTAINERS, FILE, KIND_OF, Container, Cut
from ringup.firmware.layouts import Fields, integer, read

COMMON_BYTES = ucode.common_firmware_header.SIZE
MAX_BYTES = 64 << 20  # far above every card's files; limits the cost of a malicious one
MAX_TABLES = 64  # soft power tables of one image; real files have a few
# smc_soft_pptable_entry
PPTABLE_ENTRY = Layout("id" / Int32ul, "ppt_offset_bytes" / Int32ul, "ppt_size_bytes" / Int32ul)
# Names of packed parts: amdgpu_ucode.h, enum psp_fw_type and ta_fw_type
PACKED = {
    "sos": {
        ucode.PSP_FW_TYPE_PSP_SOS: "sos",
        ucode.PSP_FW_TYPE_PSP_SYS_DRV: "sys_drv",
        ucode.PSP_FW_TYPE_PSP_KDB: "kdb",
        ucode.PSP_FW_TYPE_PSP_TOC: "toc",
        ucode.PSP_FW_TYPE_PSP_SPL: "spl",
        ucode.PSP_FW_TYPE_PSP_RL: "rl",
        ucode.PSP_FW_TYPE_PSP_SOC_DRV: "soc_drv",
        ucode.PSP_FW_TYPE_PSP_INTF_DRV: "intf_drv",
        ucode.PSP_FW_TYPE_PSP_DBG_DRV: "dbg_drv",
        ucode.PSP_FW_TYPE_PSP_RAS_DRV: "ras_drv",
        ucode.PSP_FW_TYPE_PSP_IPKEYMGR_DRV: "ipkeymgr_drv",
    },
    "ta": {
        ucode.TA_FW_TYPE_PSP_ASD: "asd",
        ucode.TA_FW_TYPE_PSP_XGMI: "xgmi",
        ucode.TA_FW_TYPE_PSP_RAS: "ras",
        ucode.TA_FW_TYPE_PSP_HDCP: "hdcp",
        ucode.TA_FW_TYPE_PSP_DTM: "dtm",
        ucode.TA_FW_TYPE_PSP_RAP: "rap",
        ucode.TA_FW_TYPE_PSP_SECUREDISPLAY: "securedisplay",
    },
}
CRC_RULES = ("file", "payload", "no known rule")


@dataclass(frozen=True, slots=True)
class Section:
    """A range of bytes that the header describes.

    `number` is the type of a packed PSP part or the id of a power table, else None.
    """

    name: str
    offset_bytes: int
    size_bytes: int
    version: int | None = None
    number: int | None = None
    inside: bool = False

    @property
    def end_bytes(self) -> int:
        return self.offset_bytes + self.size_bytes


@dataclass(frozen=True, slots=True)
class Image:
    """A checked file. `fields` are the header's, `header.crc32` and others those of its common part.

    Empty sections are left out.
    """

    name: str
    kind: str
    header_version: tuple[int, int]
    ip_version: tuple[int, int]
    version: int
    fields: Fields = field(repr=False)
    sections: tuple[Section, ...] = field(repr=False)
    blob: bytes = field(repr=False)

    def number(self, name: str) -> int:
        """Return a header field that is an integer."""
        value = self.fields[name]
        assert isinstance(value, int)  # headers hold nothing else
        return value

    def section(self, name: str) -> Section | None:
        """Return the section of that name, or None if the file has none."""
        return next((section for section in self.sections if section.name == name), None)

    def data(self, section: Section) -> bytes:
        """Return a section's bytes."""
        return self.blob[section.offset_bytes : section.end_bytes]

    @property
    def crc32(self) -> int:
        """The CRC in the header; see `crc_rule`."""
        return self.number("header.crc32")

    @property
    def crc_rule(self) -> str:
        """What the header's CRC covers: one of `CRC_RULES`."""
        start = self.number(CODE)
        payload = memoryview(self.blob)[start : start + self.number("header.ucode_size_bytes")]
        for rule, covered in zip(CRC_RULES, (memoryview(self.blob)[COMMON_BYTES:], payload), strict=False):
            if zlib.crc32(covered) == self.crc32:
                return rule
        return CRC_RULES[-1]


def kind_of(name: str) -> str:
    """Return a file's kind from its name (`gc_11_0_0_mes_2.bin` is "mes").

    Raises `FirmwareError` for a name without a known kind.
    """
    stem = re.sub(r"\.bin(\.xz|\.zst)?$", "", name.rpartition("/")[2])
    words = re.split(r"[_\d]+", stem)
    for length in (2, 1):  # "uni_mes" before "mes"
        for end in range(len(words), length - 1, -1):
            kind = KIND_OF.get("_".join(words[end - length : end]))
            if kind is not None:
                return kind
    raise FirmwareError(f"{name}: the name contains no kind of firmware; known: {', '.join(sorted(KIND_OF))}")


def parse(blob: bytes, name: str, kind: str | None = None) -> Image:
    """Read and check an image; `kind` is one of `CONTAINERS`, by default taken from `name`.

    Raises `FirmwareError` for an image that is truncated, too long or of another kind or version, and for sections
    outside the file or over one another. The message gives file and byte.
    """
    kind = kind or kind_of(name)
    if kind not in CONTAINERS:
        raise ValueError(f"no kind of firmware is called {kind}; known: {', '.join(CONTAINERS)}")
    if len(blob) > MAX_BYTES:
        raise FirmwareError(f"{name}: {len(blob)} bytes are more than any firmware has ({MAX_BYTES})")
    common = read(ucode.common_firmware_header, blob, 0, name, "the common header")
    if common["size_bytes"] != len(blob):
        raise FirmwareError(
            f"{name}: the header at byte 0 says {integer(common, 'size_bytes')} bytes, the image has {len(blob)}"
        )
    version = _pair(common, "header_version")
    container = CONTAINERS[kind].get(version)
    if container is None:
        known = ", ".join(f"{major}.{minor}" for major, minor in CONTAINERS[kind])
        raise FirmwareError(f"{name}: byte 8 says header version {version[0]}.{version[1]}; {kind} images have {known}")
    what = f"the {kind} header {version[0]}.{version[1]}"
    fields = read(container.header, blob, 0, name, what)
    if container.header is ucode.common_firmware_header:
        fields = {f"header.{key}": value for key, value in fields.items()}
    head_bytes = container.header.SIZE
    sections: list[Section] = []
    for cut in container.cuts:
        sections.append(_place(cut, fields, sections))
    if container.packed:
        listed, head_bytes = _packed(container, fields, blob, name, kind)
        sections += listed
    if container.tables:
        sections += _power_tables(fields, blob, name)
    present = tuple(section for section in sections if section.size_bytes)
    _check(present, head_bytes, len(blob), name)
    ip_version = _pair(common, "ip_version")
    return Image(name, kind, version, ip_version, integer(common, "ucode_version"), fields, present, blob)


def _pair(fields: Fields, stem: str) -> tuple[int, int]:
    return integer(fields, f"{stem}_major"), integer(fields, f"{stem}_minor")


def _place(cut: Cut, fields: Fields, earlier: list[Section]) -> Section:
    start = integer(fields, CODE) if cut.base == CODE else 0
    if cut.base not in (FILE, CODE):
        base = next(section for section in earlier if section.name == cut.base)
        start = base.end_bytes if cut.behind else base.offset_bytes
    if cut.at is not None:
        start += integer(fields, cut.at) * cut.unit
    version = integer(fields, cut.version) if cut.version is not None else None
    return Section(cut.name, start, integer(fields, cut.size) * cut.unit, version, inside=cut.inside)


def _packed(container: Container, fields: Fields, blob: bytes, name: str, kind: str) -> tuple[list[Section], int]:
    """Return the sections of a packed image, and where their list ends. Names in the second set end in `_aux`."""
    count = integer(fields, container.packed)
    if count >= ucode.UCODE_MAX_PSP_PACKAGING:
        limit = ucode.UCODE_MAX_PSP_PACKAGING - 1
        raise FirmwareError(f"{name}: byte {COMMON_BYTES} counts {count} packed parts; an image has at most {limit}")
    descriptor = ucode.psp_fw_bin_desc
    start = integer(fields, CODE)
    sections: list[Section] = []
    first_aux = count - integer(fields, "psp_aux_fw_bin_index") if "psp_aux_fw_bin_index" in fields else count
    if first_aux < 0:
        raise FirmwareError(f"{name}: byte 36 puts the second set at part {count - first_aux} of {count}")
    at = container.header.SIZE
    for index in range(count):
        row = read(descriptor, blob, at, name, f"the description of packed part {index}")
        at += descriptor.SIZE
        number = integer(row, "fw_type")
        called = PACKED[kind].get(number, f"type_{number}") + ("_aux" if index >= first_aux else "")
        if number in PACKED[kind] and any(section.name == called for section in sections):
            raise FirmwareError(
                f"{name}: byte {at - descriptor.SIZE} lists a second {called}; the image does not say which to send"
            )
        place = start + integer(row, "offset_bytes")
        sections.append(Section(called, place, integer(row, "size_bytes"), integer(row, "fw_version"), number))
    return sections, at


def _power_tables(fields: Fields, blob: bytes, name: str) -> list[Section]:
    count, at, sections = integer(fields, "pptable_count"), integer(fields, "pptable_entry_offset"), []
    if count > MAX_TABLES:
        raise FirmwareError(f"{name}: byte 36 counts {count} power tables; an image has at most {MAX_TABLES}")
    for index in range(count):
        row = read(
            PPTABLE_ENTRY, blob, at + index * PPTABLE_ENTRY.sizeof(), name, f"the description of power table {index}"
        )
        number = integer(row, "id")
        sections.append(
            Section(f"pptable_{number}", integer(row, "ppt_offset_bytes"), integer(row, "ppt_size_bytes"), None, number)
        )
    return sections


def _check(sections: tuple[Section, ...], head_bytes: int, size_bytes: int, name: str) -> None:
    for section in sections:
        if section.offset_bytes < head_bytes:
            raise FirmwareError(
                f"{name}: {section.name} begins at byte {section.offset_bytes}, inside the header of {head_bytes} bytes"
            )
        if section.end_bytes > size_bytes:
            raise FirmwareError(f"{name}: {section.name} ends at byte {section.end_bytes}, the image at {size_bytes}")
    apart = sorted((section for section in sections if not section.inside), key=lambda one: one.offset_bytes)
    for first, second in pairwise(apart):
        if second.offset_bytes < first.end_bytes:
            raise FirmwareError(
                f"{name}: {second.name} begins at byte {second.offset_bytes}, inside {first.name}, which ends at {first.end_bytes}"
            )
    for section in sections:
        if section.inside and not any(
            one.offset_bytes <= section.offset_bytes and section.end_bytes <= one.end_bytes for one in apart
        ):
            raise FirmwareError(
                f"{name}: {section.name}, bytes {section.offset_bytes} to {section.end_bytes}, is outside the code of the image"
            )

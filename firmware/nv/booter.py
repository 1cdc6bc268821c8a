"""The booters, `booter_load-535.113.01.bin` and `booter_unload-…`: signed programs of the SEC2 falcon, which put GSP-RM
into protected memory and start it, and which take that down.

A card up to GA100 loads code in two parts: unsigned code that enters signed code. From GA102 on the falcon's boot ROM
checks the signed part itself. Both come in the same file. Source: nouveau include/nvfw/hs.h; gsp/tu102.c,
tu102_gsp_booter_ctor; gsp/ga102.c, ga102_gsp_booter_ctor; nova-core booter.rs; OGKM kernel_gsp_booter.c,
s_allocateUcodeFromBinArchive; kernel_gsp_falcon_tu102.c, s_prepareHsFalconDirect.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from construct import Int32ul
from construct import Struct as Layout

from ringup.errors import FirmwareError
from ringup.firmware.layouts import Fields, integer, read, size_bytes
from ringup.firmware.nv.containers import Container, Span, check_apart, check_inside, cut, open_container, rounded_up
from ringup.firmware.nv.ucode import FalconUcode, Part

MAX_SIGNATURES = 15  # NVIDIA's extract-firmware script takes as many
MAX_ENGINE_MASK, MAX_UCODE_ID = 0xFFFF, 0xFF  # BROM_ENGIDMASK has more bits, the fuses' engines do not
MAX_SIGNATURE_BYTES = 4096

HS_HEADER = Layout(  # nvfw_hs_header_v2
    "sig_prod_offset" / Int32ul,
    "sig_prod_size" / Int32ul,
    # Offsets in the file of one number each, or of the three of META.
    "patch_loc" / Int32ul,
    "patch_sig" / Int32ul,
    "meta_data_offset" / Int32ul,
    "meta_data_size" / Int32ul,
    "num_sig" / Int32ul,
    "header_offset" / Int32ul,
    "header_size" / Int32ul,
)
NUMBER = Layout("value" / Int32ul)
META = Layout("fuse_ver" / Int32ul, "engine_id" / Int32ul, "ucode_id" / Int32ul)
LOAD_HEADER = Layout(  # nvfw_hs_load_header_v2 with its first application
    "os_code_offset" / Int32ul,
    "os_code_size" / Int32ul,
    "os_data_offset" / Int32ul,
    "os_data_size" / Int32ul,
    "num_apps" / Int32ul,
    "app_code_offset" / Int32ul,
    "app_code_size" / Int32ul,
)


@dataclass(frozen=True, slots=True)
class Booter:
    """A checked booter. Offsets are bytes in `image`; `fuse_version` is the newest version that has a signature."""

    name: str
    image: bytes = field(repr=False)
    os_code: Span
    os_data: Span
    app_code: Span
    signatures: tuple[bytes, ...] = field(repr=False)
    patch_offset_bytes: int
    fuse_version: int
    engine_id_mask: int
    ucode_id: int

    def ucode(self, *, boot_from_hs: bool) -> FalconUcode:
        """Return the program for a falcon whose boot ROM checks signatures (`boot_from_hs`, from GA102 on), or for an
        older one.
        """
        os_code, app, data = self.os_code, self.app_code, self.os_data
        if boot_from_hs:
            non_secure = None
            secure = Part(app.offset_bytes, app.size_bytes, 0, app.offset_bytes)
            boot = app.offset_bytes
        else:
            non_secure = Part(os_code.offset_bytes, os_code.size_bytes, 0, os_code.offset_bytes)
            behind = rounded_up(os_code.size_bytes)
            secure = Part(app.offset_bytes, app.size_bytes, behind, app.offset_bytes)
            boot = os_code.offset_bytes
        return FalconUcode(
            self.name,
            self.image.ljust(rounded_up(len(self.image)), b"\0"),
            non_secure,
            secure,
            Part(data.offset_bytes, data.size_bytes, 0),
            boot,
            self.signatures,
            self.patch_offset_bytes,
            self.patch_offset_bytes - data.offset_bytes,
            self.engine_id_mask,
            self.ucode_id,
        )


def parse(blob: bytes, name: str) -> Booter:
    """Read and check a booter's file.

    Raises `FirmwareError`, with the byte or the number, for a truncated file, another container, a part outside the
    image or over another one, and for a signature that does not fit its place.
    """
    box = open_container(blob, name)
    head = read(HS_HEADER, blob, box.header_offset_bytes, name, "the signed program's header")
    load = read(LOAD_HEADER, blob, integer(head, "header_offset"), name, "the load header")
    apps = integer(load, "num_apps")
    if apps != 1:
        raise FirmwareError(f"{name}: the load header counts {apps} applications; a booter has 1")
    patch = _number(blob, head, "patch_loc", name)
    meta = read(META, blob, integer(head, "meta_data_offset"), name, "the signatures' metadata")
    if integer(head, "meta_data_size") != size_bytes(META):
        raise FirmwareError(
            f"{name}: the signatures' metadata has {integer(head, 'meta_data_size')} bytes, not {size_bytes(META)}"
        )
    _check_headers(box, head, name)
    signatures = _signatures(box, head, name)
    os_code, os_data, app = (
        Span(f"the {what}", integer(load, f"{part}_offset"), integer(load, f"{part}_size"))
        for part, what in (
            ("os_code", "unsigned code"),
            ("os_data", "data"),
            ("app_code", "signed code"),
        )
    )
    check_inside((os_code, os_data, app), len(box.data), name, "the image")
    check_apart((os_code, os_data, app), name)
    for span in (os_data, app):
        if not span.size_bytes:
            raise FirmwareError(f"{name}: the load header says that {span.name} has no bytes")
    if not os_data.offset_bytes <= patch <= os_data.end_bytes - len(signatures[0]):
        raise FirmwareError(
            f"{name}: the signature goes to bytes {patch} to {patch + len(signatures[0])} of the image,"
            f" the data has bytes {os_data.offset_bytes} to {os_data.end_bytes}"
        )
    for field_name, limit in (("engine_id", MAX_ENGINE_MASK), ("ucode_id", MAX_UCODE_ID)):
        if integer(meta, field_name) > limit:
            raise FirmwareError(f"{name}: {field_name} is {integer(meta, field_name):#x}, more than {limit:#x}")
    return Booter(
        name,
        box.data,
        os_code,
        os_data,
        app,
        signatures,
        patch,
        integer(meta, "fuse_ver"),
        integer(meta, "engine_id"),
        integer(meta, "ucode_id"),
    )


def _number(blob: bytes, head: Fields, field_name: str, name: str) -> int:
    """Return the number at the offset that a field of the header gives."""
    return integer(read(NUMBER, blob, integer(head, field_name), name, f"the number of {field_name}"), "value")


def _check_headers(box: Container, head: Fields, name: str) -> None:
    """Check that headers, signatures and image do not overlap."""
    spans = [
        *box.spans,
        Span("the signed program's header", box.header_offset_bytes, size_bytes(HS_HEADER)),
        Span("the load header", integer(head, "header_offset"), size_bytes(LOAD_HEADER)),
        Span("the signatures' metadata", integer(head, "meta_data_offset"), size_bytes(META)),
    ]
    spans += [Span(f"the number of {one}", integer(head, one), 4) for one in ("patch_loc", "patch_sig", "num_sig")]
    start = integer(head, "sig_prod_offset") + _number(box.blob, head, "patch_sig", name)
    spans.append(Span("the list of signatures", start, integer(head, "sig_prod_size")))
    check_apart(spans, name)


def _signatures(box: Container, head: Fields, name: str) -> tuple[bytes, ...]:
    """Cut the list of signatures, all of one size; patch_sig is where in the list the first one begins."""
    count, total = _number(box.blob, head, "num_sig", name), integer(head, "sig_prod_size")
    if not 1 <= count <= MAX_SIGNATURES:
        raise FirmwareError(f"{name}: the file counts {count} signatures; valid are 1 to {MAX_SIGNATURES}")
    if not total or total % count or total // count % 4 or total // count > MAX_SIGNATURE_BYTES:
        raise FirmwareError(f"{name}: {total} bytes are not {count} signatures of one size")
    start = integer(head, "sig_prod_offset") + _number(box.blob, head, "patch_sig", name)
    listed = cut(box.blob, start, total, name, "the list of signatures")
    each = total // count
    return tuple(listed[at : at + each] for at in range(0, total, each))

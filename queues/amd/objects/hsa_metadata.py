"""Metadata of AMDHSA code objects v4 to v6: the compiler's description of each kernel and its arguments. It is a
MessagePack map in a note of the ELF file.

Source: LLVM AMDGPUUsage, "Code Object Metadata" v3 to v6.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ringup.errors import CompileError, NotSupported

NOTE_OWNER, NOTE_KIND = "AMDGPU", 32  # NT_AMDGPU_METADATA
MAJOR = 1
# the start of a target's name
TRIPLE = "amdgcn-amd-amdhsa--"
MAX_KERNARG_BYTES = 1 << 20
MAX_GROUP = 1 << 16

# the kinds that hold an address; the last four hold the address of a descriptor
ADDRESSES = (
    "global_buffer",
    "sampler",
    "image",
    "pipe",
    "queue",
)
BY_VALUE, DYNAMIC_LDS = "by_value", "dynamic_shared_pointer"
HIDDEN = "hidden_"


class Argument(NamedTuple):
    """One argument: its place among the kernel arguments, and its kind. Only OpenCL's compiler sets `type_name`."""

    kind: str
    offset: int
    size_bytes: int
    name: str = ""
    type_name: str = ""
    address_space: str = ""
    pointee_align: int = 1
    read_only: bool = False


class KernelMetadata(NamedTuple):
    """One kernel as the compiler describes it. Sizes in bytes; `max_group_size` and `required_group_size` in
    work-items.
    """

    name: str
    symbol: str
    kernarg_bytes: int
    kernarg_align: int
    lds_bytes: int
    scratch_bytes: int
    max_group_size: int
    wave_size: int
    required_group_size: tuple[int, int, int] | None = None
    cluster: tuple[int, int, int] | None = None
    uniform_groups: bool = False
    dynamic_stack: bool = False
    sgprs: int = 0
    vgprs: int = 0
    agprs: int = 0
    arguments: tuple[Argument, ...] = ()


class _Map:
    """A map of the metadata, read by key, type and range."""

    def __init__(self, values: object, what: str) -> None:
        if not isinstance(values, dict):
            raise CompileError(f"{what}: its metadata is no map but {type(values).__name__}; build it again")
        self.values: Mapping[object, Any] = values
        self.what = what

    def bad(self, key: str, why: str) -> CompileError:
        return CompileError(f"{self.what}: metadata {key} {why}; build it again")

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        value = self.values.get(key, default)
        if value is None:
            raise self.bad(key, "is missing")
        if type(value) is not kind and not (kind is int and type(value) is bool):
            raise self.bad(key, f"is no {kind.__name__} but {type(value).__name__}")
        return value

    def number(self, key: str, most: int = 0xFFFF_FFFF, default: int | None = None, least: int = 0) -> int:
        value = int(self.get(key, int, default))
        if not least <= value <= most:
            raise self.bad(key, f"is {value}, outside {least} to {most}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        return str(self.get(key, str, default))

    def triple(self, key: str) -> tuple[int, int, int] | None:
        values = self.get(key, list, [])
        if not values:
            return None
        if len(values) != 3 or not all(type(value) is int and 1 <= value <= MAX_GROUP for value in values):
            raise self.bad(key, f"is {values}, not three counts")
        return values[0], values[1], values[2]


def unpack(data: bytes, what: str) -> object:
    """Return the decoded contents of a note, of any type. Raises `CompileError` for a damaged note."""
    # imported here: packing kernel arguments does not need it
    import msgpack

    try:
        return msgpack.unpackb(data, strict_map_key=True)
    except (ValueError, msgpack.exceptions.UnpackException, RecursionError) as error:
        # the causes: no UTF-8, nested too deep, truncated, bytes after the end
        raise CompileError(f"{what}: its metadata is no MessagePack ({error}); build it again") from error


def parse(data: bytes, what: str) -> tuple[str, tuple[KernelMetadata, ...]]:
    """Read a note. Return the target's name and the kernels. Raises `CompileError` for a damaged note, `NotSupported`
    for another version.
    """
    top = _Map(unpack(data, what), what)
    version = top.get("amdhsa.version", list)
    if not version or version[0] != MAJOR:
        raise NotSupported(f"{what}: metadata of version {version}; 1.x is known")
    kernels = tuple(_kernel(_Map(kernel, what)) for kernel in top.get("amdhsa.kernels", list))
    if len({kernel.name for kernel in kernels}) != len(kernels):
        raise CompileError(f"{what}: two kernels of one name; build it again")
    return top.text("amdhsa.target", ""), kernels


def _kernel(of: _Map) -> KernelMetadata:
    name = of.text(".name")
    of.what = f"{of.what}, kernel {name[:80]}"
    kernarg_bytes = of.number(".kernarg_segment_size", MAX_KERNARG_BYTES)
    align = of.number(".kernarg_segment_align", 4096, least=1)
    wave_size = of.number(".wavefront_size", 64)
    if align & (align - 1) or wave_size not in (32, 64):
        raise of.bad(".kernarg_segment_align", f"is {align}, .wavefront_size {wave_size}")
    return KernelMetadata(
        name=name,
        symbol=of.text(".symbol"),
        kernarg_bytes=kernarg_bytes,
        kernarg_align=align,
        lds_bytes=of.number(".group_segment_fixed_size"),
        scratch_bytes=of.number(".private_segment_fixed_size"),
        max_group_size=of.number(".max_flat_workgroup_size", MAX_GROUP, least=1),
        wave_size=wave_size,
        required_group_size=of.triple(".reqd_workgroup_size"),
        cluster=of.triple(".cluster_dims"),
        uniform_groups=bool(of.number(".uniform_work_group_size", 1, 0)),
        dynamic_stack=of.get(".uses_dynamic_stack", bool, default=False),
        sgprs=of.number(".sgpr_count", default=0),
        vgprs=of.number(".vgpr_count", default=0),
        agprs=of.number(".agpr_count", default=0),
        arguments=_arguments(of, kernarg_bytes),
    )


def _arguments(of: _Map, kernarg_bytes: int) -> tuple[Argument, ...]:
    """Read the arguments. They must be in order, may not overlap, and must be inside the kernel arguments."""
    found, end = [], 0
    for number, values in enumerate(of.get(".args", list, [])):
        each = _Map(values, f"{of.what}, argument {number}")
        argument = Argument(
            kind=each.text(".value_kind"),
            offset=each.number(".offset"),
            size_bytes=each.number(".size"),
            name=each.text(".name", ""),
            type_name=each.text(".type_name", ""),
            address_space=each.text(".address_space", ""),
            pointee_align=each.number(".pointee_align", 1 << 16, 1, least=1),
            read_only=each.text(".actual_access", each.text(".access", "")) == "read_only"
            or bool(each.number(".is_const", 1, 0)),
        )
        if argument.offset < end or argument.offset + argument.size_bytes > kernarg_bytes:
            raise each.bad(
                ".offset",
                f"puts bytes {argument.offset} to {argument.offset + argument.size_bytes} over the one before"
                f" or past the {kernarg_bytes} bytes of kernel arguments",
            )
        end = argument.offset + argument.size_bytes
        found.append(argument)
    return tuple(found)

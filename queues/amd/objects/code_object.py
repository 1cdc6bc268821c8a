"""AMDHSA code objects (v4 to v6): GPU programs as compilers write them. Bytes in; an image for the card's memory, its
relocations and its kernels out.

To load one, `parse` it for the chip, allocate `image_bytes` at a multiple of `image_align`, and write
`relocate(base_va)` there. A kernel then starts at base_va + `entry_offset` with its rsrc words and `user_sgprs`.
Source: LLVM AMDGPUUsage, "ELF Code Object", "Relocation Records" and "Kernel Descriptor".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ringup.autogen.amd.gc_compute import COMPUTE_PGM_RSRC2
from ringup.errors import CompileError, NotSupported
from ringup.queues.amd.objects import elf_image, fat_binary, hsa_metadata, processors
from ringup.queues.amd.objects import kernel_descriptor as kd
from ringup.queues.amd.objects.elf import EM_AMDGPU, OS_ABI_HSA, PAGE_BYTES
from ringup.queues.amd.objects.hsa_metadata import Argument, KernelMetadata
from ringup.queues.amd.objects.kernel_descriptor import KERNEL_CODE_PROPERTIES, UserSgprs
from ringup.queues.amd.objects.processors import Target

__all__ = ["Argument", "CodeObject", "Kernel", "parse", "raw"]

# ELFABIVERSION_AMDGPU_HSA_V4 to V6: the code object version
VERSIONS = {2: 4, 3: 5, 4: 6}
MAX_GROUP_SIZE = 1024
# families of processors
WAVE32_SINCE, IDS_IN_TRAP_REGISTERS = 10, 12
# the unit of COMPUTE_PGM_RSRC2.lds_size
LDS_UNIT_BYTES = {"gfx950": 1280}
OTHER_LDS_UNIT_BYTES = 512
# GUESS: HIP's default for a work-item. Up to v4, LLVM assumed 16 KiB, which is 3 GiB on a navi31
STACK_BYTES = 1 << 10
MASK32, MASK64 = 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF


@dataclass(frozen=True)
class Relocation:
    """A row of the relocation table: the width of the field, its value, whether it is signed. `checked`: a value that
    the field cannot hold is an error.
    """

    size_bytes: int
    # its arguments: symbol or base (S, B), addend (A), place (P)
    value: Callable[[int, int, int], int]
    checked: bool = False
    signed: bool = False


RELOCATIONS = {
    1: Relocation(4, lambda s, a, p: (s + a) & MASK32),  # R_AMDGPU_ABS32_LO
    2: Relocation(4, lambda s, a, p: (s + a) >> 32 & MASK32),  # R_AMDGPU_ABS32_HI
    3: Relocation(8, lambda s, a, p: (s + a) & MASK64),  # R_AMDGPU_ABS64
    4: Relocation(4, lambda s, a, p: s + a - p, checked=True, signed=True),  # R_AMDGPU_REL32
    5: Relocation(8, lambda s, a, p: (s + a - p) & MASK64),  # R_AMDGPU_REL64
    6: Relocation(4, lambda s, a, p: s + a, checked=True),  # R_AMDGPU_ABS32
    10: Relocation(4, lambda s, a, p: (s + a - p) & MASK32),  # R_AMDGPU_REL32_LO
    11: Relocation(4, lambda s, a, p: (s + a - p) >> 32 & MASK32),  # R_AMDGPU_REL32_HI
    13: Relocation(8, lambda s, a, p: (s + a) & MASK64),  # R_AMDGPU_RELATIVE64: B + A
    14: Relocation(2, lambda s, a, p: (s + a - p - 4) // 4, checked=True, signed=True),  # R_AMDGPU_REL16
}
R_NONE, R_RELATIVE64 = 0, 13


@dataclass(frozen=True)
class Kernel:
    """One kernel of a code object. Offsets count from the start of the image. Sizes are in bytes. `arguments` is None
    if the object does not describe them.

    `user_sgprs`: the values that the dispatcher writes to USER_DATA_0 and the registers after it. `system_sgprs`: the
    values that the hardware writes to the registers after those.
    """

    name: str
    target: Target
    entry_offset: int
    descriptor_offset: int | None
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: KERNEL_CODE_PROPERTIES
    user_sgprs: tuple[UserSgprs, ...]
    kernarg_bytes: int
    kernarg_align: int
    lds_bytes: int
    scratch_bytes_per_item: int
    wave_size: int
    max_group_size: int = MAX_GROUP_SIZE
    required_group_size: tuple[int, int, int] | None = None
    cluster: tuple[int, int, int] | None = None
    uniform_groups: bool = False
    dynamic_stack: bool = False
    sgprs: int = 0
    vgprs: int = 0
    agprs: int = 0
    arguments: tuple[Argument, ...] | None = None
    # the kernel begins where the code ends: there is no code to run
    empty: bool = False

    @property
    def wave32(self) -> bool:
        """Return whether waves have 32 lanes."""
        return self.wave_size == 32

    @property
    def system_sgprs(self) -> tuple[str, ...]:
        """Return the values that the hardware writes to the SGPRs after the user SGPRs, one dword each. From gfx12 on
        it uses trap registers instead.
        """
        if self.target.family >= IDS_IN_TRAP_REGISTERS:
            return ()
        word = COMPUTE_PGM_RSRC2(self.rsrc2)
        rows = (
            (word.tgid_x_en, "workgroup_id_x"),
            (word.tgid_y_en, "workgroup_id_y"),
            (word.tgid_z_en, "workgroup_id_z"),
            (word.tg_size_en, "workgroup_info"),
        )
        return tuple(name for enabled, name in rows if enabled)

    def rsrc2_with_lds(self, dynamic_lds_bytes: int = 0) -> int:
        """Return COMPUTE_PGM_RSRC2 with the LDS size of a launch: the dispatcher fills this field."""
        unit = LDS_UNIT_BYTES.get(self.target.processor, OTHER_LDS_UNIT_BYTES)
        units = -(-(self.lds_bytes + dynamic_lds_bytes) // unit)
        return int(COMPUTE_PGM_RSRC2(self.rsrc2).replace(lds_size=units))


@dataclass(frozen=True)
class CodeObject:
    """A program: its image as built for address 0, the relocations for other addresses, its kernels by name."""

    what: str
    target: Target
    version: int
    image: bytes
    image_align: int
    pieces: tuple[elf_image.Piece, ...]
    kernels: Mapping[str, Kernel]
    symbols: Mapping[str, elf_image.Symbol] = field(default_factory=dict)
    relocations: tuple[elf_image.Relocation, ...] = ()

    @property
    def image_bytes(self) -> int:
        """Return how many bytes of memory the image needs."""
        return len(self.image)

    @property
    def undefined(self) -> tuple[str, ...]:
        """Return the names that another object must define before this one can be placed."""
        symbols = {
            r.symbol.name for r in self.relocations if r.symbol and r.symbol.offset is None and not r.symbol.weak
        }
        return tuple(sorted(symbols))

    def check_runs_on(self, chip: Target | str) -> None:
        """Raise `WrongTarget` if the object does not run on a chip such as `gfx1100` or `gfx942:sramecc+:xnack-`."""
        self.target.check_runs_on(chip, self.what)

    def kernel(self, name: str) -> Kernel:
        """Return a kernel by name. A `ValueError` for an unknown name lists the kernels."""
        if name not in self.kernels:
            raise ValueError(f"{self.what} has no kernel {name!r}; it has {', '.join(self.kernels) or 'none'}")
        return self.kernels[name]

    def relocate(self, base_va: int, externals: Mapping[str, int] | None = None) -> bytes:
        """Return the image for the address `base_va`, a multiple of `image_align`. `externals` holds the addresses of
        undefined symbols.
        """
        if base_va % self.image_align or base_va < 0:
            raise ValueError(f"{self.what} must lie at a multiple of {self.image_align:#x}, not at {base_va:#x}")
        if not self.relocations:
            return self.image
        image = bytearray(self.image)
        for relocation in self.relocations:
            self._apply(image, relocation, base_va, externals or {})
        return bytes(image)

    def _apply(
        self, image: bytearray, relocation: elf_image.Relocation, base_va: int, externals: Mapping[str, int]
    ) -> None:
        row = RELOCATIONS[relocation.kind]
        start = self._address(relocation.symbol, base_va, externals)
        value = row.value(start, relocation.addend, base_va + relocation.place)
        bits = 8 * row.size_bytes
        least, most = (-1 << bits - 1, (1 << bits - 1) - 1) if row.signed else (0, (1 << bits) - 1)
        if row.checked and not least <= value <= most:
            raise CompileError(
                f"{self.what}: relocation {relocation.kind} at {relocation.place:#x} needs {value:#x},"
                f" which {row.size_bytes} bytes cannot hold; load it at a lower address, or build it"
                " position-independent"
            )
        field_bytes = value.to_bytes(row.size_bytes, "little", signed=row.signed)
        image[relocation.place : relocation.place + row.size_bytes] = field_bytes

    def _address(self, symbol: elf_image.Symbol | None, base_va: int, externals: Mapping[str, int]) -> int:
        if symbol is None:
            return base_va
        if symbol.offset is not None:
            return symbol.offset if symbol.absolute else base_va + symbol.offset
        if symbol.name in externals:
            return externals[symbol.name]
        if symbol.weak:
            return 0
        raise CompileError(f"{self.what}: {symbol.name} is defined nowhere; link it in or give its address")


def parse(
    data: bytes,
    what: str = "code object",
    chip: Target | str | None = None,
    *,
    kernel: str = "",
    stack_bytes: int = STACK_BYTES,
) -> CodeObject:
    """Read a code object. `what` is its name in errors. `chip`: the chip that will run it.

    Of a fat binary (a bundle, or a program or library for the host that contains bundles), read the object for the
    chip. If there are several for the chip, read the one with the kernel `kernel`.

    `stack_bytes`: the scratch memory of a work-item that is added for kernels with a stack of unknown depth
    (`dynamic_stack`): recursion, calls through pointers.

    Raises `CompileError` for a damaged file, `NotSupported` for other formats, `WrongTarget` for code that is built for
    another chip.
    """
    if fat_binary.is_fat(data):
        if chip is None:
            targets = dict.fromkeys(one.target for one in fat_binary.members(data, what))
            raise CompileError(f"{what} holds code objects for {', '.join(targets)}: say for which chip one is wanted")
        data = bytes(fat_binary.choose(data, what, chip, kernel).data)
    file = elf_image.read(data, what)
    if file.machine != EM_AMDGPU or file.os_abi != OS_ABI_HSA:
        raise NotSupported(
            f"{what}: machine {file.machine}, OS ABI {file.os_abi}; AMDHSA objects have {EM_AMDGPU} and {OS_ABI_HSA}"
        )
    if file.abi_version not in VERSIONS:
        raise NotSupported(f"{what}: ABI version {file.abi_version}; code objects v4 to v6 (2 to 4) are read")
    target = processors.of_flags(file.flags, what)
    if chip is not None:
        target.check_runs_on(chip, what)
    for relocation in file.relocations:
        _check_relocation(relocation, file, what)
    relocations = tuple(relocation for relocation in file.relocations if relocation.kind != R_NONE)
    ends = {piece.offset + piece.size_bytes for piece in file.pieces if piece.executable}
    kernels = {
        kernel.name: replace(kernel, empty=True) if kernel.entry_offset in ends else kernel
        for kernel in _kernels(file, target, what, stack_bytes)
    }
    return CodeObject(
        what,
        target,
        VERSIONS[file.abi_version],
        file.image,
        file.align,
        file.pieces,
        kernels,
        file.symbols,
        relocations,
    )


def raw(
    code: bytes,
    target: str,
    *,
    rsrc1: int,
    rsrc2: int,
    rsrc3: int = 0,
    name: str = "kernel",
    user_sgprs: Sequence[str] = ("kernarg_segment_ptr",),
    wave_size: int = 32,
    kernarg_bytes: int = 0,
    lds_bytes: int = 0,
    scratch_bytes_per_item: int = 0,
    max_group_size: int = MAX_GROUP_SIZE,
    arguments: tuple[Argument, ...] | None = None,
) -> CodeObject:
    """Make a program from position-independent machine code. The code begins with its entry and needs no descriptor.

    `user_sgprs` are names of `kernel_descriptor.USER_SGPRS`. Raises a `ValueError` for values that are not possible.
    """
    unknown = [sgpr for sgpr in user_sgprs if sgpr not in kd.USER_SGPRS]
    if unknown or not code or wave_size not in (32, 64):
        raise ValueError(
            f"{name}: {len(code)} bytes of code, waves of {wave_size}, user SGPRs {unknown or 'known'};"
            f" user SGPRs are of {', '.join(kd.USER_SGPRS)}"
        )
    properties = KERNEL_CODE_PROPERTIES(
        enable_wavefront_size32=wave_size == 32, **{f"enable_sgpr_{sgpr}": 1 for sgpr in user_sgprs}
    )
    kernel = Kernel(
        name=name,
        target=processors.parse(target),
        entry_offset=0,
        descriptor_offset=None,
        rsrc1=rsrc1,
        rsrc2=rsrc2,
        rsrc3=rsrc3,
        properties=properties,
        user_sgprs=kd.user_sgprs(properties, rsrc2, name),
        kernarg_bytes=kernarg_bytes,
        kernarg_align=16,
        lds_bytes=lds_bytes,
        scratch_bytes_per_item=scratch_bytes_per_item,
        wave_size=wave_size,
        max_group_size=max_group_size,
        arguments=arguments,
    )
    piece = elf_image.Piece(0, len(code), executable=True, writable=False)
    return CodeObject(name, kernel.target, 0, bytes(code), PAGE_BYTES, (piece,), {name: kernel})


def _check_relocation(relocation: elf_image.Relocation, file: elf_image.Elf, what: str) -> None:
    if relocation.kind == R_NONE:
        return
    row = RELOCATIONS.get(relocation.kind)
    if row is None:
        raise NotSupported(f"{what}: relocation of type {relocation.kind}; link it first")
    if relocation.place + row.size_bytes > len(file.image):
        raise CompileError(f"{what}: a relocation at {relocation.place:#x} leaves the image; build it again")
    if (relocation.symbol is None) != (relocation.kind == R_RELATIVE64):
        raise CompileError(f"{what}: relocation of type {relocation.kind} with or without a symbol; build it again")


def _kernels(file: elf_image.Elf, target: Target, what: str, stack_bytes: int) -> list[Kernel]:
    notes = [
        note for note in file.notes if (note.owner, note.kind) == (hsa_metadata.NOTE_OWNER, hsa_metadata.NOTE_KIND)
    ]
    if len(notes) > 1:
        raise CompileError(f"{what}: {len(notes)} notes of metadata; build it again")
    if not notes:
        symbols = [symbol for symbol in file.symbols.values() if symbol.name.endswith(kd.DESCRIPTOR_SUFFIX)]
        return [_bare_kernel(symbol, file, target, what, stack_bytes) for symbol in symbols]
    _, described = hsa_metadata.parse(notes[0].text, what)
    return [_kernel(kernel, file, target, f"{what}, kernel {kernel.name[:80]}", stack_bytes) for kernel in described]


def _descriptor(symbol: elf_image.Symbol, file: elf_image.Elf, what: str) -> tuple[int, int, kd.KERNEL_DESCRIPTOR]:
    """Return the offsets of the descriptor and the entry, and the descriptor."""
    at = symbol.offset
    if at is None or symbol.absolute or at % kd.DESCRIPTOR_ALIGN or at + kd.DESCRIPTOR_BYTES > len(file.image):
        raise CompileError(
            f"{what}: its descriptor would lie at {at}, in an image of {len(file.image)} bytes; build it again"
        )
    word = kd.parse(file.image[at : at + kd.DESCRIPTOR_BYTES], what)
    entry = at + kd.entry_offset(word)
    # in an unlinked object the linker fills in the distance, by a REL64 relocation in the descriptor
    for relocation in file.relocations if not file.linked else ():
        if relocation.place == at + kd.ENTRY_FIELD_BYTE and relocation.symbol and relocation.symbol.offset is not None:
            entry = at + relocation.symbol.offset + relocation.addend - relocation.place
    if word.kernarg_size > hsa_metadata.MAX_KERNARG_BYTES:
        raise CompileError(
            f"{what}: {word.kernarg_size} bytes of arguments, above {hsa_metadata.MAX_KERNARG_BYTES}; build it again"
        )
    if entry % kd.ENTRY_ALIGN:
        raise CompileError(f"{what}: its entry at {entry:#x} is not aligned to {kd.ENTRY_ALIGN} bytes; build it again")
    # a kernel that the compiler found unreachable has no code. Its entry may be the end of the code
    if not any(piece.executable and 0 <= entry - piece.offset <= piece.size_bytes for piece in file.pieces):
        raise CompileError(f"{what}: its entry at {entry:#x} lies in no code; build it again")
    return at, entry, word


def _wave_size(word: KERNEL_CODE_PROPERTIES, target: Target) -> int:
    return 32 if target.family >= WAVE32_SINCE and word.enable_wavefront_size32 else 64


def _bare_kernel(symbol: elf_image.Symbol, file: elf_image.Elf, target: Target, what: str, stack_bytes: int) -> Kernel:
    """Make a kernel from its descriptor alone."""
    name = symbol.name.removesuffix(kd.DESCRIPTOR_SUFFIX)
    what = f"{what}, kernel {name[:80]}"
    at, entry, word = _descriptor(symbol, file, what)
    properties = KERNEL_CODE_PROPERTIES(word.kernel_code_properties)
    described = KernelMetadata(
        name, symbol.name, word.kernarg_size, 16, 0, 0, MAX_GROUP_SIZE, _wave_size(properties, target)
    )
    return _joined(described, at, entry, word, target, what, None, stack_bytes)


def _kernel(described: KernelMetadata, file: elf_image.Elf, target: Target, what: str, stack_bytes: int) -> Kernel:
    symbol = file.symbols.get(described.symbol)
    if symbol is None:
        raise CompileError(f"{what}: no symbol {described.symbol[:80]}; build it again")
    at, entry, word = _descriptor(symbol, file, what)
    wave_size = _wave_size(KERNEL_CODE_PROPERTIES(word.kernel_code_properties), target)
    if wave_size != described.wave_size:
        raise CompileError(
            f"{what}: waves of {described.wave_size} by its metadata, of {wave_size} by its descriptor; build it again"
        )
    return _joined(described, at, entry, word, target, what, described.arguments, stack_bytes)


def _joined(
    described: KernelMetadata,
    at: int,
    entry: int,
    word: kd.KERNEL_DESCRIPTOR,
    target: Target,
    what: str,
    arguments: tuple[Argument, ...] | None,
    stack_bytes: int,
) -> Kernel:
    """Make a kernel from its descriptor and its metadata. Where both give a size, the larger one is used.

    A stack of unknown depth is added to the scratch size of the compiler: from v5 on, the compiler does not count it.
    """
    properties = KERNEL_CODE_PROPERTIES(word.kernel_code_properties)
    dynamic_stack = described.dynamic_stack or bool(properties.uses_dynamic_stack)
    scratch_bytes = max(described.scratch_bytes, word.private_segment_fixed_size)
    return Kernel(
        name=described.name,
        target=target,
        entry_offset=entry,
        descriptor_offset=at,
        rsrc1=word.compute_pgm_rsrc1,
        rsrc2=word.compute_pgm_rsrc2,
        rsrc3=word.compute_pgm_rsrc3,
        properties=properties,
        user_sgprs=kd.user_sgprs(properties, word.compute_pgm_rsrc2, what),
        kernarg_bytes=max(described.kernarg_bytes, word.kernarg_size),
        kernarg_align=described.kernarg_align,
        lds_bytes=max(described.lds_bytes, word.group_segment_fixed_size),
        scratch_bytes_per_item=scratch_bytes + stack_bytes * dynamic_stack,
        wave_size=described.wave_size,
        max_group_size=described.max_group_size,
        required_group_size=described.required_group_size,
        cluster=described.cluster,
        uniform_groups=described.uniform_groups,
        dynamic_stack=dynamic_stack,
        sgprs=described.sgprs,
        vgprs=described.vgprs,
        agprs=described.agprs,
        arguments=arguments,
    )

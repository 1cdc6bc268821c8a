"""Code objects compared with the tools that made them: clang 19's objects, LLVM 22's reading of them, the linker's own
placement of relocations.
"""

import re
import struct
import subprocess

import pytest
from llvmlite import binding as llvm

from ringup.errors import CompileError, NotSupported, WrongTarget
from ringup.queues.amd.objects import code_object, processors
from ringup.queues.amd.objects.code_object import parse

SOURCE = """
typedef struct { int a; float b; char c[5]; } S;
__constant int lut[4] = {1, 2, 3, 4};
__kernel __attribute__((reqd_work_group_size(64, 2, 1))) void scale(__global float *o, __global const float *i, float s, int n) {
  int x = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  if (x < n) o[x] = i[x] * s;
}
__kernel void many(S s, uchar c, short h, double d, __global long *p, __local int *l, ulong u) {
  __local int fixed[32];
  fixed[__builtin_amdgcn_workitem_id_x() & 31] = c;
  l[__builtin_amdgcn_workitem_id_x()] = s.a + h + (int)u + lut[s.a & 3] + fixed[h & 31];
  p[0] = (long)d + l[3] + __builtin_amdgcn_workgroup_size_x();
}
"""
POINTERS = """
__constant int lut[4] = {1, 2, 3, 4};
__global int table[4] = {5, 6, 7, 8};
__global int *where = &table[2];
__kernel void ptr(__global int *p) { p[0] = *where + lut[p[1] & 3]; where = p; }
"""
NUMBERS = {  # a key of the metadata: our field
    ".kernarg_segment_size": "kernarg_bytes",
    ".kernarg_segment_align": "kernarg_align",
    ".group_segment_fixed_size": "lds_bytes",
    ".private_segment_fixed_size": "scratch_bytes_per_item",
    ".max_flat_workgroup_size": "max_group_size",
    ".wavefront_size": "wave_size",
    ".sgpr_count": "sgprs",
    ".vgpr_count": "vgprs",
}


@pytest.mark.parametrize("cpu", ["gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("version", [4, 5, 6])
def test_kernels_are_described_as_llvm_reads_them(compile_cl, llvm_tool, tmp_path, version, cpu):
    data = compile_cl(SOURCE, version=version, cpu=cpu)
    (tmp_path / "a.elf").write_bytes(data)
    text = llvm_tool("llvm-readobj", "--notes", "--dyn-symbols", str(tmp_path / "a.elf")).decode()
    program = parse(data)
    assert program.version == version
    assert program.target.processor == re.search(r"amdhsa.target: .*--(\w+)", text)[1] == cpu
    blocks = re.split(r"\n  - \.a", text)[1:]
    assert len(blocks) == len(program.kernels) == 2
    for block in blocks:
        kernel = program.kernel(re.search(r"\.name: +(\w+)\n", block)[1])
        for key, field in NUMBERS.items():
            assert getattr(kernel, field) == int(re.search(rf"\{key}: +(\d+)", block)[1]), key
        described = re.findall(
            r"\.offset: +(\d+)\n(?: +\.pointee_align: .*\n)? +\.size: +(\d+)\n(?: +\.type_name: +'?([^'\n]*)'?\n)?.*: +(\w+)\n",
            block,
        )
        seen = [(str(a.offset), str(a.size_bytes), a.type_name, a.kind) for a in kernel.arguments]
        assert seen == described
        descriptor = re.search(rf"Name: {kernel.name}\.kd .*\n +Value: (0x\w+)", text)[1]
        entry = re.search(rf"Name: {kernel.name} .*\n +Value: (0x\w+)", text)[1]
        assert (kernel.descriptor_offset, kernel.entry_offset) == (int(descriptor, 16), int(entry, 16))
    assert program.kernel("scale").required_group_size == (64, 2, 1)
    assert program.kernel("many").required_group_size is None


def test_the_entry_points_at_the_code(compile_cl, llvm_tool, tmp_path):
    data = compile_cl(SOURCE)
    (tmp_path / "a.elf").write_bytes(data)
    text = llvm_tool("llvm-objdump", "-d", "--disassemble-symbols=many", str(tmp_path / "a.elf")).decode()
    words = re.search(r"// \w+: ((?:[0-9A-F]{8} ?)+)", text)[1].split()  # of the first instruction
    first = b"".join(int(word, 16).to_bytes(4, "little") for word in words)
    program = parse(data)
    entry = program.kernel("many").entry_offset
    assert program.image[entry : entry + len(first)] == first
    code = next(piece for piece in program.pieces if piece.executable)
    assert code.offset <= entry < code.offset + code.size_bytes
    assert not code.writable


ASSEMBLY = """
.text
.globl k
.p2align 8
.type k,@function
k: s_endpgm
.rodata
.p2align 6
.amdhsa_kernel k
  .amdhsa_next_free_vgpr 9
  .amdhsa_next_free_sgpr 8
  .amdhsa_group_segment_fixed_size 1040
  .amdhsa_kernarg_size 24
  .amdhsa_wavefront_size32 {wave32}
  .amdhsa_user_sgpr_count 13
  .amdhsa_user_sgpr_dispatch_ptr 1
  .amdhsa_user_sgpr_queue_ptr 1
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_user_sgpr_dispatch_id 1
  .amdhsa_user_sgpr_private_segment_size 1
  .amdhsa_uses_dynamic_stack 1
  .amdhsa_enable_private_segment 1
  .amdhsa_system_sgpr_workgroup_id_x 1
  .amdhsa_system_sgpr_workgroup_id_z 1
  .amdhsa_system_sgpr_workgroup_info 1
  .amdhsa_inst_pref_size 3
.end_amdhsa_kernel
"""


def assembled(llvm_tool, text, target="gfx1100"):
    cpu, *features = target.split(":")
    argv = [f"-mattr={','.join(each[-1] + each[:-1] for each in features)}"] if features else []
    return llvm_tool(
        "llvm-mc", "-triple=amdgcn-amd-amdhsa", f"-mcpu={cpu}", "-filetype=obj", *argv, stdin=text.encode()
    )


@pytest.mark.parametrize("wave32", [0, 1])
def test_an_object_without_metadata_is_known_by_its_descriptor(llvm_tool, wave32):
    data = assembled(llvm_tool, ASSEMBLY.format(wave32=wave32))
    kernel = parse(data).kernel("k")
    assert [tuple(run) for run in kernel.user_sgprs] == [  # AMDGPUUsage, "SGPR Register Set Up Order"
        ("dispatch_ptr", 0, 2),
        ("queue_ptr", 2, 2),
        ("kernarg_segment_ptr", 4, 2),
        ("dispatch_id", 6, 2),
        ("private_segment_size", 8, 1),
    ]
    assert kernel.system_sgprs == ("workgroup_id_x", "workgroup_id_z", "workgroup_info")
    assert (kernel.wave_size, kernel.kernarg_bytes, kernel.dynamic_stack) == (64 >> wave32, 24, True)
    # 9 VGPRs: blocks of 8 or of 4, less one
    assert kernel.rsrc1 & 0x3F == (1 if wave32 else 2)
    assert kernel.rsrc2 & 0x3F == 13 << 1 | 1  # user_sgpr, scratch_en
    assert kernel.rsrc3 == 3 << 4
    assert kernel.arguments is None
    # no fixed arguments, a stack of unknown depth
    assert parse(data, stack_bytes=4096).kernel("k").scratch_bytes_per_item == 4096
    assert kernel.rsrc2_with_lds(0) >> 15 & 0x1FF == 3  # 1040 bytes in units of 512
    assert kernel.rsrc2_with_lds(512) >> 15 & 0x1FF == 4


def test_too_many_user_sgprs_are_refused(llvm_tool):
    data = bytearray(assembled(llvm_tool, ASSEMBLY.format(wave32=1)))
    at = data.find(struct.pack("<III", 1040, 0, 24))
    data[at + 52] = 3 << 1  # COMPUTE_PGM_RSRC2
    with pytest.raises(
        CompileError, match=r"kernel k: its descriptor asks for 9 user SGPRs, its COMPUTE_PGM_RSRC2 has 3"
    ):
        parse(bytes(data))


def test_preloaded_arguments_follow_all_other_user_sgprs(llvm_tool):
    text = (
        ASSEMBLY.format(wave32=0)
        .replace("gfx1100", "gfx942:sramecc+:xnack-")
        .replace("  .amdhsa_wavefront_size32 0\n", "")
    )
    text = re.sub(r"  .amdhsa_(inst_pref|user_sgpr_(count|pr|dispatch_id|queue)).*\n", "", text)
    text = text.replace(
        ".end_amd",
        "  .amdhsa_accum_offset 12\n  .amdhsa_user_sgpr_kernarg_preload_length 5\n  .amdhsa_user_sgpr_kernarg_preload_offset 1\n.end_amd",
    )
    kernel = parse(assembled(llvm_tool, text, "gfx942:sramecc+:xnack-")).kernel("k")
    assert [tuple(run) for run in kernel.user_sgprs] == [
        ("dispatch_ptr", 0, 2),
        ("kernarg_segment_ptr", 2, 2),
        ("kernarg_preload", 4, 5),
    ]
    assert kernel.properties.kernarg_preload_spec_offset == 1
    assert str(kernel.target) == "gfx942:sramecc+:xnack-"


def linked(tmp_path, unlinked, *flags):
    (tmp_path / "a.o").write_bytes(unlinked)
    subprocess.run(["ld.lld-19", "-shared", *flags, tmp_path / "a.o", "-o", tmp_path / "a.elf"], check=True, timeout=60)
    return (tmp_path / "a.elf").read_bytes()


def test_a_moved_image_is_what_the_linker_makes_at_that_address(compile_cl, tmp_path):
    unlinked = compile_cl(POINTERS, linked=False)
    base = 0x7_1234_0000
    at_zero = parse(linked(tmp_path, unlinked))
    placed = parse(linked(tmp_path, unlinked, f"--image-base={base:#x}", "--apply-dynamic-relocs"))
    assert placed.symbols == at_zero.symbols
    moved = at_zero.relocate(base)
    for name in ("ptr", "ptr.kd", "lut", "table", "where"):
        symbol = at_zero.symbols.get(name)
        if symbol:
            assert (
                moved[symbol.offset : symbol.offset + symbol.size_bytes]
                == placed.image[symbol.offset : symbol.offset + symbol.size_bytes]
            )
    place = at_zero.relocations[0].place
    assert (
        int.from_bytes(moved[place : place + 8], "little")
        == int.from_bytes(placed.image[place : place + 8], "little")
        > base
    )
    assert struct.unpack_from("<2i", moved, int.from_bytes(moved[place : place + 8], "little") - base) == (7, 8)


def test_an_unlinked_object_reaches_its_data_at_any_address(compile_cl):
    program = parse(compile_cl(POINTERS, linked=False))
    base = 0x12_3456_7000
    image = program.relocate(base)
    code = program.kernel("ptr").entry_offset
    # s_getpc_b64, s_add_u32 pc, lo; s_addc_u32 pc, hi: the two literals are a distance from behind s_getpc (LLVM: + 4,
    # + 12)
    literals = [r.place for r in program.relocations if r.kind == 10]
    assert len(literals) == 2
    targets = []
    for place in literals:
        low, high = struct.unpack_from("<I", image, place)[0], struct.unpack_from("<I", image, place + 8)[0]
        targets.append((place - 4 + (high << 32 | low)) & 0xFFFF_FFFF_FFFF_FFFF)
        assert place > code
    where, lut = targets
    assert struct.unpack_from("<4i", image, lut) == (1, 2, 3, 4)
    (pointer,) = struct.unpack_from("<Q", image, where)
    assert struct.unpack_from("<2i", image, pointer - base) == (7, 8)
    distance = struct.unpack_from("<q", image, program.kernel("ptr").descriptor_offset + 16)[0]
    assert program.kernel("ptr").descriptor_offset + distance == code


IR = """
target triple = "amdgcn-amd-amdhsa"
@far = external addrspace(1) global i32
define amdgpu_kernel void @put(ptr addrspace(1) %out) {
  %v = load i32, ptr addrspace(1) @far
  store i32 %v, ptr addrspace(1) %out
  ret void
}
"""


def test_symbols_of_other_objects_are_reached_through_a_table(compile_cl):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(IR)
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu="gfx1100", opt=2)
    program = parse(machine.emit_object(module), "put.o")
    assert program.undefined == ("far",)
    with pytest.raises(CompileError, match=r"put\.o: far is defined nowhere; link it in or give its address"):
        program.relocate(0x1000)
    base = 0x40_0000_0000
    image = program.relocate(base, {"far": 0x1234_5678_9ABC})
    (place,) = (r.place for r in program.relocations if r.kind == 10)
    low, high = struct.unpack_from("<I", image, place)[0], struct.unpack_from("<I", image, place + 8)[0]
    slot = (place - 4 + (high << 32 | low)) & 0xFFFF_FFFF_FFFF_FFFF
    assert struct.unpack_from("<Q", image, slot) == (0x1234_5678_9ABC,)


def test_relocations_that_do_not_fit_are_refused():
    symbol = code_object.elf_image.Symbol("s", 0)
    row = code_object.elf_image.Relocation(0, 6, symbol, 0)  # R_AMDGPU_ABS32
    program = code_object.CodeObject("p", processors.Target("gfx1100"), 5, bytes(8), 4096, (), {}, {}, (row,))
    assert program.relocate(0x1000)[:4] == bytes.fromhex("00100000")
    with pytest.raises(CompileError, match="relocation 6 at 0x0 needs 0x100000000, which 4 bytes cannot hold"):
        program.relocate(1 << 32)
    with pytest.raises(ValueError, match="must lie at a multiple of 0x1000, not at 0x1001"):
        program.relocate(0x1001)


def test_every_processor_has_the_number_that_llvm_gives_it(llvm_tool):
    for mach, name in processors.PROCESSORS.items():
        # LLVM dropped these; AMDGPUUsage lists 0x40 and 0x4b.
        if name in ("gfx940", "gfx941"):
            continue
        data = assembled(llvm_tool, "s_endpgm", name)
        assert struct.unpack_from("<B", data, 48) == (mach,), name
        target = processors.of_flags(struct.unpack_from("<I", data, 48)[0], name)
        assert target.processor == name
        assert bool(target.generic_version) == name.endswith("generic")


@pytest.mark.parametrize(
    ("built_for", "chip", "runs"),
    [
        ("gfx1100", "gfx1100", True),
        ("gfx1100", "gfx1101", False),
        ("gfx11-generic", "gfx1102", True),
        ("gfx11-generic", "gfx1201", False),
        ("gfx1201", "gfx1200", False),
        ("gfx1200", "gfx1201", False),
        ("gfx942", "gfx942", True),
        ("gfx90a", "gfx90a:sramecc+:xnack-", True),
        ("gfx90a:xnack+", "gfx90a:sramecc+:xnack-", False),
        ("gfx90a:sramecc+:xnack-", "gfx90a:sramecc+:xnack-", True),
        ("gfx90a:sramecc+", "gfx90a", False),
    ],
)
def test_code_runs_on_the_chips_it_was_built_for(llvm_tool, built_for, chip, runs):
    data = assembled(llvm_tool, "s_endpgm", built_for)
    if runs:
        assert str(parse(data, chip=chip).target) == built_for
    else:
        with pytest.raises(
            WrongTarget,
            match=rf"code object is built (for {built_for.split(':')[0]}|with \w+ on).*compile it for {re.escape(chip)}",
        ):
            parse(data, chip=chip)


def test_an_old_generic_object_is_not_run(llvm_tool):
    data = bytearray(assembled(llvm_tool, "s_endpgm", "gfx11-generic"))
    data[51] = 0  # EF_AMDGPU_GENERIC_VERSION
    with pytest.raises(WrongTarget, match="version 0 of gfx11-generic, which includes gfx1100 from version 1 on"):
        parse(bytes(data), chip="gfx1100")


@pytest.mark.parametrize(
    ("at", "value", "error", "message"),
    [
        (0, b"\x7fELG", CompileError, "it begins with 7f454c47, not as an ELF file"),
        (4, b"\x01", NotSupported, "ELF class 1, byte order 1; only 64 bits"),
        (7, b"\x00", NotSupported, "machine 224, OS ABI 0; AMDHSA objects have 224 and 64"),
        (8, b"\x01", NotSupported, "ABI version 1; code objects v4 to v6"),
        (16, b"\x02", NotSupported, "ELF type 2; a shared object"),
        (18, b"\x3e", CompileError, "a program for a host, without code for AMD's shader cores"),
        (18, b"\xf7", CompileError, "a program for a host, without code for AMD's shader cores"),
        (48, b"\x20", NotSupported, "built for machine 0x20 of e_flags; gfx900 and later"),
        (0, b"__CLANG_OFFLOAD_BUNDLE__" + bytes(8), CompileError, "bundle 1 begins with 4000000000000000, not as one"),
    ],
)
def test_other_kinds_of_files_are_named(compile_cl, at, value, error, message):
    data = bytearray(compile_cl(SOURCE))
    data[at : at + len(value)] = value
    with pytest.raises(error, match=message):
        parse(bytes(data))


def test_a_hand_made_program_has_the_given_values():
    program = code_object.raw(
        bytes(256), "gfx1100", rsrc1=0x60AF_0000, rsrc2=0x84, user_sgprs=["kernarg_segment_ptr"], kernarg_bytes=16
    )
    kernel = program.kernel("kernel")
    assert (kernel.entry_offset, kernel.user_sgprs, kernel.wave32) == (0, (("kernarg_segment_ptr", 0, 2),), True)
    with pytest.raises(ValueError, match=r"has no kernel 'other'; it has kernel"):
        program.kernel("other")
    with pytest.raises(CompileError, match="asks for 2 user SGPRs, its COMPUTE_PGM_RSRC2 has 0"):
        code_object.raw(bytes(4), "gfx1100", rsrc1=0, rsrc2=0)

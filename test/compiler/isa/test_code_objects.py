"""Code objects checked in four ways: by LLVM's readers, by our loader, against descriptors that LLVM makes, and by a
run on the virtual cores.
"""

import contextlib
import random
import re
import subprocess

import msgpack
import numpy as np
import pytest
from llvmlite import binding as llvm

from ringup.autogen.generate.isa.probe import llvm_mc
from ringup.compiler.isa.amd import LIMITS, processor, s, v
from ringup.compiler.isa.amd.assembly import disassembler
from ringup.compiler.isa.amd.assembly.assembler import assemble
from ringup.compiler.isa.amd.assembly.dsl import Code
from ringup.compiler.isa.amd.objects import descriptor, elf_read, elf_write, metadata
from ringup.errors import CompileError
from ringup.queues.amd.objects import code_object, elf
from ringup.queues.amd.program import Program
from ringup.silicon.shader import program as cores_program
from ringup.silicon.shader import workbench
from ringup.silicon.shader.amd.interpreter.engine import Interpreter

SCALE = """
  .amdgcn_target "amdgcn-amd-amdhsa--gfx1100"
  .globl scale
  .p2align 8
  .type scale,@function
ARGS = 0
scale:
  s_load_b64 s[2:3], s[0:1], ARGS
  s_load_b32 s4, s[0:1], ARGS + 8     // times
  v_lshlrev_b32 v0, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_b32 v1, v0, s[2:3]
  s_waitcnt vmcnt(0)
1:
  v_add_f32 v1, v1, v1
  s_sub_u32 s4, s4, 1
  s_cmp_lg_u32 s4, 0
  s_cbranch_scc1 1b
  global_store_b32 v0, v1, s[2:3]
  s_endpgm
.Lend:
  .size scale, .Lend-scale
  .amdhsa_kernel scale
    .amdhsa_kernarg_size 12
    .amdhsa_user_sgpr_kernarg_segment_ptr 1
    .amdhsa_next_free_vgpr 2
    .amdhsa_next_free_sgpr 5
  .end_amdhsa_kernel
  .amdgpu_metadata
amdhsa.kernels:
  - .name: scale
    .args:
      - { }
  .end_amdgpu_metadata
""".replace("      - { }\n", """      - .name: data
        .address_space: global
        .offset: 0
        .size: 8
        .value_kind: global_buffer
      - .name: times
        .offset: 8
        .size: 4
        .value_kind: by_value
""")  # fmt: skip


@pytest.fixture(scope="module")
def image():
    return elf_write.write(assemble(SCALE, processor("gfx1100"), "scale.s"))


def test_our_loader_takes_it(image):
    kernel = code_object.parse(image, chip="gfx1100").kernel("scale")
    assert (kernel.wave_size, kernel.kernarg_bytes, kernel.vgprs) == (32, 12, 2)
    assert [argument.name for argument in kernel.arguments] == ["data", "times"]
    assert kernel.entry_offset % 256 == 0


def test_llvm_reads_it_without_a_complaint(image, llvm_tool, tmp_path):
    path = tmp_path / "scale.co"
    path.write_bytes(image)
    told = llvm_tool("llvm-readelf", "-a", path)
    assert "OS/ABI:                            AMDGPU - HSA" in told
    assert re.search(r"Flags:\s+0x41, gfx1100", told)
    assert re.search(r"FUNC\s+GLOBAL PROTECTED\s+\d+ scale$", told, re.M)
    assert re.search(r"64 OBJECT\s+GLOBAL PROTECTED\s+\d+ scale\.kd$", told, re.M)
    assert ".value_kind:     global_buffer" in told
    listed = llvm_tool("llvm-objdump", "-d", path)
    lines = [line.split("//")[0].split() for line in listed.splitlines() if "//" in line]
    ours = [
        row.text.split()
        for row in disassembler.Listing(processor("gfx1100"), elf_read.read(image, "").sections[".text"].data).rows
    ]
    assert [line[0] for line in lines] == [line[0] for line in ours]


@pytest.mark.parametrize("times", [1, 5])
def test_a_kernel_assembled_here_runs_on_the_virtual_cores(image, times):
    data = np.arange(32, dtype=np.float32)
    wanted = data * 2.0**times
    workbench.run(
        Interpreter(), cores_program.load(image), "scale", [data, times], groups=(1, 1, 1), group_size=(32, 1, 1)
    )
    assert data.tolist() == wanted.tolist()


def test_a_kernel_written_in_python_runs_on_the_virtual_cores():
    code = Code("gfx1100", waits=True)
    code.s_load_b64(s[2:3], s[0:1], 0)
    code.s_load_b32(s[4], s[0:1], 8)
    code.v_lshlrev_b32(v[0], 2, v[0])
    code.global_load_b32(v[1], v[0], s[2:3])
    loop = code.label("loop")
    code.v_add_f32(v[1], v[1], 1.0)
    code.s_sub_u32(s[4], s[4], 1)
    code.s_cmp_lg_u32(s[4], 0)
    code.s_cbranch_scc1(loop)
    code.global_store_b32(v[0], v[1], s[2:3])
    code.s_endpgm()
    built = code.kernel("more", args=[("data", "ptr"), ("times", "u32")])
    data = np.linspace(0, 1, 32, dtype=np.float32)
    wanted = data + np.float32(1) + np.float32(1) + np.float32(1)
    workbench.run(Interpreter(), cores_program.load(built), "more", [data, 3], groups=(1, 1, 1), group_size=(32, 1, 1))
    assert np.array_equal(data, wanted)
    assert [argument.size_bytes for argument in code_object.parse(built).kernel("more").arguments] == [8, 4]


def test_a_whole_object_reads_back_as_text_that_makes_the_same_object(image):
    text = "\n".join(disassembler.object_lines(elf_read.read(image, "scale")))
    again = elf_write.write(assemble(text, processor("gfx1100"), "again"))
    first, second = elf_read.read(image, ""), elf_read.read(again, "")
    assert second.sections[".text"].data == first.sections[".text"].data
    assert (second.descriptors, second.metadata) == (first.descriptors, first.metadata)


IR = """
target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @dots(ptr addrspace(1) %out, ptr addrspace(1) %in, i32 %n) {
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  br label %top
top:
  %i = phi i32 [ 0, %0 ], [ %next, %top ]
  %sum = phi double [ 0.0, %0 ], [ %more, %top ]
  %at = add i32 %i, %id
  %place = getelementptr float, ptr addrspace(1) %in, i32 %at
  %value = load float, ptr addrspace(1) %place
  %root = call float @llvm.sqrt.f32(float %value)
  %wide = fpext float %root to double
  %more = fadd double %sum, %wide
  %next = add i32 %i, 1
  %again = icmp ult i32 %next, %n
  br i1 %again, label %top, label %done
done:
  %to = getelementptr double, ptr addrspace(1) %out, i32 %id
  store double %more, ptr addrspace(1) %to
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
declare float @llvm.sqrt.f32(float)
"""


@pytest.mark.parametrize("target", LIMITS)
def test_code_that_llvm_made_reads_back_as_text_that_makes_the_same_code(target):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=target, opt=3)
    found = elf_read.read(machine.emit_object(llvm.parse_assembly(IR)), "dots")
    text = "\n".join(disassembler.object_lines(found, places=False))
    assert assemble(text, processor(target), "again").text == found.sections[".text"].data
    assert ".long" not in text
    assert ".L" in text


@pytest.mark.parametrize("target", LIMITS)
def test_descriptors_are_llvms(target, headers, tmp_path):
    limits, pick = LIMITS[target], random.Random(target)
    table = descriptor.directives_of(limits)
    command = llvm_mc(headers("llvm-22"))
    for _ in range(6):
        given = {name: pick.randrange(1 << min(row.width, 16)) for name, row in table.items() if pick.random() < 0.4}
        for name in ("shared_vgpr_count", "user_sgpr_kernarg_preload_length", "user_sgpr_kernarg_preload_offset"):
            given.pop(name, None)
        if "accum_offset" in table:
            given["accum_offset"] = pick.choice([4, 8, 64])
        given |= {"next_free_vgpr": pick.randrange(64, 257), "next_free_sgpr": pick.randrange(100)}
        wave = 64 if limits.wave_sizes == (64,) else 32 if given.get("wavefront_size32", 1) else 64
        lines = "".join(f" .amdhsa_{name} {value}\n" for name, value in given.items())
        head = '.amdhsa_code_object_version 5\n.text\n.p2align 8\nk:\n s_endpgm\n.section .rodata,"a"\n.p2align 6\n'
        source = f"{head}.amdhsa_kernel k\n{lines}.end_amdhsa_kernel\n"
        path = tmp_path / "k.o"
        features = ["-mattr=+wavefrontsize64"] if wave == 64 and 32 in limits.wave_sizes else []
        subprocess.run(
            [*command, "-triple=amdgcn-amd-amdhsa", f"-mcpu={target}", *features, "-filetype=obj", "-o", path],
            input=source.encode(),
            check=True,
        )
        right = elf_read.read(path.read_bytes(), "k").sections[".rodata"].data
        ours = descriptor.build(given, limits, 0, wave)
        # Between them lies the entry that a linker fills in.
        assert (ours[:16], ours[24:]) == (right[:16], right[24:]), given
        assert descriptor.build(descriptor.read(ours, limits)[0], limits, 0, wave) == ours


DEBUG = """
.file 1 "one.cl"
.text
.p2align 8
k:
.loc 1 5 0
s_nop 0
s_nop 1
.loc 1 7 0
s_nop 2
.loc 1 300 0
s_endpgm
"""


DEBUG_LINES = {0: "one.cl:5", 8: "one.cl:7", 12: "one.cl:300"}


@pytest.fixture
def with_lines(headers, tmp_path):
    """`with_lines(version)` returns an object file of LLVM 22 with a line table of that version of DWARF."""

    def build(version):
        path = tmp_path / f"lines{version}.o"
        options = ("-triple=amdgcn-amd-amdhsa", "-mcpu=gfx1100", "-filetype=obj", f"-dwarf-version={version}")
        subprocess.run([*llvm_mc(headers("llvm-22")), *options, "-o", path], input=DEBUG.encode(), check=True)
        return path.read_bytes()

    return build


@pytest.mark.parametrize("version", [4, 5])
def test_source_lines_are_those_of_the_line_table(version, with_lines):
    found = elf_read.read(with_lines(version), "lines")
    assert {at: line for at, line in found.lines.items() if at < 16} == DEBUG_LINES
    assert "  // one.cl:7" in list(disassembler.object_lines(found))


def test_the_address_of_a_line_table_may_come_in_two_halves(with_lines):
    """LLVM relocates the address by R_AMDGPU_ABS32_LO and _HI instead of _ABS64. The row of the file's directory makes
    room for the second relocation.
    """
    data = with_lines(5)
    rows = elf_read.read(data, "lines").sections[".rela.debug_line"].data
    relocations = [list(row) for row in elf.RELA.iter_unpack(rows)]
    (address,) = (row for row in relocations if row[1] == 3)
    directory = next(row for row in relocations if row[1] == 6)
    address[1], address[3] = 1, 4
    directory[:] = address[0] + 4, 2, address[2], 4
    changed = data.replace(rows, b"".join(elf.RELA.pack(*row) for row in relocations))
    lines = elf_read.read(changed, "lines").lines
    assert {at: line.split(":")[1] for at, line in lines.items() if at < 20} == {4: "5", 12: "7", 16: "300"}


def test_sources_without_an_operand_read_back_as_compilers_fill_them():
    """AMD's compilers of ROCm 7.14 and later put the constant 0 there; others put nothing."""
    machine = processor("gfx1100")
    # v_add_co_u32 v1, s0, s0, v3; v_lshlrev_b64 v[3:4], 2, v[1:2]
    words = bytes.fromhex("010000d70006020203003cd782020202")
    lines = list(disassembler.Listing(machine, words).lines(places=False))
    assert lines == ["  .unused_sources 128", "  v_add_co_u32 v1, s0, s0, v3", "  v_lshlrev_b64 v[3:4], 2, v[1:2]"]
    assert assemble("\n".join(lines), machine).sections[".text"] == words
    plain = assemble("\n".join(lines[1:]), machine).sections[".text"]
    assert plain.hex() == "010000d70006020003003cd782020200"  # llvm-mc 22
    assert list(disassembler.Listing(machine, plain).lines(places=False)) == lines[1:]


def test_a_kernel_that_was_compiled_to_nothing_does_not_spoil_the_others():
    """AMD's compiler leaves an empty kernel where a body cannot be reached, as in rocPRIM's kernels for other
    processors. The last kernel begins where the code ends.
    """
    text = """
      .text
      .p2align 8
    work:
      s_endpgm
      .p2align 8
    none:
    """ + "".join(
        f".amdhsa_kernel {name}\n.amdhsa_next_free_vgpr 1\n.amdhsa_next_free_sgpr 1\n.end_amdhsa_kernel\n"
        for name in ("work", "none")
    )
    code = code_object.parse(elf_write.write(assemble(text, processor("gfx1100"))), "two kernels")
    assert [(kernel.name, kernel.empty) for kernel in code.kernels.values()] == [("work", False), ("none", True)]
    program = Program(code, 0x1_0000_0000, lambda: None)
    assert list(program) == ["work"]
    assert program.only().name == "work"
    with pytest.raises(KeyError, match="two kernels: kernel 'none' has no code; its compiler left none for gfx1100"):
        program["none"]


def test_local_labels_keep_their_names():
    text = ".p2align 8\nk:\n s_cbranch_scc1 done\n s_nop 0\ndone:\n s_endpgm\n"
    text += ".amdhsa_kernel k\n.amdhsa_next_free_vgpr 1\n.amdhsa_next_free_sgpr 1\n"
    built = elf_write.write(assemble(text + ".end_amdhsa_kernel", processor("gfx1100")))
    lines = list(disassembler.object_lines(elf_read.read(built, "k"), places=False))
    assert lines[lines.index("k:") :][:5] == ["k:", "  s_cbranch_scc1 done", "  s_nop 0", "done:", "  s_endpgm"]


@pytest.mark.parametrize("size", [3, 40, 64, 200, 1000])
def test_a_cut_or_spoiled_object_is_named_as_damaged(image, size):
    with pytest.raises(CompileError):
        elf_read.read(image[:size], "cut")


def test_an_object_for_another_machine_is_refused(image):
    with pytest.raises(CompileError, match="for machine 62, not AMD's shader cores"):
        elf_read.read(image[:18] + b"\x3e\0" + image[20:], "other")


@pytest.mark.parametrize(("at", "value", "message"), [
    (58, 63, "section headers of 63 bytes"),
    (60, 10_001, r"it has 10001 sections \(at most 10000\), their names in section \d+"),
    (60, 9_999, "the section headers would end at byte 0x"),
    (62, 99, r"it has \d+ sections \(at most 10000\), their names in section 99"),
], ids=["row", "count", "end", "names"])  # fmt: skip
def test_a_damaged_table_of_sections_is_named(image, at, value, message):
    """Source: gABI, "ELF Header": e_shentsize at byte 58, e_shnum at 60, e_shstrndx at 62."""
    data = bytearray(image)
    data[at : at + 2] = value.to_bytes(2, "little")
    with pytest.raises(CompileError, match=f"^spoiled: {message}.*; build it again$"):
        elf_read.read(bytes(data), "spoiled")


def test_a_note_that_leaves_its_section_is_named(image):
    data = bytearray(image)
    at = data.index(b"AMDGPU\0\0") - 12
    data[at + 4 : at + 8] = len(data).to_bytes(4, "little")
    with pytest.raises(CompileError, match=r"^spoiled: a note's text would end at byte 0x"):
        elf_read.read(bytes(data), "spoiled")


def test_spoiled_bytes_never_make_a_traceback(image):
    pick = random.Random(5)
    for _ in range(300):
        data = bytearray(image)
        for _ in range(3):
            data[pick.randrange(len(data))] = pick.randrange(256)
        with contextlib.suppress(CompileError):
            list(disassembler.object_lines(elf_read.read(bytes(data), "spoiled")))


@pytest.mark.parametrize(("document", "message"), [
    ({"a": b"\1\2"}, r"metadata holds b'\\x01\\x02', neither text nor number"),
    ({"a": [{"b": {b"c": 4}}]}, r"metadata has the key b'c', which is not text"),
    ({"a": msgpack.ExtType(3, b"x")}, r"metadata holds ExtType"),
    ([1, 2], r"metadata is not a map"),
], ids=["bytes", "key", "extension", "list"])  # fmt: skip
def test_metadata_of_strange_kinds_is_refused(document, message):
    with pytest.raises(CompileError, match=message):
        metadata.unpack(msgpack.packb(document), "note")


def test_metadata_without_end_is_refused():
    deep = {}
    for _ in range(40):
        deep = {"a": [deep]}
    with pytest.raises(CompileError, match="nested more than 16 deep"):
        metadata.unpack(msgpack.packb(deep), "note")
    with pytest.raises(CompileError, match="note: its metadata is no MessagePack"):
        metadata.unpack(b"\x91" * 100_000, "note")

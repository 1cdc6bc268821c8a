"""`ringup program`: what it shows of a code object, and what it refuses."""

import argparse
import json

import pytest
from llvmlite import binding as llvm

from ringup.errors import CompileError, WrongTarget
from ringup.tools.code import program

IR = """
target triple = "amdgcn-amd-amdhsa"
@tile = internal addrspace(3) global [33 x i32] undef
define amdgpu_kernel void @add(ptr addrspace(1) %out, i32 %n, float %scale) #0 {
  %x = call i32 @llvm.amdgcn.workgroup.id.x()
  %at = getelementptr [33 x i32], ptr addrspace(3) @tile, i32 0, i32 %x
  store volatile i32 %n, ptr addrspace(3) %at
  store float %scale, ptr addrspace(1) %out
  ret void
}
declare i32 @llvm.amdgcn.workgroup.id.x()
attributes #0 = { "amdgpu-flat-work-group-size"="1,256" "amdgpu-no-implicitarg-ptr" }
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu="gfx1100", opt=2)
    path = tmp_path_factory.mktemp("program") / "add.o"
    path.write_bytes(machine.emit_object(llvm.parse_assembly(IR)))
    return path


@pytest.fixture
def ask(capsys):
    """Run the command; return status and output."""

    def run(*words):
        parser = argparse.ArgumentParser()
        program.add_parser(parser.add_subparsers())
        args = parser.parse_args(["program", *map(str, words)])
        return program.run(args), capsys.readouterr().out

    return run


def test_a_kernel_is_shown_with_what_it_takes(ask, built):
    status, out = ask(built)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert status == 0
    assert lines[0] == "target gfx1100"
    wanted = {"group at most 256 work-items", "LDS 132 bytes", "waves of 32"}
    assert wanted <= set(lines)
    assert [line.split()[1] for line in lines if line.startswith("s")].count("kernarg_segment_ptr") == 1
    taken = [line.split()[:3] for line in lines if line.startswith("0x00")]
    assert taken == [["0x0000", "8", "global_buffer"], ["0x0008", "4", "by_value"], ["0x000c", "4", "by_value"]]


def test_programs_get_a_document(ask, built):
    status, out = ask(built, "--json", "--hidden")
    shown = json.loads(out)
    assert (status, shown["target"], [kernel["name"] for kernel in shown["kernels"]]) == (0, "gfx1100", ["add"])


def test_another_chip_is_told_after_what_it_is(ask, built, capsys):
    assert ask(built, "--chip", "gfx1100")[0] == 0
    with pytest.raises(
        WrongTarget, match=r"add\.o is built for gfx1100, this chip is a gfx1101: compile it for gfx1101"
    ):
        ask(built, "--chip", "gfx1101")
    with pytest.raises(WrongTarget, match="this chip is a gfx1101"):
        ask(built, "--chip", "navi32")
    with pytest.raises(SystemExit, match="2"):
        ask(built, "--chip", "navi99")
    shown = capsys.readouterr()
    assert "'navi99' names no processor; such as gfx1100" in shown.err
    assert "target         gfx1100" in shown.out


def test_what_is_no_code_object_is_refused(ask, built, tmp_path):
    (tmp_path / "short.o").write_bytes(built.read_bytes()[:100])
    with pytest.raises(CompileError, match=r"short\.o: the section headers would end at byte"):
        ask(tmp_path / "short.o")
    with pytest.raises(CompileError, match="cannot be read"):
        ask(tmp_path / "none.o")

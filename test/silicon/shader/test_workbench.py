"""Kernels without a card: an object file of llvmlite, laid out here, runs on both engines. Every mistake is one
line.
"""

from __future__ import annotations

import numpy as np
import pytest
from llvmlite import binding as llvm

from ringup.errors import GuestError, WrongTarget
from ringup.silicon.shader import workbench
from ringup.silicon.shader.amd.interpreter.engine import Interpreter
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.silicon.shader.program import load

SCALE = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
@table = addrspace(4) constant [4 x float] [float 1.0, float 10.0, float 100.0, float 1000.0]
define amdgpu_kernel void @scale(ptr addrspace(1) %data, float %by, i32 %count) #0 {
  %local = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %first = shl i32 %group, 6
  %index = add i32 %first, %local
  %inside = icmp ult i32 %index, %count
  br i1 %inside, label %work, label %done
work:
  %place = getelementptr float, ptr addrspace(1) %data, i32 %index
  %value = load float, ptr addrspace(1) %place
  %kind = and i32 %index, 3
  %entry = getelementptr [4 x float], ptr addrspace(4) @table, i32 0, i32 %kind
  %factor = load float, ptr addrspace(4) %entry
  %scaled = fmul float %value, %by
  %result = fmul float %scaled, %factor
  store float %result, ptr addrspace(1) %place
  br label %done
done:
  ret void
}
@shared = external addrspace(3) global [0 x i32], align 4
define amdgpu_kernel void @turned(ptr addrspace(1) %data) #0 {
  %local = call i32 @llvm.amdgcn.workitem.id.x()
  %mine = getelementptr i32, ptr addrspace(3) @shared, i32 %local
  store i32 %local, ptr addrspace(3) %mine
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %other = sub i32 99, %local
  %theirs = getelementptr i32, ptr addrspace(3) @shared, i32 %other
  %value = load i32, ptr addrspace(3) %theirs
  %place = getelementptr i32, ptr addrspace(1) %data, i32 %local
  store i32 %value, ptr addrspace(1) %place
  ret void
}
declare void @llvm.amdgcn.s.barrier()
define amdgpu_kernel void @seven(ptr addrspace(1) %a, ptr addrspace(1) %b, i32 %c, i32 %d, i32 %e) #1 {
  %sum = add i32 %c, %d
  %more = add i32 %sum, %e
  store i32 %more, ptr addrspace(1) %a
  store i32 %c, ptr addrspace(1) %b
  ret void
}
attributes #1 = { "amdgpu-no-implicitarg-ptr" }
define amdgpu_kernel void @poke(ptr addrspace(1) %at, i32 %value) #0 {
  store i32 %value, ptr addrspace(1) %at
  ret void
}
define amdgpu_kernel void @kinds(ptr addrspace(1) %out, i8 %a, half %b, i64 %c, double %d) #0 {
  %wide = zext i8 %a to i64
  store i64 %wide, ptr addrspace(1) %out
  %b1 = getelementptr i64, ptr addrspace(1) %out, i32 1
  store half %b, ptr addrspace(1) %b1
  %b2 = getelementptr i64, ptr addrspace(1) %out, i32 2
  store i64 %c, ptr addrspace(1) %b2
  %b3 = getelementptr i64, ptr addrspace(1) %out, i32 3
  store double %d, ptr addrspace(1) %b3
  ret void
}
define amdgpu_kernel void @clock(ptr addrspace(1) %out) #0 {
  %now = call i64 @llvm.amdgcn.s.sendmsg.rtn.i64(i32 131)
  br label %again
again:
  %i = phi i32 [0, %0], [%next, %again]
  %next = add i32 %i, 1
  call void @llvm.amdgcn.s.sleep(i32 0)
  %more = icmp ult i32 %next, 500
  br i1 %more, label %again, label %done
done:
  %then = call i64 @llvm.amdgcn.s.sendmsg.rtn.i64(i32 131)
  %spent = sub i64 %then, %now
  store i64 %spent, ptr addrspace(1) %out
  ret void
}
declare i64 @llvm.amdgcn.s.sendmsg.rtn.i64(i32)
define amdgpu_kernel void @half() #0 {
  %local = call i32 @llvm.amdgcn.workitem.id.x()
  %first = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %local)
  %low = icmp ult i32 %first, 32
  br i1 %low, label %meet, label %again
meet:
  call void @llvm.amdgcn.s.barrier()
  ret void
again:
  call void @llvm.amdgcn.s.sleep(i32 1)
  br label %again
}
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)
define amdgpu_kernel void @forever() #0 {
  br label %again
again:
  call void @llvm.amdgcn.s.sleep(i32 1)
  br label %again
}
declare void @llvm.amdgcn.s.sleep(i32)
attributes #0 = { "amdgpu-flat-work-group-size"="1,256" "uniform-work-group-size"="true" }
"""


@pytest.fixture(scope="module")
def program():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu="gfx1100", opt=2)
    return load(machine.emit_object(llvm.parse_assembly(SCALE)))


@pytest.fixture(params=[Interpreter, Translator])
def engine(request):
    return request.param()


def test_an_object_file_of_a_compiler_runs_without_a_linker(program, engine):
    data = np.arange(100, dtype=np.float32)
    wanted = data * np.float32(2.5) * np.array([1, 10, 100, 1000], np.float32)[np.arange(100) % 4]
    done = workbench.run(engine, program, "scale", [data, 2.5, 100], groups=(2, 1, 1), group_size=(64, 1, 1))
    assert (data == wanted).all()
    assert done.counters.waves == 4


def test_more_may_be_loaded_than_there_are_arguments(program, engine):
    """A load of eight dwords fetches seven."""
    assert program.kernels["seven"].kernarg_bytes == 28
    first, second = np.zeros(1, np.int32), np.zeros(1, np.int32)
    workbench.run(engine, program, "seven", [first, second, 1, 2, 4], groups=(1, 1, 1), group_size=(1, 1, 1))
    assert (first[0], second[0]) == (7, 1)


def test_a_kernel_gets_lds_beside_what_it_says_it_needs(program, engine):
    data = np.zeros(100, np.int32)
    shape = {"groups": (1, 1, 1), "group_size": (100, 1, 1)}
    workbench.run(engine, program, "turned", [data], **shape, dynamic_lds_bytes=400)
    assert (data == np.arange(100)[::-1]).all()
    with pytest.raises(GuestError, match="0x18c bytes are allocated"):
        workbench.run(engine, program, "turned", [data], **shape, dynamic_lds_bytes=396)


@pytest.mark.parametrize(
    "host_cpu", ["x86-64", "x86-64-v3"] if llvm.get_default_triple().startswith("x86_64") else [""]
)
def test_translations_keep_to_the_instructions_of_an_older_host(program, host_cpu):
    data = np.arange(100, dtype=np.float32)
    wanted = data * np.float32(0.5) * np.array([1, 10, 100, 1000], np.float32)[np.arange(100) % 4]
    engine = Translator(host_cpu=host_cpu)
    workbench.run(engine, program, "scale", [data, 0.5, 100], groups=(2, 1, 1), group_size=(64, 1, 1))
    assert (data == wanted).all()


def test_an_access_beyond_an_array_is_reported_with_its_instruction(program, engine):
    data = np.zeros(100, np.float32)
    told = r"kernel scale: memory at 0x[0-9a-f]+ in wave .*global_load.*: lane 4: read of 0x.*, 0x0 bytes past the end of buffer 'data'"
    with pytest.raises(GuestError, match=told):
        workbench.run(engine, program, "scale", [data, 1.0, 128], groups=(2, 1, 1), group_size=(64, 1, 1))


def test_a_kernel_without_end_is_given_up(program, engine):
    with pytest.raises(GuestError, match="has not ended after 1000 wave-instructions"):
        workbench.run(engine, program, "forever", [], groups=(1, 1, 1), group_size=(32, 1, 1), limit=1000)


def test_waves_at_a_barrier_that_others_never_reach_are_named(program, engine):
    told = r"has not ended after 1000 .*: waves 1 .* 0x[0-9a-f]+, such as wave \(0, 0, 0, [01]\); 1 .*wave \(0, 0, 0, [01]\)$"
    with pytest.raises(GuestError, match=told) as caught:
        workbench.run(engine, program, "half", [], groups=(1, 1, 1), group_size=(64, 1, 1), limit=1000)
    assert "1 waiting at the barrier before 0x" in str(caught.value)
    assert "1 running at 0x" in str(caught.value)


@pytest.mark.parametrize(
    ("place", "told"), [("code", r"the program's code \(R-X\)"), ("constants", r"its constants \(R--\)")]
)
def test_a_store_into_the_program_is_refused(program, engine, place, told):
    executable = place == "code"
    target = next(one.address for one in program.segments if one.executable == executable)
    shape = {"groups": (1, 1, 1), "group_size": (1, 1, 1)}
    with pytest.raises(
        GuestError, match=f"global_store_b32 .*: lane 0: write to .*not permitted, byte 0x[0-9a-f]+ of {told}"
    ):
        workbench.run(engine, program, "poke", [workbench.CODE + target, 0], **shape)


def test_numbers_of_numpy_are_taken_at_their_size(program, engine):
    out, shape = np.zeros(4, np.uint64), {"groups": (1, 1, 1), "group_size": (1, 1, 1)}
    values = [np.uint8(200), np.float16(1.5), np.int64(-3), np.float64(0.1)]
    workbench.run(engine, program, "kinds", [out, *values], **shape)
    assert (out[0], out.view(np.float16)[4], out.view(np.int64)[2], out.view(np.float64)[3]) == tuple(values)
    workbench.run(engine, program, "kinds", [out, True, 1.5, -3, 0.1], **shape)
    assert (out[0], out.view(np.float16)[4], out.view(np.int64)[2], out.view(np.float64)[3]) == (1, 1.5, -3, 0.1)


@pytest.mark.parametrize(
    ("number", "value", "told"),
    [
        (1, np.uint32(3), r"kernel kinds: argument 1 \(a\) is by_value of 1 bytes, uint32 is 4"),
        (1, 256, r"argument 1 \(a\) is by_value of 1 bytes: 256 is outside -128 to 255"),
        (1, 1.0, "of 1 bytes, which is not a float"),
        (2, np.float32(1), r"argument 2 \(b\) is by_value of 2 bytes, float32 is 4"),
        (2, 1e9, "of 2 bytes: 1000000000.0 does not fit"),
        (3, -1 << 64, "of 8 bytes: .* is outside"),
        (3, "x", r"argument 3 \(c\) .*: a number, an array or bytes, not str"),
        (4, b"1234", "of 8 bytes, not 4"),
        (0, 1.5, r"argument 0 \(out\) is global_buffer of 8 bytes: an array, or an address"),
    ],
)
def test_a_value_that_does_not_fit_its_argument_is_named(program, engine, number, value, told):
    arguments = [np.zeros(4, np.uint64), 1, 1.0, 1, 1.0]
    arguments[number] = value
    with pytest.raises((ValueError, TypeError), match=told):
        workbench.run(engine, program, "kinds", arguments, groups=(1, 1, 1), group_size=(1, 1, 1))


def test_the_clock_goes_on_with_what_is_executed(program, engine):
    """An instruction takes 1 ns, and the clock's tick 10 ns."""
    out = np.zeros(1, np.uint64)
    done = workbench.run(engine, program, "clock", [out], groups=(1, 1, 1), group_size=(1, 1, 1))
    assert 0.9 * done.instructions < out[0] * 10 <= done.instructions


def test_an_array_that_is_read_only_stays_what_it_is(program, engine):
    data = np.ones(64, np.float32)
    data.flags.writeable = False
    with pytest.raises(GuestError, match=r"memory at .*global_store_b32"):
        workbench.run(engine, program, "scale", [data, 2.0, 64], groups=(1, 1, 1), group_size=(64, 1, 1))
    assert (data == 1).all()


# By generation.
PROCESSORS = {
    "gfx1100": 11, "gfx1101": 11, "gfx1102": 11, "gfx1103": 11, "gfx1150": 11.5, "gfx1151": 11.5, "gfx1200": 12, "gfx1201": 12,
}  # fmt: skip


@pytest.mark.parametrize("make", [Interpreter, Translator])
@pytest.mark.parametrize("processor", PROCESSORS)
def test_cores_run_code_of_their_generation_and_refuse_the_others(program, make, processor):
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=processor, opt=2)
    made = load(machine.emit_object(llvm.parse_assembly(SCALE)))
    assert made.target == processor
    same = [one for one in PROCESSORS if PROCESSORS[one] == PROCESSORS[processor]]
    for other in PROCESSORS:
        data, sizes = np.arange(64, dtype=np.float32), {"groups": (1, 1, 1), "group_size": (64, 1, 1)}
        if other in same:
            workbench.run(make(target=other), made, "scale", [data, 2.5, 64], **sizes)
            assert data[3] == 7500
        else:
            with pytest.raises(
                WrongTarget, match=rf"^code for {processor}: these cores run gfx1.*; compile it for {other}$"
            ):
                workbench.run(make(target=other), made, "scale", [data, 2.5, 64], **sizes)
            assert data[3] == 3


def test_groups_that_fit_nowhere_are_reported_in_one_line(program, engine):
    with pytest.raises(
        ValueError, match=r"^not one group of \(4096, 1, 1\) work-items .* fits on a work-group processor$"
    ):
        workbench.run(engine, program, "forever", [], groups=(1, 1, 1), group_size=(4096, 1, 1))


def test_mistakes_of_the_caller_are_named(program, engine):
    data = np.zeros(64, np.float32)
    with pytest.raises(
        GuestError, match=r"no kernel 'scael'; it has clock, forever, half, kinds, poke, scale, seven, turned"
    ):
        workbench.run(engine, program, "scael", [], groups=(1, 1, 1), group_size=(64, 1, 1))
    with pytest.raises(ValueError, match="takes 3 arguments, not 2"):
        workbench.run(engine, program, "scale", [data, 1.0], groups=(1, 1, 1), group_size=(64, 1, 1))
    with pytest.raises(ValueError, match="contiguous"):
        workbench.run(engine, program, "scale", [data[::2], 1.0, 32], groups=(1, 1, 1), group_size=(64, 1, 1))

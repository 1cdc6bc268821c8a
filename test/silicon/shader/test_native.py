"""Host code for processors without f16 instructions: our own f16 conversions compared with NumPy's."""

import ctypes

import numpy as np
import pytest
from llvmlite import binding as llvm

from ringup.silicon.shader.host.native import HostCode, _helper

LANES = 16
SHAPES = {"widen": ("half", "float"), "narrow": ("float", "half"), "narrow64": ("double", "half")}


@pytest.fixture(scope="module")
def convert():
    if not llvm.get_default_triple().startswith("x86_64"):
        pytest.skip("only x86-64 has processors without f16 conversions")
    text = ""
    for name, (old, new) in SHAPES.items():
        verb = "fpext" if name == "widen" else "fptrunc"
        text += f"""
            define void @{name}(ptr %from, ptr %to) {{
              %old = load <{LANES} x {old}>, ptr %from, align 2
              %new = {verb} <{LANES} x {old}> %old to <{LANES} x {new}>
              store <{LANES} x {new}> %new, ptr %to, align 2
              ret void
            }}"""
    code = HostCode.of(text, level=1, cpu="x86-64")
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

    def run(name, values, kind):
        function = signature(code.address(name))
        found = np.zeros(values.size, kind)
        for at in range(0, values.size, LANES):
            function(values[at:].ctypes.data, found[at:].ctypes.data)
        return found

    return run


def same(found, wanted):
    kind = f"u{found.itemsize}"
    return ((found.view(kind) == wanted.view(kind)) | (np.isnan(found) & np.isnan(wanted))).all()


HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def singles():
    """Return floats of every sort: around every f16, around the middle of every two f16, and random bits."""
    near = [HALVES.astype(np.float32).view(np.uint32) + step for step in (0, 0xFFF, 0x1000, 0x1001, 0x1FFF)]
    return (
        np.concatenate([*near, np.random.default_rng(3).integers(0, 1 << 32, 1 << 16, np.uint64)])
        .astype(np.uint32)
        .view(np.float32)
    )


def test_every_half_widens(convert):
    assert same(convert("widen", HALVES, np.float32), HALVES.astype(np.float32))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_singles_narrow_to_the_nearest_half(convert):
    assert same(convert("narrow", singles(), np.float16), singles().astype(np.float16))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_doubles_narrow_in_one_step(convert):
    near = singles().astype(np.float64)
    for values in (near, np.nextafter(near, np.inf), np.nextafter(near, -np.inf)):
        assert same(convert("narrow64", values, np.float16), values.astype(np.float16))


COUNTING = {
    "count": "@count = internal global i64 zeroinitializer",
    "next": """define internal i64 @next(i64 %step) noinline {
      %old = load i64, ptr @count
      %new = add i64 %old, %step
      store i64 %new, ptr @count
      ret i64 %new
    }""",
    "twice": """define internal i64 @twice(i64 %step) noinline {
      %first = call i64 @next(i64 %step)
      %second = call i64 @next(i64 %step)
      ret i64 %second
    }""",
}


@pytest.mark.parametrize("cpu", ["", "x86-64"])
def test_helpers_are_compiled_once_and_globals_are_each_programs_own(cpu):
    if cpu and not llvm.get_default_triple().startswith("x86_64"):
        pytest.skip("that is a processor of another family")
    text = "define i64 @program(i64 %step) {\n%found = call i64 @twice(i64 %step)\nret i64 %found\n}"
    codes = [HostCode.of(text, level=0, cpu=cpu, declarations=COUNTING) for _ in range(2)]
    first, second = (ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(one.address("program")) for one in codes)
    before = _helper.cache_info().misses
    assert [first(1), first(10), second(3)] == [2, 22, 6]
    HostCode.of(text, level=1, cpu=cpu, declarations=COUNTING)
    assert _helper.cache_info().misses == before


def test_a_program_on_a_host_without_halves_is_compiled_in_one_piece():
    if not llvm.get_default_triple().startswith("x86_64"):
        pytest.skip("only x86-64 has processors without f16 conversions")
    helper = {
        "widen": "define internal float @widen(half %value) noinline {\n%wide = fpext half %value to float\nret float %wide\n}"
    }
    text = """define float @program(i16 %bits) {
      %half = bitcast i16 %bits to half
      %wide = call float @widen(half %half)
      ret float %wide
    }"""
    code = HostCode.of(text, level=0, cpu="x86-64", declarations=helper)
    assert ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_uint16)(code.address("program"))(0xC100) == -2.5

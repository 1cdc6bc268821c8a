"""Memory accesses that fault: both engines stop at the same instruction with the same rule, and nothing was stored by
then.
"""

import numpy as np
import pytest

from ringup.silicon.shader.amd.interpreter.engine import Interpreter
from ringup.silicon.shader.amd.translator.engine import Translator

DATA, SIZE = 0x20_0000, 256
LANE_OFFSETS = "global_load_addtid_b32 v1, s[2:3]\ns_waitcnt vmcnt(0)\n"

# Text, lane offsets, kind.
BROKEN = [
    # The last lane is outside.
    ("global_load_b32 v2, v1, s[0:1]", np.arange(32) * 8 + 8, "memory"),
    # Half of the last lane is outside.
    ("global_store_b64 v1, v[4:5], s[0:1]", np.arange(32) * 8 + 4, "memory"),
    ("global_atomic_add_u32 v1, v4, s[0:1]", np.arange(32) * 16, "memory"),
    ("global_atomic_add_u32 v1, v4, s[0:1]", np.arange(32) * 4 + 2 * (np.arange(32) == 7), "alignment"),
    ("global_atomic_add_u64 v1, v[4:5], s[0:1]", np.arange(32) * 4, "alignment"),
    ("s_load_b128 s[8:11], s[0:1], 0xf8", np.zeros(32), "memory"),
    ("ds_load_b32 v2, v1", np.arange(32) * 32, "memory"),
    ("ds_store_b64 v1, v[4:5]", np.arange(32) * 8 + 260, "memory"),
    ("ds_add_u32 v1, v4", np.arange(32) * 4 + 1, "alignment"),
    ("ds_add_u32 v1, v4", np.arange(32) * 64, "memory"),
]


def setup(machine, offsets, **rights):
    machine.arena.regions.clear()
    machine.buffer(DATA + 0x1_0000, offsets)
    data = machine.buffer(DATA, np.arange(SIZE // 4), **rights)
    return data, (DATA, 0, DATA + 0x1_0000, 0)


@pytest.mark.parametrize("engine", [Interpreter, Translator])
@pytest.mark.parametrize(("text", "offsets", "kind"), BROKEN)
def test_an_access_that_breaks_a_rule_stops_the_wave_with_nothing_stored(machine, engine, text, offsets, kind):
    data, pointers = setup(machine, offsets)
    values = "global_load_addtid_b32 v4, s[2:3]\nglobal_load_addtid_b32 v5, s[2:3]\n"
    if text.startswith("ds_load"):
        values += "s_waitcnt vmcnt(0)\nds_store_addtid_b32 v4 offset:128\n"
    if text.startswith(("ds_load", "ds_add")):
        values += "s_waitcnt vmcnt(0)\ns_mov_b32 m0, 0\n" + "".join(
            f"ds_store_addtid_b32 v4 offset:{at}\n" for at in (0, 128, 256, 384)
        )
    program = f"{values.replace(chr(10) + 'ds_store_addtid_b32 v4 offset:128' + chr(10), chr(10), 1)}{LANE_OFFSETS}{text}\ns_endpgm"
    violation = machine.broken(program, engine=engine(), user_sgprs=pointers, lds_size_bytes=512)
    assert violation.kind == kind
    assert violation.text.split()[0] == text.split()[0]
    assert np.array_equal(data, np.arange(SIZE // 4))


@pytest.mark.parametrize("engine", [Interpreter, Translator])
def test_read_only_memory_is_read_but_not_written(machine, engine):
    data, pointers = setup(machine, np.arange(32) * 4, writable=False)
    program = (
        LANE_OFFSETS + "global_load_b32 v4, v1, s[0:1]\ns_waitcnt vmcnt(0)\nglobal_store_b32 v1, v1, s[0:1]\ns_endpgm"
    )
    violation = machine.broken(program, engine=engine(), user_sgprs=pointers)
    assert (violation.kind, violation.text.split()[0]) == ("memory", "global_store_b32")
    assert np.array_equal(data, np.arange(SIZE // 4))


@pytest.mark.parametrize("engine", [Interpreter, Translator])
@pytest.mark.parametrize(
    ("text", "kind"), [("global_load_b32 v2, v1, s[0:1]", "alignment"), ("ds_load_b32 v2, v1", "alignment")]
)
def test_misaligned_accesses_are_refused_where_the_mode_does_not_allow_them(machine, engine, text, kind):
    _, pointers = setup(machine, np.arange(32) * 4 + 1)
    violation = machine.broken(
        f"{LANE_OFFSETS}{text}\ns_endpgm",
        engine=engine(),
        user_sgprs=pointers,
        lds_size_bytes=512,
        mtype_unaligned=False,
    )
    assert violation.kind == kind


@pytest.mark.parametrize("engine", [Interpreter, Translator])
@pytest.mark.parametrize("address", [0, 0xA0, 0x7FFF_0000_0000, 0x4000_0000_0000_0000, 0xFFE8_FCB1_0000_0000])
def test_an_address_without_memory_is_named_whatever_it_is(machine, engine, address):
    program = "v_mov_b32 v1, 0\nglobal_load_b32 v2, v1, s[0:1]\ns_endpgm"
    violation = machine.broken(program, engine=engine(), user_sgprs=(address & 0xFFFF_FFFF, address >> 32))
    assert violation.kind == "memory"
    assert f"{address:#x}" in violation.detail

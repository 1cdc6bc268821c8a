"""Surface instructions on both engines: stores by formats, places outside, atomics, and what strict mode reports."""

import numpy as np
import pytest
from nak.images import FLOAT, ONE_INT, SINT, SNORM, UINT, UNORM, ZERO, R, header, in_blocks, pools
from nak.registers import LAUNCHED, both

from ringup.autogen.nv import textures as facts
from ringup.compiler.isa.sass import Control, machine
from ringup.errors import GuestError
from ringup.silicon.shader.nv import workbench
from ringup.silicon.shader.nv.interpreter.engine import Interpreter
from ringup.silicon.shader.nv.translator.engine import Translator

LANES = 32
SIZES = {
    name.removeprefix("TEXHEAD_BL_COMPONENTS_SIZES_"): value
    for name, value in vars(facts).items()
    if "BL_COMPONENTS_S" in name
}
LANE = np.arange(LANES, dtype=np.uint32)


def surfaces(target, texts, registers, arrays, headers):
    """Run instructions on both engines; return the registers and what each array holds then, the same for both."""
    stored = []

    def fresh():
        stored.append([one.copy() for one in arrays])
        tables, _ = pools(len(arrays), headers)
        return [*stored[-1], *tables]

    _, said = pools(len(arrays), headers)
    given = np.zeros((LAUNCHED, LANES), np.uint32)
    for number, values in registers.items():
        given[number] = values
    one, other = both(target, lambda program: program.add(*texts), given, fresh, **said)
    assert np.array_equal(one, other)
    for first, second in zip(*stored, strict=True):
        assert np.array_equal(first, second)
    return one, stored[0]


def f32(values):
    return np.asarray(values, np.float32).view(np.uint32)


def normalized(values, top):
    """NumPy's nearest integer of a value that is clamped to 1."""
    return np.rint(np.clip(values, -1, 1).astype(np.float64) * top)


def test_stores_convert_to_the_format_of_each_surface():
    draw = np.random.default_rng(1)
    values = draw.uniform(-1.5, 1.5, (4, LANES)).astype(np.float32)
    whole = draw.integers(-70_000, 70_000, (4, LANES)).astype(np.int32)
    rows = [  # format, type, data, what NumPy makes of it
        ("A8B8G8R8", UNORM, values, normalized(np.clip(values, 0, 1), 255).astype(np.uint8)),
        ("A8B8G8R8", SNORM, values, normalized(values, 127).astype(np.int8)),
        ("R16_G16_B16_A16", FLOAT, values, values.astype(np.float16)),
        ("R16_G16_B16_A16", SINT, whole, np.clip(whole, -32768, 32767).astype(np.int16)),
        ("A8B8G8R8", UINT, whole & 0xFFFF, np.clip(whole & 0xFFFF, 0, 255).astype(np.uint8)),
        ("R32_G32_B32_A32", FLOAT, values, values), ("R32_G32", UINT, whole, whole[:2]),
        ("R16", UNORM, values, normalized(np.clip(values[:1], 0, 1), 65535).astype(np.uint16)),
    ]  # fmt: skip
    for name, kind, data, wanted in rows:
        size = wanted.shape[0] * wanted.dtype.itemsize
        head = header(0, "BUFFER", (LANES,), SIZES[name], (kind,) * 4)
        registers = {8: LANE[::-1], 9: 0} | {
            12 + at: one.view(np.uint32) if one.dtype != np.int64 else one for at, one in enumerate(data)
        }
        _, (found,) = surfaces(
            "sm_86",
            ["SUST.P.1D_BUFFER.STRONG.SYS.IGN [R8], R12, R9"],
            registers,
            [np.zeros(size * LANES, np.uint8)],
            [head],
        )
        assert np.array_equal(found.view(wanted.dtype).reshape(LANES, -1), wanted[:, ::-1].T), name


def test_a_store_takes_components_from_where_a_load_would_put_them():
    head = header(
        0, "BUFFER", (LANES,), SIZES["R8"], (UNORM,) * 4, x_source=ZERO, y_source=ZERO, z_source=ZERO, w_source=R
    )
    registers = {8: LANE, 9: 0, 12: f32(1), 13: f32(1), 14: f32(1), 15: f32(0.2)}
    texts = ["SUST.P.1D_BUFFER.STRONG.SYS.IGN [R8], R12, R9", "SULD.P.1D_BUFFER.STRONG.SYS.IGN R16, [R8], R9"]
    loaded, (found,) = surfaces("sm_89", texts, registers, [np.zeros(LANES, np.uint8)], [head])
    assert (found == 51).all()
    assert loaded[16:20, 0].tolist() == [0, 0, 0, int(f32(51 / 255))]


@pytest.mark.parametrize("target", ["sm_75", "sm_86"])
def test_places_outside_load_zeros_and_store_nothing(target):
    image = np.arange(1, 1 + 3 * 5 * 7, dtype=np.uint32).reshape(3, 5, 7)
    layers = [in_blocks(one[None].view(np.uint8), 0, 0) for one in image]
    head = header(0, "ARRAY_2D", (7, 5, 3), SIZES["R32"], (UINT,) * 4, y_source=ZERO, z_source=ZERO, w_source=ONE_INT)
    draw = np.random.default_rng(2)
    x, y, z = (draw.integers(-1, size + 1, LANES).astype(np.int32).view(np.uint32) for size in (7, 5, 3))
    there = (x < 7) & (y < 5) & (z < 3)
    assert 0 < there.sum() < LANES
    order = "STRONG.SYS"
    texts = [f"SULD.P.2D_ARRAY.{order}.IGN R16, [R8], R11", f"SULD.D.2D_ARRAY.{order}.IGN R20, [R8], R11",
             f"SUST.P.2D_ARRAY.{order}.R.IGN [R8], R12, R11", f"SULD.P.2D_ARRAY.{order}.R.IGN R21, [R8], R13"]  # fmt: skip
    registers = {8: x, 9: y, 10: z, 11: 0, 12: 77, 13: 1, 21: 5}
    found, (data,) = surfaces(target, texts, registers, [np.concatenate(layers)], [head, 0])
    wanted = np.where(there, image[np.where(there, z, 0), np.where(there, y, 0), np.where(there, x, 0)], 0)
    assert np.array_equal(found[16], wanted)
    assert np.array_equal(found[20], wanted)
    # a missing A is one, but nothing is found without a header
    assert found[19].tolist() == [1] * LANES
    assert not found[21].any()
    image[z[there], y[there], x[there]] = 77
    assert np.array_equal(data, np.concatenate([in_blocks(one[None].view(np.uint8), 0, 0) for one in image]))


def test_atomics_combine_lane_by_lane():
    draw = np.random.default_rng(3)
    start = draw.integers(0, 1 << 32, 4, dtype=np.uint32)
    wide = draw.integers(0, 1 << 63, 4, dtype=np.uint64)
    heads = [
        header(0, "1D", (4,), SIZES["R32"], (UINT,) * 4), header(1, "1D", (4,), SIZES["R32_G32"], (UINT,) * 4),
        header(2, "1D", (4,), SIZES["R32"], (FLOAT,) * 4),
    ]  # fmt: skip
    arrays = [np.zeros(512, np.uint8) for _ in range(3)]
    arrays[0][:16], arrays[1][:16] = start.view(np.uint8), wide.view(np.uint8)[:16]
    arrays[1][64:80] = wide.view(np.uint8)[16:]
    data = draw.integers(0, 1 << 32, LANES, dtype=np.uint32)
    at = LANE % 5
    ends = "STRONG.SYS"
    texts = [
        f"SUATOM.D.1D.ADD.{ends}.IGN R16, [R8], R12, R10", f"SURED.D.1D.ADD.U64.{ends}.IGN [R9], R12, R11",
        f"SURED.D.1D.ADD.F32.FTZ.RN.{ends}.IGN [R9], R14, R15",
    ]  # fmt: skip
    registers = {8: at, 9: 0, 10: 0, 11: 1, 12: data, 13: 1, 14: f32(0.5), 15: 2}
    found, after = surfaces("sm_86", texts, registers, arrays, heads)
    running, before = start.copy(), np.zeros(LANES, np.uint32)
    for lane in range(LANES):
        if at[lane] < 4:
            before[lane] = running[at[lane]]
            running[at[lane]] = np.add(running[at[lane] : at[lane] + 1], data[lane])[0]
    assert np.array_equal(found[16], before)
    assert np.array_equal(after[0][:16].view(np.uint32), running)
    total = (int(wide[0]) + int(data.sum(dtype=np.uint64)) + (LANES << 32)) % (1 << 64)
    assert int(after[1][:8].view(np.uint64)[0]) == total
    assert after[2][:4].view(np.float32)[0] == 16


def test_a_compare_and_swap_has_both_values_in_a_row():
    head = header(0, "1D", (4,), SIZES["R32"], (UINT,) * 4)
    memory = np.zeros(512, np.uint8)
    memory[:4] = 7
    seven = int(memory[:4].view(np.uint32)[0])
    registers = {8: 0, 10: 0, 12: np.where(LANE == 3, seven, 1), 13: 100 + LANE}
    found, (after,) = surfaces(
        "sm_86", ["SUATOM.D.1D.CAS.STRONG.SYS.IGN R16, [R8], R12, R10"], registers, [memory], [head]
    )
    assert after[:4].view(np.uint32)[0] == 103
    assert found[16].tolist() == [seven] * 4 + [103] * 28


# what strict mode knows -----------------------------------------------------------------------------------------------


def strictly(engine, texts, controls, head=0):
    isa = machine("sm_86")
    words = [isa.encode(text, control, 16 * at) for at, (text, control) in enumerate(zip(texts, controls, strict=True))]
    code = b"".join(word.to_bytes(16, "little") for word in words)
    tables, said = pools(0, [head])
    # buffers of the program itself come first in `pools`
    filler = [np.zeros(16, np.uint8) for _ in range(3)]
    chosen = Interpreter("sm_86") if engine == "interpreter" else Translator("sm_86", worthwhile=0)
    return workbench.run(
        chosen, code, [*filler, *tables], groups=(1, 1, 1), group_size=(32, 1, 1), registers=24, parameters_at=0, **said
    )


LOAD = "SULD.P.1D.STRONG.SYS.IGN R4, [R8], R10"
SAMPLE = "TLD.B.LZ RZ, R4, R8, R10, 1D, 0x3"


@pytest.mark.parametrize("engine", ["interpreter", "translator"])
@pytest.mark.parametrize("text", [LOAD, SAMPLE])
def test_results_and_sources_wait_for_their_scoreboards(engine, text):
    texts = ["MOV R8, RZ", "MOV R10, RZ", text, "MOV R12, R5", "MOV R8, 0x1", "EXIT"]
    fine = [Control(stall=6), Control(stall=6), Control(stall=2, write=1, read=2), Control(stall=6, wait=2), Control(stall=6, wait=4),
            Control(stall=5)]  # fmt: skip
    strictly(engine, texts, fine)
    early = [*fine[:3], Control(stall=6), *fine[4:]]
    with pytest.raises(GuestError, match=r"hazard .*R5 is read before scoreboard 1 has been waited for"):
        strictly(engine, texts, early)
    # A result waits too, so the write's scoreboard would do for the source.
    texts[3] = "MOV R12, R8"
    with pytest.raises(GuestError, match=r"hazard .*R8 is overwritten before scoreboard"):
        strictly(engine, texts, [*fine[:3], Control(stall=6), Control(stall=6), fine[5]])


@pytest.mark.parametrize("engine", ["interpreter", "translator"])
@pytest.mark.parametrize("text", [LOAD, SAMPLE])
def test_a_handle_that_was_never_written_is_reported(engine, text):
    texts = ["MOV R8, RZ", text, "EXIT"]
    controls = [Control(stall=6), Control(stall=2, write=1, read=2), Control(stall=5, wait=6)]
    with pytest.raises(GuestError, match=r"uninitialised .*R10 is an address and was never given a value in lane 0"):
        strictly(engine, texts, controls)


def test_an_atomic_of_another_size_than_the_texels_is_named():
    head = header(0, "1D", (4,), SIZES["R16"], (UINT,) * 4)
    with pytest.raises(GuestError, match="an atomic of 4 bytes on texels of 2"):
        surfaces("sm_86", ["SURED.D.1D.ADD.STRONG.SYS.IGN [R8], R12, R10"], {}, [np.zeros(512, np.uint8)], [head])

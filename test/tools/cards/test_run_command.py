"""`ringup run` and `ringup trace`: kernels get their arguments from words and files, and give results back to files."""

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from ringup.tools.cards import kernel_arguments
from ringup.tools.common import files
from ringup.tools.demo.kernels import BLOCK, compile_for

WIDTH, STEPS, LEFT, TOP, PIXEL = 256, 50, -2.2, -1.5, 0.01
NUMBERS = ["--arg", "256", "--arg", "u32:50", "--arg", "f32:-2.2", "--arg=-1.5", "--arg", "0.01"]
PUT = """
define amdgpu_kernel void @put(ptr addrspace(1) %out, float %value) {
  store float %value, ptr addrspace(1) %out
  ret void
}
"""


def escapes(items):
    """What the kernel computes, by NumPy in single precision: how many steps each point takes to leave the circle of
    radius 2.
    """
    index = np.arange(items)
    single = np.float32
    cx = (single(LEFT) + (index % WIDTH).astype(single) * single(PIXEL)).astype(single)
    cy = (single(TOP) + (index // WIDTH).astype(single) * single(PIXEL)).astype(single)
    x, y, steps = np.zeros(items, single), np.zeros(items, single), np.zeros(items, np.uint32)
    alive = np.ones(items, bool)
    for _ in range(STEPS):
        xx, yy = x * x, y * y
        alive &= xx + yy < 4
        steps += alive
        x, y = np.where(alive, xx - yy + cx, x), np.where(alive, x * y * 2 + cy, y)
    return steps


def test_a_kernel_runs_and_its_buffer_is_shown_and_written(plug, ringup, mandelbrot, tmp_path):
    card = plug()
    out = tmp_path / "steps.bin"
    words = ["run", card.name, mandelbrot, "--grid", "4", "--block", BLOCK, "--arg", f"out:{out}:4K", *NUMBERS]
    status, text, err = ringup(*words)
    assert (status, err) == (0, "")
    assert text.startswith("mandelbrot ran on virtual:navi31 in ")
    wanted = escapes(4 * BLOCK)
    assert out.read_bytes() == wanted.astype("<u4").tobytes()
    words[words.index(f"out:{out}:4K")] = "show:4096:u32"
    document = json.loads(ringup(*words, "--json", "--times", "3")[1])
    assert document["results"][0]["values"] == wanted.tolist()
    assert len(document["us"]) == 3
    assert "argument 0: u32 " in ringup(*words)[1]


@pytest.fixture
def stored(tmp_path):
    """A code object whose kernel `put` stores one dword. Its arguments are (buffer, value)."""
    (tmp_path / "put.o").write_bytes(compile_for("gfx1100", PUT))
    return tmp_path / "put.o"


@pytest.mark.parametrize(("word", "text"), [("f32:nan", "nan"), ("f32:inf", "inf"), ("f32:-inf", "-inf")])
def test_numbers_that_json_has_no_word_for_are_strings(plug, ringup, stored, word, text):
    card = plug()
    words = ["run", card.name, stored, "--block", "1", "--arg", "show:4:f32", "--arg", word]
    assert json.loads(ringup(*words, "--json")[1], parse_constant=pytest.fail)["results"][0]["values"] == [text]
    assert ringup(*words)[1].endswith(f"argument 0: f32 {text}\n")


def test_items_leave_the_last_group_part_full(plug, ringup, mandelbrot):
    card = plug()
    words = ["--items", "300", "--block", BLOCK, "--arg", "show:2K:u32", *NUMBERS, "--json"]
    values = json.loads(ringup("run", "--card", card.name, mandelbrot, "mandelbrot", *words)[1])["results"][0]["values"]
    assert values == [*escapes(300).tolist(), *[0] * 212]


def test_an_array_comes_back_as_it_was_shaped(plug, ringup, mandelbrot, tmp_path):
    card = plug()
    np.save(tmp_path / "a.npy", np.zeros((4, BLOCK), np.uint32))
    word = f"inout:{tmp_path / 'a.npy'}:{tmp_path / 'b.npy'}"
    assert ringup("run", card.name, mandelbrot, "--grid", "4", "--block", BLOCK, "--arg", word, *NUMBERS)[0] == 0
    assert np.array_equal(np.load(tmp_path / "b.npy"), escapes(4 * BLOCK).reshape(4, BLOCK))


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        ([], 2, "mandelbrot takes 6 arguments, not 0"),
        (["--block", "2048"], 2, "block x is 2048 work-items"),
        (["nothing"], 2, "has no kernel nothing; it has mandelbrot"),
        (["a", "b"], 2, "give one code object and at most one kernel"),
        (["--arg", "u8:300"], 2, "u8 holds 0 to 255"),
        (["--arg", "u9:1"], 2, "u9 is not a kind of argument"),
        (["--arg", "word"], 2, "'word' is neither a number such as 7, 0x7 or 2.5 nor a buffer"),
        (["--arg", ""], 2, "'' is neither a number such as"),
        (["--arg", "f32:x"], 2, "'x' is not a number: write 2.5"),
        (["--arg", "u32:x"], 2, "'x' is not a whole number: write 7 or 0x7"),
        (["--arg", "f16:1e9"], 2, "f16 holds at most 65504"),
        (["--arg", "f64:1e400"], 2, "f64 holds at most 1.79769e+308"),
        (["--arg", "show:4095:f32"], 2, "4095 bytes are not a multiple of f32, which has 4 bytes"),
        (["--arg", "show:7:u64"], 2, "7 bytes are not a multiple of u64"),
        (["--arg", "out:/nope/y:4K"], 1, "/nope/y: No such file or directory; check its path"),
        (["--arg", "zero:1000G", *NUMBERS], 24, "1000 GiB asked for argument 0"),
        (["--arg", "in:HUGE", *NUMBERS], 24, "1000 GiB asked for argument 0"),
        (["--arg", "in:HUGE.npy", *NUMBERS], 2, "mmap length is greater than file size"),
        (["--arg", "in:EMPTY.npy", *NUMBERS], 2, "EMPTY.npy is not a NumPy array"),
        (["--arg", "in:ZIP.npy", *NUMBERS], 2, "ZIP.npy is not a NumPy array"),
        (["--arg", "in:OPEN.npy", *NUMBERS], 2, "OPEN.npy is not a NumPy array written by `numpy.save`: ("),
        (["--arg", "out:file"], 2, "out:FILE:SIZE"),
        (["--arg", "zero:0"], 2, "an empty buffer"),
        (["--arg", "show:64:text"], 2, "show:SIZE:TYPE"),
        (["--arg", "in:/no/such/file"], 1, "No such file or directory"),
    ],
)
def test_what_does_not_fit_is_named(plug, ringup, mandelbrot, tmp_path, monkeypatch, words, status, text):
    card = plug()
    monkeypatch.chdir(tmp_path)
    with open("HUGE", "wb") as huge:
        huge.truncate(1000 << 30)
    with open("HUGE.npy", "wb") as claims:
        np.lib.format.write_array_header_1_0(claims, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)})
    open("EMPTY.npy", "wb").close()
    np.save("OPEN", np.zeros(4, "f4"))
    Path("OPEN.npy").write_bytes(Path("OPEN.npy").read_bytes().replace(b"(4,)", b"(4,("))
    np.savez("ZIP", np.zeros(4))
    Path("ZIP.npz").rename("ZIP.npy")
    got, out, err = ringup("run", card.name, mandelbrot, *words)
    assert (got, out, text in err, err.count("\n")) == (status, "", True, 1), err


def test_a_stream_is_read_once_and_not_without_end(plug, ringup, stored, monkeypatch):
    card = plug()
    words = ["run", card.name, stored, "--block", "1", "--arg", "show:4:f32", "--arg", "f32:2"]
    read, write = os.pipe()
    os.write(write, b"four")
    os.close(write)
    assert kernel_arguments.parse(f"in:/dev/fd/{read}").contents() == b"four"
    monkeypatch.setattr(files, "STREAM_BYTES", 4096)
    status, _, err = ringup(*words, "--arg", "in:/dev/zero")
    assert (status, "/dev/zero is not an ordinary file and has more than 4096 bytes" in err) == (2, True)
    os.close(read)


def test_a_program_for_another_chip_is_reported(plug, ringup, mandelbrot):
    card = plug("navi33")
    status, _, err = ringup("run", card.name, mandelbrot)
    assert (status, "built for gfx1100" in err) == (33, True)


def test_what_is_no_code_object_is_reported(plug, ringup, tmp_path):
    card = plug()
    (tmp_path / "text.o").write_text("no code at all")
    assert ringup("run", card.name, tmp_path / "text.o")[0] == 32
    assert ringup("run", card.name, tmp_path / "absent.o")[0] == 32


def test_numbers_are_packed_as_they_are_typed():
    packed = {
        "i16:-2": struct.pack("<h", -2),
        "f64:0.5": struct.pack("<d", 0.5),
        "u64:0x1234": struct.pack("<Q", 0x1234),
    }
    assert {word: kernel_arguments.parse(word).value.tobytes() for word in packed} == packed


def test_a_trace_holds_the_kernel_and_the_stages(plug, ringup, mandelbrot, tmp_path):
    card = plug()
    path = tmp_path / "run.pftrace"
    words = ["--grid", "2", "--block", BLOCK, "--arg", "zero:4K", *NUMBERS, "--perfetto", path]
    assert ringup("trace", card.name, mandelbrot, *words)[0] == 0
    data = path.read_bytes()
    assert b"mandelbrot" in data
    assert b"waking the bus" in data


def test_a_transcript_is_played_by_the_same_command(ringup, tmp_path):
    path = tmp_path / "session.ringup"
    record, play = tmp_path / "a.pftrace", tmp_path / "b.pftrace"
    assert ringup("trace", "virtual:navi31", "--transcript", path, "--perfetto", record)[0] == 0
    assert ringup("trace", f"replay:{path}", "--perfetto", play)[0] == 0
    assert record.read_bytes() == play.read_bytes()
    shown = json.loads(ringup("trace", "--decode", path, "--window", "config", "--rows", "1", "--json")[1])
    # The first read covers the device and the vendor id.
    assert (shown["card"], shown["shown"][0]["result"]) == ("virtual:navi31", 0x744C_1002)
    text = ringup("trace", "--decode", path, "--skip", "3", "--rows", "2")[1].splitlines()
    assert text[0].startswith(f"{path}: virtual:navi31, ")
    assert text[-1].startswith("... and ")
    assert ringup("trace", "--decode", path, "--window", "bar9")[0] == 2


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ([], 2),
        (["--decode", "x", "virtual:navi31"], 2),
        (["--decode", "/no/such/file"], 40),
        (["virtual:navi31", "--perfetto", "/no/such/z", "--transcript", "/no/such/../such/z"], 2),
    ],
)
def test_a_trace_of_nothing_is_wrong_usage(ringup, words, status):
    assert ringup("trace", *words)[0] == status


@pytest.mark.parametrize("option", ["--rows", "--skip"])
def test_fewer_than_no_rows_are_wrong_usage(ringup, capsys, option):
    with pytest.raises(SystemExit) as end:
        ringup("trace", "--decode", "x", option, "-1")
    assert (end.value.code, "0 or more, not -1" in capsys.readouterr().err) == (2, True)


def test_a_transcript_is_recorded_and_played_behind_a_bridge(dock, ringup, tmp_path):
    dock()
    path = tmp_path / "session.ringup"
    record, play = tmp_path / "a.pftrace", tmp_path / "b.pftrace"
    status, _, err = ringup("trace", "virtual:navi31@asm2464pd", "--transcript", path, "--perfetto", record)
    assert (status, err) == (0, "")
    assert ringup("trace", f"replay:{path}", "--perfetto", play)[0] == 0
    assert record.read_bytes() == play.read_bytes()


def test_a_transcript_that_could_not_be_ended_is_not_left(plug, ringup, tmp_path, monkeypatch):
    def broken_off(card, watch):
        raise KeyboardInterrupt

    plug()
    monkeypatch.setattr("ringup.tools.cards.trace.prove_queues", broken_off)
    assert ringup("trace", "virtual:navi31", "--transcript", tmp_path / "t")[0] == 130
    assert list(tmp_path.iterdir()) == []


def test_what_a_card_did_until_it_failed_is_kept_and_played(dock, ringup, tmp_path):
    enclosure = dock()
    path = tmp_path / "t"
    enclosure.faults.inject("disconnect_after_transfers", 1200)
    status, _, err = ringup("trace", "virtual:navi31@asm2464pd", "--transcript", path)
    assert (status, f"{path} has the accesses up to the failure\n" in err) == (20, True)
    assert ringup("trace", f"replay:{path}", "--perfetto", tmp_path / "p")[0] == 20


def test_a_damaged_transcript_is_reported(ringup, tmp_path):
    (tmp_path / "bad").write_bytes(b"\x1f\x8bnonsense")
    status, _, err = ringup("trace", "--decode", tmp_path / "bad")
    assert (status, "damaged" in err) == (40, True)

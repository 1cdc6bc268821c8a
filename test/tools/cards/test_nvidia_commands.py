"""Commands on a card that stays with NVIDIA's kernel driver: what they print, and each mistake as one sentence."""

import json
import re

import pytest
from nvidia_code import sass_programs

from ringup.compiler.isa.sass import assembly, cubin_write
from ringup.compiler.isa.sass.cubin import Generation
from ringup.drivers.submission import card_queue
from ringup.errors import (
    DeviceFault,
    DeviceTimeout,
    NoSuchCard,
    NotSupported,
    WrongTarget,
)

CARD = "virtual:ga102@nvidia"
# words that are right on a Radeon only
AMDS = re.compile(r"compute unit|wave|LDS|VGPR|amdgpu|mode1|Radeon|AMD|shader engine|gfx|code object", re.IGNORECASE)
GREEDY = """
.target sm_86
.kernel greedy
.registers 255
.parameter 8
  [B------:R-:W-:Y:S05] EXIT
"""


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "programs.cubin"
    path.write_bytes(sass_programs.cubin("sm_86"))
    return path


@pytest.mark.parametrize(
    "words",
    [["up"], ["info"], ["stats"], ["top"], ["report"], ["report", "--up"], ["reset"], ["mem", "list"]],
    ids=" ".join,
)
def test_every_command_answers_people_and_programs_in_the_cards_own_words(ringup, words):
    name, *rest = words
    status, out, err = ringup(name, CARD, *rest)
    assert (status, err) == (0, "")
    assert not AMDS.search(out)
    status, out, err = ringup(name, CARD, *rest, "--json")
    assert (status, err) == (0, "")
    assert CARD in json.dumps(json.loads(out))
    assert not AMDS.search(out.replace("compute_units", "").replace("wave_size", ""))


def test_up_moves_bytes_through_both_kinds_of_queue(ringup):
    _, out, _ = ringup("up", CARD)
    first, _, last = out.splitlines()
    assert first == f"{CARD} is up: ga102 (10de:2236), 24576 MiB, 72 SMs, sm_86"
    assert last == "1024 KiB went through both kinds of queue and came back unchanged"


def test_info_has_what_the_driver_tells(ringup):
    shown = json.loads(ringup("info", CARD, "--json")[1])
    assert (shown["chip"], shown["target"], shown["pci_id"]) == ("ga102", "sm_86", "10de:2236")
    assert shown["core"]["sms"] == 72
    assert shown["sensors"]["vram_total_bytes"] == shown["vram_bytes"] == 24 << 30
    assert shown["versions"] == {"nvidia": "535.261.03", "layouts": "535.261.03"}
    assert shown["resets"] == ["channel"]


def test_mem_lists_buffers_by_address_on_any_card(ringup, plug):
    rows = json.loads(ringup("mem", CARD, "list", "--json")[1])["buffers"]
    assert [row["gpu_va"] for row in rows] == sorted(row["gpu_va"] for row in rows)
    assert "compute: GPFIFO" in {row["name"] for row in rows}
    plug()
    assert re.search(r"^0x[0-9a-f]{12} to 0x[0-9a-f]{12} .* host ", ringup("mem", "virtual:navi31", "list")[1], re.M)


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (["down", CARD], NotSupported, "NVIDIA's driver drives it, ends a process's work with the process"),
        (["mem", CARD, "read", "0", "64"], NotSupported, "shows no process another's memory; `ringup mem"),
        (["regs", CARD, "PMC_BOOT_0"], NotSupported, "is driven by its kernel driver, which gives no access to registers"),
        (["up", CARD, "--force"], NotSupported, "by force: NVIDIA's driver drives the card"),
        (["info", "nvidia:x"], NoSuchCard, "the number of its node follows"),
        (["up", "virtual:ga103@nvidia"], NoSuchCard, "no virtual card 'ga103'"),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else "",
)  # fmt: skip
def test_what_the_path_does_not_offer_is_refused_in_one_sentence(ringup, words, error, said):
    status, out, err = ringup(*words)
    assert (status, out, len(err.splitlines())) == (error.exit_code, "", 1)
    assert said in err


def test_another_reset_is_refused(ringup):
    status, _, err = ringup("reset", CARD, "--first", "mode1")
    assert (status, "through NVIDIA's driver it has channel" in err) == (2, True)


def test_run_runs_a_kernel_of_a_cubin(ringup, code, tmp_path):
    status, out, _ = ringup("run", CARD, code, "counts", "--grid", "4", "--block", "32", "--arg", "show:4:u32")
    assert status == 0
    assert re.fullmatch(rf"counts ran on {CARD} in \d+\.\d us\n  argument 0: u32 128\n", out)
    words = bytes(range(256)) * 2
    (tmp_path / "in").write_bytes(words)
    status, out, _ = ringup(
        "run", CARD, code, "reverse", "--block", "128", "--arg", f"inout:{tmp_path}/in:{tmp_path}/out", "--json"
    )
    assert json.loads(out)["results"] == [{"argument": 0, "size_bytes": 512, "file": f"{tmp_path}/out"}]
    pieces = [words[at : at + 4] for at in range(0, 512, 4)]
    assert (tmp_path / "out").read_bytes() == b"".join(reversed(pieces))


def test_run_takes_what_asm_makes(ringup, tmp_path):
    source, made = tmp_path / "k.sass", tmp_path / "k.cubin"
    source.write_text(GREEDY)
    assert ringup("asm", source, "-o", made)[0] == 0
    assert ringup("run", CARD, made, "--block", "32", "--arg", "zero:4")[0] == 0


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["nope", "--arg", "zero:4"], 2, "has no kernel nope; it has add, counts, local, reverse, spin"),
        ([], 2, "has 5 kernels, name one"),
        (["counts"], 2, "counts takes 1 arguments, not 0"),
        (["counts", "--block", "2000", "--arg", "zero:4"], 2, "block x is 2000 threads; 1 to 1024 are possible"),
        (["counts", "--shared", "200K", "--arg", "zero:4"], 2, "204800 dynamic ones; a block of sm_86 has 101376"),
        (["counts", "--items", "100", "--arg", "zero:4"], NotSupported.exit_code, "round the grid up"),
        (["counts", "--arg", "u64:0x7f00000000"], DeviceFault.exit_code, "FAULT_PDE at 0x7f00000000: in no buffer"),
        (["spin", "--block", "1", "--timeout", "0.01", "--arg", "zero:4"], DeviceTimeout.exit_code, "it stood at 2 (of 3 submitted) for 0.01 s"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_and_a_status(ringup, code, monkeypatch, words, status, said):
    monkeypatch.setattr(card_queue, "CLOSE_S", 0.001)
    seen, out, err = ringup("run", CARD, code, *words)
    assert (seen, out, len(err.splitlines())) == (status, "", 1)
    assert said in err


def test_code_of_another_chip_or_vendor_is_refused(ringup, plug, code, tmp_path, mandelbrot):
    other = tmp_path / "other.cubin"
    other.write_bytes(sass_programs.cubin("sm_75"))
    for card, file, said in (
        (CARD, other, "was compiled for sm_75; the card runs sm_86"),
        (CARD, mandelbrot, f"is no cubin: {CARD} (sm_86) runs a cubin"),
        ("virtual:navi31", code, "is no code object: virtual:navi31 (gfx1100) runs a code object"),
    ):
        if card != CARD:
            plug()
        status, _, err = ringup("run", card, file, *(["counts"] if file in (code, other) else []), "--arg", "zero:4")
        assert (status, said in err) == (WrongTarget.exit_code, True)


def test_a_block_that_needs_more_registers_than_there_are_is_refused(ringup, tmp_path):
    made = assembly.assemble(GREEDY, "greedy")
    path = tmp_path / "greedy.cubin"
    path.write_bytes(cubin_write.write(made.kernels, "sm_86", Generation.CUDA_12, made.data, made.addresses))
    status, _, err = ringup("run", CARD, path, "--block", "1024", "--arg", "zero:4")
    assert (status, len(err.splitlines())) == (2, 1)
    assert "registers" in err


def test_a_damaged_cubin_is_an_error_of_the_file(ringup, code):
    code.write_bytes(code.read_bytes()[:900])
    status, out, err = ringup("run", CARD, code, "counts", "--arg", "zero:4")
    assert out == ""
    assert (status, len(err.splitlines())) == (32, 1)
    assert "CompileError" in err

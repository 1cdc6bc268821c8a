"""The exact output of commands, as text and as JSON. Times and the driver's own use of memory are left out.

The golden files hold the program's own output, which somebody read and accepted, so a test shows every change. Other
tests check that the output is right: `info`, `regs`, `stats` and `mem` against the model's state, `decode` against the
words of the headers.

After an intended change run `pytest test/tools/command_line/test_golden.py --update-golden`, and read the difference.
"""

import re
from pathlib import Path

import pytest

from ringup.firmware.nv import build, build_rom

GOLDEN = Path(__file__).parent / "golden"
NUMBERS = ["--arg", "256", "--arg", "50", "--arg", "f32:-2.2", "--arg", "f32:-1.5", "--arg", "f32:0.01"]
RADEON = "virtual:navi31"
# Golden file to command lines. {tmp} is a folder with the files that `folder` makes.
CASES = {
    "list": (["list"], ["list", "--json"]),
    "up": (["up", RADEON], ["up", RADEON, "--json"], ["up", "navi31"], ["up", "virtual:navi99"]),
    "down": (["down", RADEON], ["down", RADEON, "--json", "--awake"]),
    "info": (["info", RADEON], ["info", RADEON, "--json"]),
    "stats": (["stats", RADEON], ["stats", RADEON, "--json"]),
    "top": (["top", RADEON], ["top", RADEON, "--json"]),
    "regs": (
        ["regs", "navi31", "SCRATCH_REG0"],
        ["regs", "navi31", "GRBM_STATUS=0x3028"],
        ["regs", RADEON, "GRBM_STATUS"],
        ["regs", RADEON, "SCRATCH_REG0", "--json"],
        ["regs", RADEON, "SCRATCH_REG0=1"],
    ),
    "mem": (
        ["mem", RADEON, "read", "0xfff0000", "64"],
        ["mem", RADEON, "read", "0", "4", "--json"],
        ["mem", RADEON, "write", "0x200000", "0011"],
        ["mem", RADEON, "read", "0", "4", "--space", "gpu"],
    ),
    "run": (
        ["run", RADEON, "{tmp}/mandelbrot.o", "--block", "256", "--arg", "show:1K:u32", *NUMBERS],
        ["run", RADEON, "{tmp}/mandelbrot.o", "--block", "256", "--arg", "out:{tmp}/out:1K", *NUMBERS, "--json"],
        ["run", RADEON, "{tmp}/mandelbrot.o"],
    ),
    "trace": (
        ["trace", RADEON, "--perfetto", "{tmp}/p"],
        ["trace", RADEON, "--perfetto", "{tmp}/p", "--json"],
        ["trace", RADEON],
    ),
    "reset": (["reset", RADEON], ["reset", RADEON, "--json"]),
    "report": (["report", RADEON], ["report", RADEON, "--json"]),
    "decode": (
        ["decode", "pm4", "{tmp}/ib.txt", "--hex"],
        ["decode", "pm4", "{tmp}/ib.txt", "--hex", "--json"],
        ["decode", "nvidia", "{tmp}/push.txt", "--hex"],
        ["decode", "nvidia", "{tmp}/push.txt", "--hex", "--json"],
    ),
    "program": (["program", "{tmp}/mandelbrot.o"], ["program", "{tmp}/mandelbrot.o", "--json"]),
    "firmware": (
        ["firmware", "show", "{tmp}/gc_11_0_0_rlc.bin"],
        ["firmware", "show", "{tmp}/gc_11_0_0_rlc.bin", "--json"],
        ["firmware", "check", "ga102", "--only", "--folder", "{tmp}/nv"],
        ["firmware", "check", "ga102", "--only", "--folder", "{tmp}/nv", "--release", "570.144", "--json"],
        ["firmware", "show", "{tmp}/nv/gsp-535.113.01.bin"],
        ["firmware", "show", "{tmp}/nv/booter_load-535.113.01.bin"],
        ["firmware", "show", "{tmp}/nv/bootloader-535.113.01.bin"],
        ["firmware", "show", "{tmp}/nv/gen_bootloader-570.144.bin"],
        ["firmware", "show", "{tmp}/nv/fmc-570.144.bin"],
        ["firmware", "show", "{tmp}/nv/card.rom"],
        ["firmware", "show", "{tmp}/nv/card.rom", "--json"],
    ),
    "setup": (["setup", "--root", "{tmp}/system"], ["setup", "--root", "{tmp}/system", "--json", "--only", "usb"]),
    "help": (["--help"], ["up", "--help"], ["mem", "--help"]),
}
# The same on a card that stays with NVIDIA's kernel driver, where no slot is filled before.
GEFORCE = "virtual:ga102@nvidia"
NVIDIAS = {
    "nvidia": (
        ["up", GEFORCE],
        ["up", GEFORCE, "--json"],
        ["info", GEFORCE],
        ["info", GEFORCE, "--json"],
        ["stats", GEFORCE],
        ["stats", GEFORCE, "--json"],
        ["top", GEFORCE],
        ["report", GEFORCE],
        ["report", GEFORCE, "--json"],
        ["report", GEFORCE, "--up"],
        ["reset", GEFORCE],
        ["down", GEFORCE],
        ["mem", GEFORCE, "list"],
        ["mem", GEFORCE, "read", "0", "64"],
        ["regs", GEFORCE, "PMC_BOOT_0"],
        ["asm", "{tmp}/add_one.sass", "-o", "{tmp}/add_one.cubin"],
        ["run", GEFORCE, "{tmp}/add_one.cubin", "--block", "4", "--arg", "show:16:f32"],
        ["run", GEFORCE, "{tmp}/add_one.cubin", "--block", "4", "--arg", "show:16:f32", "--json"],
        ["run", GEFORCE, "{tmp}/add_one.cubin", "--block", "4", "--arg", "0x7f00000000"],
        ["run", GEFORCE, "{tmp}/add_one.cubin"],
    ),
}
# the first example of docs/sass.md
ADD_ONE = """
.target sm_86
.kernel add_one
.registers 8
.parameter 8
  [B------:R-:W0:Y:S02] S2R R0, SR_TID.X
  [B------:R-:W-:Y:S05] MOV R3, 0x4
  [B0-----:R-:W-:Y:S05] IMAD.WIDE.U32 R2, R0, R3, c[0x0][0x160]
  [B------:R-:W0:Y:S02] LDG.E R1, [R2]
  [B0-----:R-:W-:Y:S05] FADD R1, R1, 1
  [B------:R-:W-:Y:S02] STG.E [R2], R1
  EXIT
"""
VARYING = "at_us|us|ms|bound_ms|bring_up_ms|kernel_us|buffers|used_bytes|peak_bytes|free_bytes|largest_bytes|rptr_bytes|wptr_bytes"
VARYING += "|vram_used_bytes|vram_free_bytes"
# Pattern to its replacement.
RULES = (
    (re.compile(rf'"({VARYING})": (\[[-0-9., ]*\]|-?[0-9.]+(e-?\d+)?)'), r'"\1": N'),
    (re.compile(rf"^( *)({VARYING}) +\d+$", re.MULTILINE), r"\1\2 N"),
    (re.compile(r"\d+(\.\d+)? (ms|us)\b"), r"N \2"),
    # The column of MiB in a table.
    (re.compile(r"^ (vram|host) .*$", re.MULTILINE), r" \1 N"),
)
WHITE_AT_ENDS = re.compile(r" +$", re.MULTILINE)


def settled(text, folder):
    """Return a command's output with the parts that vary replaced."""
    text = text.replace(str(folder), "TMP")
    for pattern, stands in RULES:
        text = pattern.sub(stands, text)
    return WHITE_AT_ENDS.sub("", text)


@pytest.fixture
def folder(tmp_path, mandelbrot):
    """A folder with the files that the command lines name."""
    (tmp_path / "mandelbrot.o").write_bytes(mandelbrot.read_bytes())
    # llvm-mc has no PM4. soc15d.h: PACKET3(PACKET3_NOP, 0), and PACKET3_WRITE_DATA of two dwords to memory.
    (tmp_path / "ib.txt").write_text(
        "c0001000 00000000  # NOP\nc0043700 00100500 00001000 00000001 deadbeef cafe0000\n"
    )
    (tmp_path / "nv").mkdir()
    booter = build.booter_image(b"o" * 256, b"a" * 256, b"d" * 1024, (b"1" * 384, b"2" * 384))
    for name, blob in {
        "gsp-535.113.01.bin": build.gsp_image("535.113.01", b"i" * 64, {"ga10x": b"s" * 64, "ad10x": b"t" * 64}),
        "bootloader-535.113.01.bin": build.bootloader_image(bytes(512), {"appVersion": 0x1234, "manifestOffset": 256}),
        "booter_load-535.113.01.bin": booter,
        "booter_unload-535.113.01.bin": booter,
        "gen_bootloader-570.144.bin": build.loader_image(b"l" * 512, 0xFD),
        "fmc-570.144.bin": build.fmc_for("gb202", b"i" * 64),
        "card.rom": build_rom.expansion_rom(),
    }.items():
        (tmp_path / "nv" / name).write_bytes(blob)
    # clc56f.h, clc7c0.h, clc7b5.h: bind compute; a semaphore's address and value; a copy; a reserved header
    (tmp_path / "push.txt").write_text(
        "20012000 0000c7c0  # SET_OBJECT\n200426c0 0000007f 00002000 00000007 10000004\n200180c0 00000182\nc0000000\n"
    )
    (tmp_path / "add_one.sass").write_text(ADD_ONE)
    (tmp_path / "system/etc").mkdir(parents=True)
    (tmp_path / "system/etc/group").write_text("plugdev:x:46:\nrender:x:105:\n")
    return tmp_path


@pytest.mark.parametrize("name", CASES)
def test_commands_print_what_they_printed(name, plug, ringup, folder, monkeypatch, request):
    card = plug()
    (folder / "gc_11_0_0_rlc.bin").write_bytes(card.firmware("amdgpu/gc_11_0_0_rlc.bin"))
    compare(name, CASES[name], ringup, folder, monkeypatch, request)


@pytest.mark.parametrize("name", NVIDIAS)
def test_commands_on_nvidias_driver_print_what_they_printed(name, ringup, folder, monkeypatch, request):
    compare(name, NVIDIAS[name], ringup, folder, monkeypatch, request)


def compare(name, cases, ringup, folder, monkeypatch, request):
    """Run the command lines and compare all that they print with the golden file."""
    for variable in ("RINGUP_CARD", "SUDO_USER"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    parts = []
    for words in cases:
        words = [word.replace("{tmp}", str(folder)) for word in words]
        try:
            status, out, err = ringup(*words)
        except SystemExit as end:  # help
            status, (out, err) = end.code, request.getfixturevalue("capsys").readouterr()
        parts.append(f"$ ringup {' '.join(words)}\n{out}{err}[{status}]\n")
    seen, path = settled("\n".join(parts), folder), GOLDEN / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        path.write_text(seen)
    assert seen == path.read_text(), f"if this is meant: --update-golden, and read what changed in {path.name}"


def test_no_golden_file_is_left_over():
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {*CASES, *NVIDIAS}

"""`ringup decode`: it turns files and text into packets of the chip, and refuses input that is no stream."""

import io
import json
import struct
import sys

import pytest

from ringup.tools.command_line import cli

# From a stream that RADV made for a navi31.
DISPATCH = [0xC002_7600, 0x212, 0x602C_0002, 0x86, 0xC003_1502, 5, 3, 2, 0x2045]
FENCE = [0x0003_0005, 0x1000, 2, 7]  # SDMA 6: MTYPE(3)


@pytest.fixture
def ask(capsys):
    """Run the whole command; return status, output and errors."""

    def run(*words):
        status = cli.main(["decode", *map(str, words)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def file(tmp_path):
    """Make a file of dwords."""

    def make(dwords):
        path = tmp_path / "stream.bin"
        path.write_bytes(struct.pack(f"<{len(dwords)}I", *dwords))
        return path

    return make


def test_registers_go_by_the_chips_names(ask, file):
    status, out, _ = ask("pm4", file(DISPATCH))
    assert status == 0
    assert out.splitlines()[:4] == [
        "[0x0000] SET_SH_REG  (c0027600 00000212 602c0002 00000086)",
        "    reg_offset: 0x212",
        "    COMPUTE_PGM_RSRC1 (0x2e12) <- 0x602c0002",
        "        VGPRS: 0x2",
    ]
    assert "    dim_x: 5" in out.splitlines()
    assert "partial_tg_en" not in out
    assert "    partial_tg_en: 0x0" in ask("pm4", file(DISPATCH), "--all")[1].splitlines()


@pytest.mark.parametrize("chip", ["mi300x", "navi48", "strix"])
def test_every_generations_registers_have_names(ask, file, chip):
    status, out, _ = ask("pm4", file(DISPATCH), "--chip", chip, "--json")
    assert status == 0
    assert json.loads(out)[0]["registers"][0] == {"address": 0x2E12, "name": "COMPUTE_PGM_RSRC1", "value": 0x602C_0002}


@pytest.mark.parametrize(
    "chip", ["mi300x", "mi350", "navi31", "navi32", "navi33", "navi44", "navi48", "phoenix", "strix", "strix_halo"]
)
def test_every_chips_copy_engine_is_known(ask, file, chip):
    status, out, _ = ask("sdma", file(FENCE), "--chip", chip, "--json")
    (packet,) = json.loads(out)
    assert (status, packet["name"], packet["raw"]) == (0, "FENCE", FENCE)
    assert packet["fields"]["addr"] == 0x2_0000_1000


def test_text_is_taken_too(ask, tmp_path, monkeypatch):
    path = tmp_path / "stream.txt"
    path.write_text("# a fence\n0x00030005, 00001000\n2: 7  # value\n")
    assert ask("sdma", path, "--hex")[1].splitlines()[0] == "[0x0000] FENCE  (00030005 00001000 00000002 00000007)"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"c0004200 0")))
    assert ask("pm4", "-", "--hex")[1].splitlines()[0] == "[0x0000] PFP_SYNC_ME  (c0004200 00000000)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("c0004200\nhello", "line 2: 'hello' is not a hexadecimal dword"),
        ("100000000", "line 1: '100000000' is wider than 32 bits"),
    ],
)
def test_text_that_is_no_stream_is_refused(ask, tmp_path, text, message):
    path = tmp_path / "stream.txt"
    path.write_text(text)
    status, out, err = ask("pm4", path, "--hex")
    assert (status, out) == (1, "")
    assert err == f"ringup decode: {path}: {message}\n"


def test_chips_without_known_packets_and_missing_files_are_said(ask, tmp_path, file):
    status, _, err = ask("pm4", file(FENCE), "--chip", "ga102")
    assert (status, err) == (11, "ringup decode: NotSupported: ga102 has no graphics core with known packets\n")
    status, _, err = ask("pm4", tmp_path / "none")
    assert status == 1
    assert "No such file" in err


def test_packets_of_an_hsa_queue_are_shown_by_their_headers_names(ask, file):
    # hsa.h: a dispatch with barrier and system scopes, of two dimensions; then a slot without a packet
    dispatch = [0x0002_1502, 0x0004_0040, 1, 1000, 77, 1, 0, 0, 0x1040, 0, 0x2000, 0, 0, 0, 0x3000, 0]
    status, out, _ = ask("aql", file([*dispatch, 1, *[0] * 15]))
    assert status == 0
    assert out.splitlines()[:4] == [
        "[0x0000] KERNEL_DISPATCH  (00021502 00040040 00000001 000003e8 0000004d 00000001 00000000 00000000 +8)",
        "    type: 0x2",
        "    barrier: 0x1",
        "    acquire_fence_scope: 0x2 (SYSTEM)",
    ]
    assert "    grid_size_x: 1000" in out.splitlines()
    assert "[0x0010] INVALID" in out
    assert "! no packet: a queue stops here until one is stored" in out

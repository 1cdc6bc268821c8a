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


# clc56f.h, clc7c0.h: bind a compute class, its version, then copy by the class of subchannel 4
PUSH = [0x2001_2000, 0xC7C0, 0x8806_20C4, 0x2001_80C0, 0x182]


def test_a_pushbuffer_of_nvidia_shows_methods_by_their_classes(ask, file):
    status, out, _ = ask("nvidia", file(PUSH))
    assert status == 0
    assert out.splitlines() == [
        "[0x0000] INC_METHOD 1 AMPERE_COMPUTE_B  (20012000 0000c7c0)",
        "    SET_OBJECT (0x0000) <- 0x0000c7c0",
        "        nvclass: 0xc7c0 (AMPERE_COMPUTE_B)",
        "[0x0002] IMMD_DATA_METHOD 1 AMPERE_COMPUTE_B  (880620c4)",
        "    SET_SPA_VERSION (0x0310) <- 0x00000806",
        "        minor: 0x6",
        "        major: 0x8",
        "[0x0003] INC_METHOD 4 AMPERE_DMA_COPY_B  (200180c0 00000182)",
        "    LAUNCH_DMA (0x0300) <- 0x00000182",
        "        data_transfer_type: 0x2 (NON_PIPELINED)",
        "        src_memory_layout: 0x1 (PITCH)",
        "        dst_memory_layout: 0x1 (PITCH)",
    ]
    everything = ask("nvidia", file(PUSH), "--all")[1].splitlines()
    assert "    address: 0x300" in everything
    assert "        semaphore_type: 0x0 (NONE)" in everything


def test_a_pushbuffer_as_json_has_its_methods(ask, file):
    status, out, _ = ask("nvidia", file(PUSH), "--json")
    packets = json.loads(out)
    assert (status, len(packets)) == (0, 3)
    assert packets[1] == {
        "offset_dwords": 2,
        "name": "IMMD_DATA_METHOD",
        "fields": {"subchannel": 1, "address": 0x310, "data": 0x806},
        "raw": [0x8806_20C4],
        "target": "1 AMPERE_COMPUTE_B",
        "methods": [
            {"address": 0x310, "name": "SET_SPA_VERSION", "values": [0x806], "fields": {"minor": 6, "major": 8}}
        ],
    }
    assert packets[2]["methods"][0]["names"]["data_transfer_type"] == "NON_PIPELINED"


@pytest.mark.parametrize("name", ["4=0xc7b0", "4=NVC7B0_VIDEO_DECODER"])
def test_the_class_of_a_subchannel_can_be_said(ask, file, name):
    stream = file([0x2001_8080, 7])
    assert "! 1 unknown methods" in ask("nvidia", stream)[1]
    assert "        id: 0x7 (HEVC)" in ask("nvidia", stream, "--class", name)[1].splitlines()


def test_a_gpfifo_and_descriptors_are_decoded_when_asked_for(ask, file):
    out = ask("nvidia", file([0x1000, 0x812]), "--what", "gpfifo")[1]
    assert out.splitlines() == [
        "[0x0000] GP_ENTRY  (00001000 00000812)",
        "    gpu_va: 0x1200001000",
        "    length: 2",
    ]
    descriptor = [0] * 64
    descriptor[12], descriptor[18] = 7, 0x30
    out = ask("nvidia", file(descriptor), "--what", "qmd", "--chip", "ad102")[1]
    assert out.splitlines()[0] == f"[0x0000] QMDV03_00  ({' '.join(['00000000'] * 8)} +56)"
    assert "    cta_raster_width: 0x7" in out.splitlines()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nvidia", "--class", "4"], "--class takes SUBCHANNEL=CLASS such as 4=0xc7b0, not '4'"),
        (["nvidia", "--class", "8=0xc7b0"], "--class 8=0xc7b0: subchannels are 0 to 7, classes have 16 bits"),
        (["nvidia", "--class", "4=0x1c7b0"], "--class 4=0x1c7b0: subchannels are 0 to 7, classes have 16 bits"),
        (["nvidia", "--class", "4=FERMI_NOTHING"], "such as 4=0xc7b0, not '4=FERMI_NOTHING'"),
        (["pm4", "--what", "qmd"], "--what and --class are for nvidia, not for pm4"),
        (["aql", "--class", "1=0xc7c0"], "--what and --class are for nvidia, not for aql"),
    ],
)
def test_options_of_another_language_and_impossible_classes_are_refused(ask, file, words, message):
    language, *options = words
    status, out, err = ask(language, file(PUSH), *options)
    assert (status, out) == (2, "")
    assert message in err


def test_a_chip_of_another_maker_is_refused(ask, file):
    status, _, err = ask("nvidia", file(PUSH), "--chip", "navi31")
    assert status == 11
    assert "NotSupported: no classes are known of chip 'navi31'; known are tu102" in err

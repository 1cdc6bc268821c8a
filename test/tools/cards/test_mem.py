"""`ringup mem`: it shows what the model's memory holds, and what it writes arrives there."""

import json

import pytest

import ringup as library

MIB = 1 << 20


def test_a_dump_shows_what_lies_there(plug, ringup):
    card = plug()
    card.vram.write(0x300010, b"card\x00\x01\xfe\xff")
    status, out, _ = ringup("mem", card.name, "read", "0x300000", "64")
    assert status == 0
    assert out.splitlines() == [
        "00300000  00000000 00000000 00000000 00000000  |................|",
        "00300010  63617264 0001feff 00000000 00000000  |card............|",
        "00300020  00000000 00000000 00000000 00000000  |................|",
        "00300030  00000000 00000000 00000000 00000000  |................|",
    ]


def test_lines_that_repeat_are_reported_once(plug, ringup):
    card = plug()
    lines = ringup("mem", card.name, "read", "0x300000", "1K")[1].splitlines()
    assert [line[:8] for line in lines] == ["00300000", "*", "003003f0"]


def test_what_is_written_gets_there_and_back(plug, ringup, tmp_path):
    card = plug()
    assert "written, and read back equal" in ringup("mem", card.name, "write", "0x400001", "0x00112233445566")[1]
    assert bytes(card.vram.read(0x400000, 9)) == bytes.fromhex("00 00112233445566 00")
    data = bytes(range(256)) * 20
    (tmp_path / "in").write_bytes(data)
    assert ringup("mem", card.name, "write", "0x500000", "--from", tmp_path / "in")[0] == 0
    assert ringup("mem", card.name, "read", "0x500000", len(data), "--out", tmp_path / "out")[0] == 0
    assert (tmp_path / "out").read_bytes() == data


def test_beyond_the_window_goes_through_the_index_registers(plug, ringup):
    card = plug(vram_bytes=512 * MIB)
    at = 384 * MIB + 4
    assert ringup("mem", "--card", card.name, "write", hex(at), "aabbcc")[0] == 0
    assert bytes(card.vram.read(at - 4, 8)) == b"\0\0\0\0\xaa\xbb\xcc\0"


def test_addresses_of_a_dead_process_are_translated_by_the_tables_it_left(plug, ringup):
    card = plug()
    radeon = library.open(card.name)
    buffer = radeon.alloc(8192)
    radeon.copy.upload(buffer, b"from a queue").wait()
    gpu_va = buffer.gpu_va
    card.kill_holder()
    shown = json.loads(ringup("mem", card.name, "read", hex(gpu_va), "12", "--space", "gpu", "--json")[1])
    assert bytes.fromhex(shown["data"]) == b"from a queue"
    status, _, err = ringup("mem", card.name, "read", "0x10", "4", "--space", "gpu")
    assert (status, "nothing is mapped at 0x10" in err) == (23, True)


def test_a_file_that_does_not_fit_is_not_read(plug, ringup, tmp_path, monkeypatch):
    card = plug()
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(1000 << 30)
    status, _, err = ringup("mem", card.name, "write", "0", "--from", tmp_path / "huge")
    assert (status, "0xfa00000000 bytes at 0x0 end beyond VRAM" in err) == (2, True)
    monkeypatch.setattr("ringup.tools.common.files.STREAM_BYTES", 4096)
    status, _, err = ringup("mem", card.name, "write", "0", "--from", "/dev/zero")
    assert (status, "/dev/zero is not an ordinary file and has more than 4096 bytes" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["frobnicate"], "'frobnicate' is neither read nor write"),
        (["read"], "read needs an address"),
        (["read", "zero", "4"], "'zero' is not an address"),
        (["read", "0", "lots"], "'lots' is not a number of bytes"),
        (["read", "0", "0"], "the size is 0"),
        (["read", "0", "2M"], "too many to show: --out FILE"),
        (["read", "0x10000000", "4"], "end beyond VRAM of 0x10000000 bytes"),
        (["read", "0", "4", "--space", "gpu", "--vmid", "16"], "a vmid is 0 to 15"),
        (["write", "0"], "needs its bytes once"),
        (["write", "0", "xyz"], "is not bytes in hex"),
        (["write", "0", "00", "--out", "file"], "--from is for write"),
    ],
)
def test_nonsense_is_wrong_usage(plug, ringup, words, text):
    card = plug()
    status, out, err = ringup("mem", "--card", card.name, *words)
    assert (status, out, text in err, err.count("\n")) == (2, "", True, 1), err

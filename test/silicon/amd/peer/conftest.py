"""A virtual card behind the other driver's remote-PCI protocol over loopback, and the firmware files it wants.

Source of the protocol: the client side in its `runtime/support/system.py`, class RemotePCIDevice.
"""

import json
import os
import random
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

from ringup.silicon import card
from ringup.silicon.shader.translate import Translator
from ringup.tools.bench.environment import FOLDER, find_or_make
from ringup.tools.paths import cache_folder

REQUEST, ANSWER = struct.Struct("<BIIQQQ"), struct.Struct("<BQQ")
PROBE, MAP_BAR, READ_CONFIG, WRITE_CONFIG = 0, 1, 3, 4
READ_BAR, WRITE_BAR, ALLOCATE, READ_HOST, WRITE_HOST = 6, 7, 8, 9, 10
PAGE = 4096
SESSION_S = 150  # TIMEOUT: 5 s of an idle core
SCRIPT = Path(__file__).with_name("driver.py")


class Remote:
    """A card's far side: answers one driver after another; the card's clock goes as the driver's does."""

    def __init__(self, radeon):
        self.radeon, self.errors, self._host, self._closing = radeon, [], [], False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._answers = {
            PROBE: self._probe, MAP_BAR: self._map_bar, READ_CONFIG: self._read_config, WRITE_CONFIG: self._write_config,
            READ_BAR: self._read_bar, WRITE_BAR: self._write_bar, ALLOCATE: self._allocate, READ_HOST: self._read_host,
            WRITE_HOST: self._write_host,
        }  # fmt: skip
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self):
        self._closing = True
        socket.create_connection(self._listener.getsockname()).close()
        self._thread.join()
        self._listener.close()

    def _serve(self):
        while True:
            line, _ = self._listener.accept()
            with line:
                if self._closing:
                    return
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                try:
                    with line.makefile("rb", buffering=1 << 20) as incoming:
                        self._converse(line, incoming)
                except ConnectionError:
                    pass  # the driver's process has ended
                except Exception as error:  # noqa: BLE001 - the test raises it
                    self.errors.append(error)
            for buffer in self._host:
                buffer.free()
            self._host.clear()

    def _converse(self, line, incoming):
        last = time.monotonic_ns()
        while len(head := incoming.read(REQUEST.size)) == REQUEST.size:
            number, _, which, *operands = REQUEST.unpack(head)
            now = time.monotonic_ns()
            self.radeon.clock.advance_ns(now - last)
            last = now
            # what this machine cannot do, such as resizing a BAR, is answered with an error
            do = self._answers.get(number, lambda *_: ANSWER.pack(1, 0, 0))
            answer = do(incoming, which, *operands)
            if answer is not None:
                line.sendall(answer)

    def _probe(self, incoming, which, base_class, size, vendor):
        incoming.read(size)
        return ANSWER.pack(0, 1, 0) + b"0"

    def _map_bar(self, incoming, which, *_):
        return ANSWER.pack(0, self.radeon.gpu.bar_address(which), self.radeon.bars[which].size_bytes)

    def _read_config(self, incoming, which, offset, size, _):
        return ANSWER.pack(0, self.radeon.config.read(offset, size), 0)

    def _write_config(self, incoming, which, offset, size, value):
        self.radeon.config.write(offset, value, size)
        return ANSWER.pack(0, 0, 0)

    def _read_bar(self, incoming, which, offset, size, _):
        bar = self.radeon.bars[which]
        data = bar.read(offset, size).to_bytes(size, "little") if size in (4, 8) else bar.read_block(offset, size)
        return ANSWER.pack(0, 0, 0) + bytes(data)

    def _write_bar(self, incoming, which, offset, size, _):
        bar, data = self.radeon.bars[which], incoming.read(size)
        if size in (4, 8):
            bar.write(offset, int.from_bytes(data, "little"), size)
        else:
            bar.write_block(offset, data)

    def _allocate(self, incoming, which, size, *_):
        buffer = self.radeon.alloc_host(size)
        self._host.append(buffer)
        pages = [buffer.bus_addr(at) for at in range(0, size, PAGE)]
        return ANSWER.pack(0, 8 * len(pages), len(self._host) - 1) + struct.pack(f"<{len(pages)}Q", *pages)

    def _read_host(self, incoming, which, offset, size, _):
        return ANSWER.pack(0, 0, 0) + bytes(self._host[which].view[offset : offset + size])

    def _write_host(self, incoming, which, offset, size, _):
        self._host[which].view[offset : offset + size] = incoming.read(size)


@pytest.fixture
def remote():
    """`remote(**options)` is a virtual navi31 with a driver's door; it fails the test when the door broke or the card saw a mistake."""
    made = []

    def make(**options):
        made.append(Remote(card("navi31", vram_bytes=1 << 30, engine=Translator(), **options)))
        return made[-1]

    yield make
    for one in made:
        one.close()
        assert not one.errors, one.errors
        assert not one.radeon.violations, "\n".join(map(str, one.radeon.violations[:20]))


@pytest.fixture(scope="session")
def python():
    """The interpreter that has the other driver; a package index that cannot be reached fails."""
    found = find_or_make(cache_folder() / FOLDER).python
    assert found is not None, "the other driver cannot be installed"
    return found


@pytest.fixture
def drive(python, tmp_path):
    """`drive(remote, firmware, work)` is one session of the other driver, from opening to closing: what it answers, and what it `said`."""

    def session(remote, firmware, work, fault=False):
        job = {"firmware": str(firmware), "work": {}, "fault": fault}
        for name, (kernel, *arrays) in work.items():
            files = [tmp_path / f"{name}{number}" for number in range(len(arrays))]
            for file, data in zip(files, arrays, strict=True):
                file.write_bytes(data.tobytes())
            job["work"][name] = [kernel, *arrays[0].shape, *map(str, files)]
        variables = {
            **os.environ, "REMOTE": remote.address, "DEV": "PCI+AMD:LLVM", "REMOTE_TIMEOUT": "60", "CACHEDB": str(tmp_path / "cache"),
        }  # fmt: skip
        done = subprocess.run(
            [python, str(SCRIPT)],
            input=json.dumps(job), capture_output=True, text=True, timeout=SESSION_S, env=variables, check=False,
        )  # fmt: skip
        assert not done.returncode, f"{done.stderr[-3000:]}\n{remote.errors} {remote.radeon.violations[:5]}"
        *said, answer = done.stdout.splitlines()
        assert "Traceback" not in done.stderr, done.stderr[-3000:]  # closing comes after the answer
        return json.loads(answer) | {"said": "\n".join(said)}

    return session


def blob(version, header, parts, code, fields):
    """A file as amdgpu_ucode.h has it: common_firmware_header with `version`, `header` bytes of head, then `parts`; `fields` by offset."""
    places, body = [], b""
    for part in parts:
        places.append(256 + len(body))
        body += part.ljust(-(-len(part) // 256) * 256, b"\0")
    data = bytearray(256) + body
    common = (len(data), header, *version, 11, 0, 0x1234, len(parts[code]), places[code], 0)
    struct.pack_into("<IIHHHHIIII", data, 0, *common)
    for at, value in fields(places).items():
        struct.pack_into("<I", data, at, value)
    return bytes(data)


SOS_PARTS = (
    (3, 0x1700),
    (4, 0x900),
    (5, 0x2A0),
    (2, 0x6790),
    (1, 0x8380),
)  # KDB, TOC, SPL, SYS_DRV, SOS of psp_fw_type


def sos_fields(places):
    rows = [{36 + 16 * n: kind, 44 + 16 * n: places[n] - 256, 48 + 16 * n: size} for n, (kind, size) in enumerate(SOS_PARTS)]  # fmt: skip
    return {32: len(SOS_PARTS)} | {at: value for row in rows for at, value in row.items()}


# file: header version, its size, sizes of its parts, which one the common header points at, and the rest of its header by offset
FILES = {
    "psp_13_0_0_sos.bin": ((2, 0), 132, [size for _, size in SOS_PARTS], 0, sos_fields),  # psp_firmware_header_v2_0
    "smu_13_0_0.bin": ((2, 1), 44, [0x3FE00], 0, lambda places: {40: 44}),  # smc_firmware_header_v2_1: no tables
    "sdma_6_0_0.bin": ((2, 0), 64, [0x4400, 0x4200], 0, lambda places: {36: 0x4400, 48: places[1], 52: 0x4200}),
    "gc_11_0_0_mec.bin": (
        (2, 0), 60, [0x41300, 0x22000], 0, lambda places: {36: 0x41300, 40: places[0], 44: 0x22000, 48: places[1], 52: 0x3000},
    ),
    "gc_11_0_0_imu.bin": ((1, 0), 48, [0x10200, 0x10200], 0, lambda places: {32: 0x10200, 40: 0x10200}),
    "gc_11_0_0_rlc.bin": (  # rlc_firmware_header_v2_3: iram, dram, rlcp, rlcv
        (2, 3), 204, [0x6200, 0x8F00, 0x6D00, 0x4000, 0x4000], 0,
        lambda places: {156: 0x8F00, 160: places[1], 164: 0x6D00, 168: places[2], 180: 0x4000, 184: places[3], 196: 0x4000, 200: places[4]},
    ),
}  # fmt: skip


@pytest.fixture(scope="session")
def made_firmware(tmp_path_factory):
    """A folder of well-formed images with nothing but noise in them: no card but a virtual one runs them."""
    folder, draw = tmp_path_factory.mktemp("firmware"), random.Random(7)
    for name, (version, header, sizes, code, fields) in FILES.items():
        (folder / name).write_bytes(blob(version, header, [draw.randbytes(size) for size in sizes], code, fields))
    return folder


@pytest.fixture(scope="session")
def real_firmware(sources):
    """The folder of the distribution's firmware package; a missing package fails."""
    return sources.root("firmware-amd") / "lib/firmware/amdgpu"

"""A virtual card behind the other driver's remote-PCI protocol over loopback, and the firmware files it wants.

Source of the protocol: the client side in its `runtime/support/system.py`, class RemotePCIDevice.
"""

import json
import os
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

from ringup.silicon import card
from ringup.silicon.amd.board import images
from ringup.silicon.amd.board.chips import CHIPS
from ringup.silicon.shader.rdna.translator.engine import Translator
from ringup.tools.bench.environment import FOLDER, find_or_make
from ringup.tools.common.paths import cache_folder

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
    """`remote(**options)` is a virtual card with a driver's door; it fails the test when the door broke or the card saw
    a mistake.
    """
    made = []

    def make(name="navi31", **options):
        made.append(Remote(card(name, vram_bytes=1 << 30, engine=Translator(), **options)))
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
    """`drive(remote, firmware, work)` is one session of the other driver, from opening to closing: what it answers, and
    what it `said`.
    """

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


@pytest.fixture(scope="session")
def made_firmware(tmp_path_factory):
    """A folder of the virtual cards' own images: no card but a virtual one takes them."""
    folder = tmp_path_factory.mktemp("firmware")
    for row in CHIPS.values():
        for name, data in images.build(row).items():
            (folder / name).write_bytes(data)
    return folder


@pytest.fixture(scope="session")
def real_firmware(sources):
    """The folder of the distribution's firmware package; a missing package fails."""
    return sources.root("firmware-amd") / "lib/firmware/amdgpu"

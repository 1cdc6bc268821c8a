"""A small USB device that records what it is sent and answers as a test says; and virtual enclosures on a host."""

import random
import struct
import subprocess
from collections import deque
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import usb.core

import ringup
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.drivers.usb4.flash import Flash
from ringup.drivers.usb4.port import Place, Port
from ringup.drivers.usb4.transport import holding
from ringup.silicon import card as make_card
from ringup.silicon import fixtures
from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost

# image 240417 and the SuperSpeed tables of docs/asm2464pd.md: BOT as setting 0, UAS as setting 1
BOT_SETTING = bytes.fromhex("09040000 02080650 00 07058102 000400 06300f000000 07050202 000400 06300f000000")
UAS_SETTING = bytes.fromhex(
    "09040001 04080662 00"
    "07058102 000400 06300f050000 04240300"
    "07050202 000400 06300f050000 04240400"
    "07058302 000400 06300f050000 04240200"
    "07050402 000400 063000000000 04240100"
)
NO_STREAMS = UAS_SETTING.replace(bytes.fromhex("06300f050000"), b"").replace(bytes.fromhex("063000000000"), b"")


class Clock:
    """A clock that advances when somebody waits."""

    def __init__(self):
        self.now_us = 0

    def sleep_us(self, time_us):
        self.now_us += time_us


class Wire:
    """A pyusb backend with one device. It calls `answer(endpoint, stream, data)` for each bulk transfer that the host
    sends.
    """

    def __init__(self, clock, settings=BOT_SETTING + UAS_SETTING):
        self.clock, self.answer = clock, lambda endpoint, stream, data: None
        head = struct.pack("<BBHBBBBB", 9, 2, 9 + len(settings), 1, 1, 0, 0xC0, 0)
        self.configuration = head + settings
        self.sent, self.controls, self.cleared, self.alt = [], [], [], None
        # (endpoint, stream): what the next transfers there get, bytes or a status
        self.ready = {}
        # endpoints that stall until they are cleared
        self.stalled = set()
        self.waiting, self.streams = [], 0
        self.gone = False

    def say(self, endpoint, *replies, stream=0):
        self.ready.setdefault((endpoint, stream), deque()).extend(replies)

    # The part of pyusb's backend that a port uses.
    def get_device_descriptor(self, device):
        return SimpleNamespace(iManufacturer=0, iProduct=0, iSerialNumber=0)

    def open_device(self, device):
        return self

    def is_kernel_driver_active(self, handle, interface):
        return False

    def get_configuration(self, handle):
        return 1

    def claim_interface(self, handle, interface):
        pass

    release_interface = claim_interface

    def close_device(self, handle):
        pass

    def set_interface_altsetting(self, handle, interface, alt):
        self.alt = alt

    def clear_halt(self, handle, endpoint):
        self.cleared.append(endpoint)
        self.stalled.discard(endpoint)

    # Asynchronous transfers.
    def submit(self, handle, endpoint, payload, *, setup=b"", timeout_ms, stream=0):
        transfer = SimpleNamespace(done=False, status="", data=b"", actual=0)
        transfer.end_us = self.clock.now_us + timeout_ms * 1_000
        transfer.place = (endpoint, stream)
        if self.gone:
            self._finish(transfer, "no_device")
        elif setup:
            self.controls.append(setup + (payload if not isinstance(payload, int) else b""))
            wanted = self.configuration[:payload] if isinstance(payload, int) else payload
            self._finish(transfer, "completed", wanted if setup[0] & 0x80 else b"", len(wanted))
        elif endpoint in self.stalled:
            self._finish(transfer, "stall")
        elif isinstance(payload, int):
            transfer.room = payload
            self.waiting.append(transfer)
        else:
            self.sent.append((endpoint, stream, bytes(payload)))
            self._finish(transfer, "completed", b"", len(payload))
            self.answer(endpoint, stream, bytes(payload))
        return transfer

    def _finish(self, transfer, status, data=b"", actual=None):
        transfer.done, transfer.status, transfer.data = True, status, data
        transfer.actual = len(data) if actual is None else actual

    def handle_events(self, timeout_ms):
        ended = False
        for transfer in list(self.waiting):
            queue = self.ready.get(transfer.place)
            if queue:
                reply = queue.popleft()
                if isinstance(reply, str):
                    self._finish(transfer, reply)
                    if reply == "stall":
                        self.stalled.add(transfer.place[0])
                elif len(reply) > transfer.room:
                    self._finish(transfer, "overflow")
                else:
                    self._finish(transfer, "completed", reply)
                self.waiting.remove(transfer)
                ended = True
        if ended or not self.waiting:
            return
        first = min(transfer.end_us for transfer in self.waiting)
        self.clock.now_us = min(first, self.clock.now_us + int(timeout_ms * 1_000))
        for transfer in list(self.waiting):
            if transfer.end_us <= self.clock.now_us:
                self._finish(transfer, "timed_out")
                self.waiting.remove(transfer)

    def cancel(self, transfer):
        if transfer in self.waiting:
            self.waiting.remove(transfer)
            self._finish(transfer, "cancelled")

    def end(self, handle):
        for transfer in list(self.waiting):
            self.cancel(transfer)
        return 0

    def alloc_streams(self, handle, count, endpoints):
        self.streams = count
        return count

    def free_streams(self, handle, endpoints):
        self.streams = 0


@pytest.fixture
def wire():
    """`wire(settings, mbps)`: a device and the port to it."""

    def make(settings=BOT_SETTING + UAS_SETTING, mbps=10_000):
        clock = Clock()
        device = Wire(clock, settings)
        return device, Port(device, None, Place(1, (1,), 0x174C, 0x2464, 1, mbps), clock)

    return make


@pytest.fixture
def no_streams():
    """The descriptors at USB 2 speed: the same settings without companion descriptors."""
    return NO_STREAMS


class Desk:
    """An enclosure without a card on a virtual host."""

    def __init__(self, enclosure, root):
        self.enclosure, self.host = enclosure, VirtualUsbHost(enclosure.machine)
        self.kernel = Kernel(root)
        self.host.plug(enclosure)
        self.host.clock.sleep_us(6_000_000)

    @contextmanager
    def flash(self):
        """Open the flash of the device on the bus, as a separate program does."""
        with holding("1-1", backend=self.host, clock=self.host.clock, kernel=self.kernel) as (port, row):
            yield Flash(port, row)

    @property
    def cells(self):
        """Return the contents of the flash: both sets."""
        return bytes(self.enclosure.flash.cells[:0x40000])

    def replug(self):
        """Switch the power off and on."""
        self.host.unplug()
        self.host.plug(self.enclosure)
        self.host.clock.sleep_us(6_000_000)

    @property
    def ids(self):
        """Return the ids of the device on the bus."""
        rows = [self.host.get_device_descriptor(one) for one in self.host.enumerate_devices()]
        return [(row.idVendor, row.idProduct) for row in rows]


@pytest.fixture
def desk(tmp_path):
    """`desk(firmware, …)`: an enclosure on a host, with its locks in a folder of the test."""
    root = tmp_path / "machine"
    (root / "run/lock").mkdir(parents=True)
    return lambda firmware="stock", **options: Desk(Enclosure(None, firmware, **options), root)


SOURCE = """
__kernel void twice(__global uint *p) { uint n = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x(); p[n] *= 2; }
__kernel void spin(__global volatile uint *flag) { while (flag[0] == 0) ; }
"""
COMPILE = ("clang-19", "-w", "-x", "cl", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa", "-nogpulib", "-O1")


@pytest.fixture(scope="session")
def kernels(tmp_path_factory):
    """A code object for gfx1100: `twice` doubles dwords, 64 to a group; `spin` ends when the first dword of a buffer is
    not 0.
    """
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "source.cl").write_text(SOURCE)
    argv = [*COMPILE, "-mcpu=gfx1100", folder / "source.cl", "-o", folder / "out"]
    subprocess.run(argv, check=True, timeout=60)
    return (folder / "out").read_bytes()


class Dock:
    """An enclosure with a card on a port of a virtual host, and what a user does with it. `vram` is the card's memory
    itself.
    """

    def __init__(self, code, speed="super_plus", *, host=None, port="1-1", **options):
        clock = {"clock": host.clock} if host is not None and host.clock is not None else {}
        self.radeon = make_card("navi31", vram_bytes=256 << 20, enumerated=False, **clock)
        self.enclosure = Enclosure(self.radeon, "open", speed, **options)
        self.host, self.port, self.code = host or VirtualUsbHost(self.enclosure.machine), port, code
        self.host.plug(self.enclosure, port)
        self.clock = self.enclosure.machine
        self.card = None

    def open(self):
        """Open the card as a user does; an already open one is closed first."""
        self.close()
        self.card = ringup.open("virtual:navi31@asm2464pd", transport={"enclosure": self.enclosure})
        return self.card

    def close(self):
        card, self.card = self.card, None
        if card is not None:
            card.close()

    def replug(self):
        """Unplug the cable, if it is plugged in, and plug it in again."""
        if self.enclosure.host is not None:
            self.host.unplug(self.port)
        self.host.plug(self.enclosure, self.port)

    def recover(self):
        """Do what a user does after a fault is over: close, replug what is gone, open again, compute."""
        self.close()
        self.enclosure.faults.clear()
        # What comes back by itself has come back.
        self.clock.sleep_us(3_000_000)
        if self.enclosure.host is None or not self.firmware_answers:
            self.replug()
        self.open()
        self.compute(1)

    @property
    def firmware_answers(self):
        """Tell whether the bridge's firmware answers. Firmware that hangs in its handler hangs until the bridge is
        unplugged.
        """
        device = usb.core.find(backend=self.host, custom_match=lambda one: (one.bus, one.port_numbers) == self.place)
        try:
            return device.ctrl_transfer(0xC0, 0xE4, 0xB450, 0, 1, 100) is not None
        except usb.core.USBError:
            return False

    @property
    def place(self):
        bus, _, ports = self.port.partition("-")
        return int(bus), tuple(map(int, ports.split(".")))

    def memory(self, buffer):
        """Return the bytes of a buffer directly from the card's memory."""
        at = self.card.spaces.user.place(buffer)
        return self.radeon.vram.view[at : at + buffer.size_bytes]

    def upload(self, seed, size_bytes=200_000):
        """Upload random bytes, and check them where they should have arrived."""
        data = random.Random(seed).randbytes(size_bytes)
        with self.card.alloc(size_bytes) as target:
            self.card.copy.upload(target, data).wait()
            assert self.memory(target) == data

    def download(self, seed, size_bytes=200_000):
        """Download random bytes."""
        data = random.Random(seed).randbytes(size_bytes)
        with self.card.alloc(size_bytes) as source:
            self.memory(source)[:] = data
            assert self.card.copy.download(source) == data

    def compute(self, seed, groups=4):
        """Run a kernel over random dwords."""
        data = np.frombuffer(random.Random(seed).randbytes(256 * groups), np.uint32)
        program = self.card.load(self.code)
        with self.card.alloc(data.nbytes) as target:
            self.memory(target)[:] = data.tobytes()
            stream = self.card.compute.stream()
            stream.dispatch(program["twice"], groups, 64, [target])
            self.card.compute.submit(stream).wait()
            assert self.memory(target) == (data * 2).tobytes()


@pytest.fixture
def docks(kernels):
    """`docks(speed, …)` makes an enclosure with a card in it, plugged in. All are closed at the end, and none may have
    recorded a violation.
    """
    made = []

    def make(speed="super_plus", **options):
        made.append(Dock(kernels, speed, **options))
        return made[-1]

    yield make
    for dock in made:
        dock.close()
        assert not dock.enclosure.violations
    fixtures.check([dock.radeon for dock in made])

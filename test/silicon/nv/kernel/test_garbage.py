"""Random requests to the nodes: each gets a status or an error of the call, and the machine stays sound."""

import mmap
import random
import struct

import pytest
from nvidia_process.process import EXTERNAL, MIB, PCI, Client, Uvm, address, copier

from ringup.autogen.nv import rm, uvm
from ringup.errors import NotSupported
from ringup.silicon.nv.kernel import escapes
from ringup.silicon.nv.kernel import uvm as uvm_driver

RUN = 1500


class Hostile:
    """A process with a few real objects, which asks for nonsense about them."""

    def __init__(self, client, seed):
        self.client, self.random = client, random.Random(seed)
        self.channel, self.virtual = copier(client)
        self.keeper, space = Uvm(client), client.space(EXTERNAL)
        self.keeper.take(space)
        self.page = mmap.mmap(-1, 16384)
        self.nodes = [client.control_node, client.card_node, self.keeper.node, client.system.open("/dev/nvidia0")]
        self.handles = [
            client.root, client.device, client.subdevice, self.channel.handle, self.channel.object, self.virtual, space,
            client.memory(MIB), client.memory(MIB, PCI),
        ]  # fmt: skip
        self.addresses = [address(self.page), 0, 0x1000, 1 << 63, (1 << 64) - 8]

    def word(self):
        pick = self.random.random
        if pick() < 0.5:
            return self.random.choice(self.handles)
        if pick() < 0.5:
            return self.random.choice((0, 1, 2, 4, 16, 4096, 0x10000, 0xFFFFFFFF, *self.nodes))
        return self.random.getrandbits(32)

    def bytes(self, size):
        data = bytearray(b"".join(struct.pack("<I", self.word()) for _ in range(-(-size // 4)))[:size])
        return data if self.random.random() < 0.7 else bytearray(size)

    def view(self, layout, **values):
        data = self.bytes(layout.SIZE)
        made = layout.view(data)
        for name, value in values.items():
            setattr(made, name, value)
        return data

    def alloc(self):
        """A plausible object with random parameters."""
        release, system = self.client.release, self.client.system
        number = self.random.choice(list(system.manager.rows))
        params = system.manager.rows[number].params
        try:
            size = 0 if params is None else params.at(release).SIZE
        except NotSupported:
            size = 0
        self.page[: max(size, 1)] = bytes(self.bytes(max(size, 1)))
        return rm.NV_ESC_RM_ALLOC, self.view(
            rm.NVOS21_PARAMETERS.at(release), hRoot=self.client.root, hObjectParent=self.random.choice(self.handles),
            hObjectNew=0, hClass=number, pAllocParms=address(self.page) if size else 0, paramsSize=size,
        )  # fmt: skip

    def control(self):
        """A control that there is, on an object of its kind or another, with random parameters."""
        row = self.random.choice(list(self.client.system.controls.rows.values()))
        try:
            size = row.size_bytes if row.layout is None else row.layout.at(self.client.release).SIZE
        except NotSupported:
            size = 0
        # larger than the pages: their end is met
        self.page[: min(size, 8192)] = bytes(self.bytes(min(size, 8192)))
        return rm.NV_ESC_RM_CONTROL, self.view(
            rm.NVOS54_PARAMETERS.at(self.client.release), hClient=self.client.root,
            hObject=self.random.choice(self.handles), cmd=row.command, params=self.random.choice(self.addresses[:1] * 9 + self.addresses),
            paramsSize=size,
        )  # fmt: skip

    def escape(self):
        number = self.random.choice([*escapes.ROWS, self.random.getrandbits(8)])
        row = escapes.ROWS.get(number)
        try:
            size = row.layout.at(self.client.release).SIZE if row is not None and row.layout is not None else 64
        except NotSupported:
            size = 8
        data = self.bytes(size if self.random.random() < 0.95 else self.random.randrange(128))
        for at in range(16, len(data) - 8, 8):
            if self.random.random() < 0.2:
                struct.pack_into("<Q", data, at, self.random.choice(self.addresses))
        if len(data) >= 4 and self.random.random() < 0.9:
            struct.pack_into("<I", data, 0, self.client.root)
        return number, data

    def one(self):
        """Make one request."""
        system, kind = self.client.system, self.random.random()
        if kind < 0.2:
            number = self.random.choice([*uvm_driver.ROWS, uvm.UVM_INITIALIZE, uvm.UVM_MM_INITIALIZE, 0x33])
            size = uvm_driver.ROWS[number][0].at(self.client.release).SIZE if number in uvm_driver.ROWS else 16
            data = self.bytes(size)
            for at in range(0, min(size, 24) - 8, 8):
                if self.random.random() < 0.7:
                    struct.pack_into("<Q", data, at, self.random.choice((0x4000000, 0x4001000, 4096, 1 << 63)))
            return system.ioctl(self.keeper.node, number, data)
        number, data = (self.alloc, self.control, self.escape)[int(kind * 9) % 3]()
        node = self.random.choice(self.nodes[:1] * 6 + self.nodes[:2])
        if number == rm.NV_ESC_RM_FREE and self.random.random() < 0.9:
            return 0
        return system.ioctl(node, 3 << 30 | len(data) << 16 | 0x46 << 8 | number, data)


def storm(machine, seed, count):
    """Ask `count` times, then see that another process finds a machine that works, and all memory."""
    system = machine()
    free, window = system.half.heap.free_bytes, system.window.free_bytes
    hostile, errors = Hostile(Client(system), seed), 0
    for number in range(count):
        try:
            hostile.one()
        except OSError:
            errors += 1
        if number % 100 == 0:
            system.sleep_us(100)
    assert 0 < errors < count
    for node in sorted(system.files, reverse=True):
        system.close(node)
    assert (system.half.heap.free_bytes, system.window.free_bytes) == (free, window)
    assert (system.owners, system.mappings) == ({}, [])
    channel, _ = copier(Client(system))
    channel.submit(*channel.release(1))
    system.sleep_us(100)
    assert channel.semaphore == 1


@pytest.mark.seeds(1, share=2)
def test_a_process_that_asks_for_nonsense_harms_nobody(machine, seed):
    storm(machine, seed, RUN)

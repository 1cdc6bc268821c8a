"""The objects of GSP-RM that a card's channels need: a client, the device, the subdevice, the address space.

Source: Linux nouveau gsp/r535.c, r535_gsp_client_ctor and r535_gsp_device_ctor; mmu/r535.c, r535_mmu_promote_vmm.
"""

from __future__ import annotations

from ringup.autogen.nv import classes as nv
from ringup.autogen.nv import rm_alloc
from ringup.autogen.nv import rm_ctrl_channel as controls
from ringup.drivers.nv.bus.registers import Registers
from ringup.drivers.nv.channels import engines, facts
from ringup.drivers.nv.gsp.running import Running
from ringup.drivers.nv.memory.space import SERVER_BYTES, SERVER_VA, Space
from ringup.drivers.nv.memory.window import bar_of
from ringup.drivers.nv.rm.client import RmClient

# any number that GSP-RM's own client has not
CLIENT = 0xC1D0_0001
# GMMU_APERTURE_VIDEO of gmmu_fmt.h
APERTURE_VIDEO = 1


class CardObjects:
    """The driver's objects on one card. GSP-RM frees them with its own end."""

    def __init__(self, running: Running) -> None:
        """Make the client and the card's objects."""
        self.running = running
        self.registers: Registers = running.registers
        static, door = running.static, running.door
        # whose client may send internal controls
        self.internal = RmClient(door, static.client)
        self.client = client = RmClient(door, CLIENT)
        params = client.make(rm_alloc.NV0000_ALLOC_PARAMETERS, hClient=CLIENT)
        client.make_root(nv.NV01_ROOT, params)
        self.device = client.alloc(
            client.root, nv.NV01_DEVICE_0, client.make(rm_alloc.NV0080_ALLOC_PARAMETERS, hClientShare=client.root)
        )
        self.subdevice = client.alloc(
            self.device, nv.NV20_SUBDEVICE_0, client.make(rm_alloc.NV2080_ALLOC_PARAMETERS, subDeviceId=0)
        )
        self.engines = engines.read(self.internal, static.subdevice)
        bar1_bytes = bar_of(running.device).size_bytes
        self.facts = facts.read(self.internal, static, self.registers.chip, self.engines, bar1_bytes)
        self.space = 0

    def make_space(self, space: Space) -> None:
        """Make the object of the address space, and let GSP-RM map what its engines need there."""
        client = self.client
        self.space = client.alloc(
            self.device, nv.FERMI_VASPACE_A, client.make(rm_alloc.NV_VASPACE_ALLOCATION_PARAMETERS)
        )
        directories = space.server_directories()
        params = client.make(
            controls.NV90F1_CTRL_VASPACE_COPY_SERVER_RESERVED_PDES_PARAMS,
            pageSize=SERVER_BYTES,
            virtAddrLo=SERVER_VA,
            virtAddrHi=SERVER_VA + SERVER_BYTES - 1,
            numLevelsToCopy=len(directories),
        )
        for index, (level, vram_pa) in enumerate(directories):
            told = params.levels[index]
            told.physAddress, told.size = vram_pa, level.table_bytes
            told.aperture, told.pageShift = APERTURE_VIDEO, level.low_bit
        client.control(
            self.space,
            controls.NV90F1_CTRL_CMD_VASPACE_COPY_SERVER_RESERVED_PDES,
            params,
            "telling GSP-RM of the address space",
        )

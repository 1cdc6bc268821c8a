"""The FSP of GH100 and GB202: packets in its message memory, the chain of trust, and what the GSP shows while it boots.

Offsets are those of dev_fsp_pri.h (gh100), dev_therm.h (gb202) and dev_falcon_v4.h; the messages' layout is that of
kern_fsp_cot_payload.h, gspifpub.h and nouveau's fsp/gh100.c.
"""

from __future__ import annotations

import hashlib
import struct

import pytest

from ringup.autogen.nv.gsp_boot import GspFwWprMeta
from ringup.autogen.structs import memory
from ringup.silicon import nvidia_firmware
from ringup.silicon.nv.common.signed import Part, identify
from ringup.silicon.nv.firmware import images

EMEMC, EMEMD, HEAD, TAIL, ANSWER_HEAD, ANSWER_TAIL = 0x8F2AC0, 0x8F2AC4, 0x8F2C00, 0x8F2C04, 0x8F2C80, 0x8F2C84
GSP, VRAM = 0x110000, 512 << 20
# where NV_THERM_I2CS_SCRATCH is, the command's version, bytes of the public key and of the signature
CHIPS = {"gh100": (0x200BC, 1, 384, 384), "gb202": (0xAD00BC, 2, 97, 96)}
COT = struct.Struct("<HHQQIQI48s384s384sQ")
SINGLE, START, END = 3 << 30, 1 << 31, 1 << 30
NVDM_COT = 0x14 << 24 | 0x10DE << 8 | 0x7E
FRTS_FROM_END = 6 << 20


class Sender:
    """Sends packets as nouveau does."""

    def __init__(self, starter):
        self.starter, self.rd, self.wr = starter, starter.rd, starter.wr
        self.card, self.fmc = starter.card, images.fmc(starter.card.chip)
        self.scratch, self.version, *_ = CHIPS[starter.card.chip.name]

    def send(self, transport, data):
        packet = struct.pack("<I", transport) + data
        self.wr(EMEMC, 1 << 24)
        for (word,) in struct.iter_unpack("<I", packet):
            self.wr(EMEMD, word)
        assert self.rd(EMEMC) & 0xFFFF == len(packet)
        self.wr(TAIL, len(packet) - 4)
        self.wr(HEAD, 0)
        self.card.clock.sleep_us(1000)
        assert self.rd(HEAD) == self.rd(TAIL)

    def answer(self):
        """Return the answer's words, if there is one, and say that it was read."""
        if self.rd(ANSWER_HEAD) == self.rd(ANSWER_TAIL):
            return None
        size = self.rd(ANSWER_TAIL) - self.rd(ANSWER_HEAD) + 4
        self.wr(EMEMC, 1 << 25)
        words = [self.rd(EMEMD) for _ in range(size // 4)]
        self.wr(ANSWER_TAIL, 0)
        self.wr(ANSWER_HEAD, 0)
        return words

    def arguments(self, **changes):
        """Store metadata and the FMC's arguments; return their bus address."""
        starter, made = self.starter, images.build(self.card.chip, "570.144")
        meta = GspFwWprMeta(
            magic=0xDC3AAE21371A60B3, revision=1, sysmemAddrOfRadix3Elf=starter.radix3(made.gsp),
            sizeOfRadix3Elf=len(made.gsp), sysmemAddrOfBootloader=starter.put(made.bootloader),
            sizeOfBootloader=len(made.bootloader), sysmemAddrOfSignature=starter.put(made.signature),
            sizeOfSignature=len(made.signature), nonWprHeapSize=0x220000, gspFwHeapSize=0x8700000, frtsSize=1 << 20,
            vgaWorkspaceSize=128 << 10,
        )  # fmt: skip
        for name, value in changes.items():
            setattr(meta, name, value)
        self.metadata = starter.put(bytes(memory(meta)))
        return self.resume(self.metadata)

    def resume(self, metadata):
        """Store the FMC's arguments, which name these metadata; return their bus address."""
        libos = self.starter.put(bytes(4096))
        return self.starter.put(struct.pack("<II IIQQII I4xQ 24x", 0, 0, 1, 256, metadata, 0, 0, 1, 2, libos))

    def cot(self, *, arguments=None, **changes):
        """Return a chain-of-trust command."""
        fields = {
            "version": self.version, "size": COT.size, "fmc": self.starter.put(self.fmc.image), "sysmem": 0, "sysmem_bytes": 0,
            "frts": FRTS_FROM_END, "frts_bytes": 1 << 20, "digest": self.fmc.digest, "key": self.fmc.public_key,
            "signature": self.fmc.signature, "arguments": self.arguments() if arguments is None else arguments,
        } | changes  # fmt: skip
        return COT.pack(*fields.values())

    def command(self, payload):
        """Send a command in one packet, and return the answer's error."""
        self.send(SINGLE, struct.pack("<I", NVDM_COT) + payload)
        *head, _, command, error = self.answer()
        assert (head, command) == ([SINGLE, 0x15 << 24 | 0x10DE << 8 | 0x7E], 0x14)
        return error

    def said(self):
        """Mistakes other than that of the arguments of GSP-RM, which are an empty page here."""
        texts = [event.text for event in self.card.violations]
        return [text for text in texts if text != "libos: there is no region RMARGS among none"]


@pytest.fixture(params=CHIPS)
def sender(request, make_starter):
    return Sender(make_starter(request.param))


def test_the_fsp_boots_gsp_rm_and_the_gsp_is_locked_until_then(sender):
    # NV_THERM_I2CS_SCRATCH: the FSP has booted the chip
    assert sender.rd(sender.scratch) == 0xFF
    assert sender.command(sender.cot()) == 0
    assert sender.rd(GSP + 0xF4) & 0xFFFFFF00 == 0xBADF4100
    sender.card.clock.sleep_us(2500)
    # HWCFG2.riscv_br_priv_lockdown, then released; MAILBOX0 has no error
    assert sender.rd(GSP + 0xF4) >> 13 & 1
    sender.card.clock.sleep_us(5000)
    assert not sender.rd(GSP + 0xF4) >> 13 & 1
    assert sender.rd(GSP + 0x40) == 0
    # RISCV_CPUCTL: active, not halted
    assert sender.rd(GSP + 0x1388) & 0x90 == 0x80
    assert sender.card.protected.end == VRAM - FRTS_FROM_END
    assert not sender.said()


def test_a_gsp_that_runs_is_not_booted_again(sender):
    payload = sender.cot()
    assert sender.command(payload) == 0
    assert sender.command(payload) == 0x9E
    assert sender.said() == ["COT: the GSP runs already"]


WRONG = {
    "version": ({"version": 3}, "its version is 3, this chip's is {version}"),
    "size": ({"size": 859}, "the payload has 860 bytes, and says 859, of 860"),
    "image": ({"fmc": (1 << 64) - 1}, "there is no FMC at bus address 0xffffffffffffffff"),
    "hash": ({"digest": bytes(48)}, "the hash is not the FMC's"),
    "key": ({"key": b"\4"}, "the public key is none that the chip trusts"),
    "signature": ({"signature": bytes(96)}, "the signature is not the FMC's"),
    "FRTS": ({"frts": 1 << 20}, "FRTS is to have 0x100000 bytes, 0x100000 from the end of memory"),
}


@pytest.mark.parametrize("changes", WRONG)
def test_a_command_with_something_wrong_is_refused(sender, changes):
    fields, why = WRONG[changes]
    assert sender.command(sender.cot(arguments=0, **fields)) == 0xA1
    assert sender.said() == [f"COT: {why.format(version=sender.version)}"]
    assert not sender.card.protected.up


def test_a_changed_fmc_is_refused(sender):
    image = bytearray(sender.fmc.image)
    image[-1] ^= 1
    changed = {"fmc": sender.starter.put(bytes(image)), "digest": hashlib.sha384(image).digest()}
    assert sender.command(sender.cot(arguments=0, **changed)) == 0xA1
    assert sender.said() == ["COT: the FMC is none that is known"]


@pytest.mark.parametrize(
    ("changes", "error", "why"),
    [
        ({"magic": 0}, 0x11, "there is no metadata at bus address"),
        ({"frtsSize": 0}, 0x12, "0x20000 bytes are to be behind FRTS data"),
        ({"gspFwHeapSize": 1 << 30}, 0x12, "the parts do not fit into 0x20000000 bytes"),
        ({"sizeOfSignature": 8}, 0x14, "the signature has 8 bytes"),
    ],
)
def test_metadata_with_something_wrong_leaves_an_error_in_mailbox_0(sender, changes, error, why):
    assert sender.command(sender.cot(arguments=sender.arguments(**changes))) == 0
    sender.card.clock.sleep_us(10_000)
    assert sender.rd(GSP + 0x40) == error
    assert sender.rd(GSP + 0xF4) >> 13 & 1
    assert sender.said()[0].startswith(f"the FMC: {why}")


# NV2080_CTRL_INTERNAL_FBSR_INIT gives GSP-RM this address, and UNLOADING_GUEST_DRIVER ends it
def sleep_metadata(sender, size):
    """Store the metadata of a sleep, with tables for so many bytes; return their bus address."""
    return sender.starter.put(
        struct.pack("<QQQQ", 0x8A3BB9E6C6C39D93, 2, sender.starter.radix3(bytes(size)), size).ljust(256, b"\0")
    )


@pytest.mark.parametrize("chip", CHIPS)
def test_the_fmc_saves_the_region_for_a_sleep_and_loads_it_without_frts_data(chip, make_starter):
    sender = Sender(make_starter(chip, 96 << 20))
    card = sender.card
    arguments = sender.arguments(gspFwHeapSize=8 << 20)
    assert sender.command(sender.cot(arguments=arguments)) == 0
    card.clock.sleep_us(10_000)
    # the driver reckons with the layout that the FMC has written: kgspPrepareSuspendResumeData_TU102
    meta = GspFwWprMeta.view(bytearray(card.host.read(sender.metadata, GspFwWprMeta.SIZE)))
    first, end = meta.nonWprHeapOffset + meta.nonWprHeapSize, meta.frtsOffset + meta.frtsSize
    assert (first, end) == (card.protected.first, card.protected.end)
    before = card.vram.read(first, end - first)
    place = sleep_metadata(sender, end - first)
    card.firmware_of_gsp.events.suspended(place)
    card.clock.sleep_us(10_000)
    # RISCV_CPUCTL: halted
    assert sender.rd(GSP + 0x1388) & 0x90 == 0x10
    assert not card.protected.up
    card.vram.lose()
    assert sender.command(sender.cot(arguments=sender.resume(place), frts=0, frts_bytes=0)) == 0
    card.clock.sleep_us(10_000)
    assert sender.rd(GSP + 0x1388) & 0x90 == 0x80
    assert card.vram.read(first, end - first) == before
    assert (first, end) == (card.protected.first, card.protected.end)
    assert not sender.said()


def test_a_first_start_needs_frts_data(sender):
    assert sender.command(sender.cot(frts=0, frts_bytes=0)) == 0
    sender.card.clock.sleep_us(10_000)
    assert sender.rd(GSP + 0x40) == 0x13
    assert sender.said() == ["the FMC: there is no FRTS data for a first start"]


def test_a_sleep_of_another_size_is_not_saved_and_not_resumed(sender):
    assert sender.command(sender.cot()) == 0
    sender.card.clock.sleep_us(10_000)
    place = sleep_metadata(sender, 4096)
    sender.card.firmware_of_gsp.events.suspended(place)
    sender.card.clock.sleep_us(10_000)
    assert sender.command(sender.cot(arguments=sender.resume(place), frts=0, frts_bytes=0)) == 0
    sender.card.clock.sleep_us(10_000)
    assert sender.rd(GSP + 0x40) == 0x11
    assert sender.said() == [
        "the FMC: 0x1000 bytes are to be saved of the protected region", "the FMC: what was saved holds no GSP-RM",
    ]  # fmt: skip


def test_a_message_may_come_in_several_packets(sender):
    payload = struct.pack("<I", NVDM_COT) + sender.cot()
    sender.send(START, payload[:400])
    assert sender.answer() is None
    sender.send(1 << 28, payload[400:800])
    sender.send(END | 2 << 28, payload[800:])
    assert sender.answer()[-1] == 0


def test_packets_out_of_order_are_dropped_without_an_answer(sender):
    payload = struct.pack("<I", NVDM_COT) + sender.cot(arguments=0)
    sender.send(END | 1 << 28, payload)
    sender.send(START, payload[:400])
    sender.send(END | 2 << 28, payload[400:])
    # PCI's vendor-defined type, of another vendor
    sender.send(SINGLE, struct.pack("<I", NVDM_COT ^ 1 << 8) + payload[4:])
    assert sender.answer() is None
    assert sender.said() == [
        "a packet that begins no message is dropped",
        "packet 1 of a message comes as number 2: the message is dropped",
        "a message of type 0x7e of vendor 0x10df is dropped",
    ]


def test_a_command_without_a_model_is_refused_by_its_number(sender):
    sender.send(SINGLE, struct.pack("<II", 0x13 << 24 | 0x10DE << 8 | 0x7E, 0))
    # FSP_ERR_IFS_ERR_NOT_SUPPORTED
    assert sender.answer()[-2:] == [0x13, 0xA0]
    assert [event.text for event in sender.card.log.find("unmodelled")] == ["a message of NVDM type 0x13 is refused"]


def test_a_reset_of_the_function_stops_a_boot(sender):
    assert sender.command(sender.cot()) == 0
    sender.card.reset(sender.card.resets()[0])
    assert sender.rd(sender.scratch) == 0xFF
    assert not sender.card.protected.up
    sender.card.clock.sleep_us(10_000)
    assert not sender.card.gsp.riscv_active


@pytest.mark.parametrize("chip", CHIPS)
def test_the_fmc_is_the_file_that_nouveau_takes(chip):
    """Checked as gh100_gsp_oneinit, nvkm_fsp_verify_gsp_fmc and elf_validate_sections check it."""
    file = nvidia_firmware(chip)[f"nvidia/{chip}/gsp/fmc-570.144.bin"]
    assert file[:52] == bytes.fromhex(
        "7f454c46 01010100 00000000 00000000 0000 0000 01000000 00000000 00000000 34000000 00000000 3400 0000 0000"
        "2800 0600 0100"
    )
    rows = [struct.unpack_from("<10I", file, 52 + 40 * index) for index in range(6)]
    names = file[rows[1][4] :]
    parts = {}
    for name, kind, flags, _, at, size, *_ in rows[2:]:
        assert (kind, flags) == (1, 0xFFF00102)
        assert 52 + 240 <= at <= at + size <= len(file)
        parts[names[name : names.index(b"\0", name)].decode()] = file[at : at + size]
    assert {name: len(part) for name, part in parts.items() if name != "image"} == {
        "hash": 48, "publickey": CHIPS[chip][2], "signature": CHIPS[chip][3],
    }  # fmt: skip
    assert (rows[1][1], rows[1][2]) == (3, 0x20)
    assert hashlib.sha384(parts["image"]).digest() == parts["hash"]
    assert identify(parts["image"]).part is Part.FMC

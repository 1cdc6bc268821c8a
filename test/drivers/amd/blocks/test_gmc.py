"""The memory hubs: VRAM access without page tables, page tables, what a TLB flush drops, faults with address and
client.
"""

from __future__ import annotations

import pytest

from ringup.autogen.amd.gc_vm import GCVM_L2_PROTECTION_FAULT_STATUS_LO32
from ringup.autogen.amd.mmhub import MMVM_L2_PROTECTION_FAULT_STATUS
from ringup.drivers.amd.gmc import faults as gmc_faults
from ringup.errors import DeviceTimeout
from ringup.silicon.amd.common.parts import VmFault


def test_hubs_start_in_turn_and_vram_is_where_firmware_put_it(hands):
    card = hands()
    # Linux on a navi31: "VRAM: 24560M 0x0000008000000000"
    assert card.gmc.fb_base == 0x80_0000_0000
    card.gmc.start_mmhub()
    card.vram(0x5000, 4)[:] = b"here"
    assert card.radeon.mmhub.read(0, card.gmc.fb_base + 0x5000, 4, "test") == b"here"


def test_both_hubs_read_vram_and_what_page_tables_lead_to(up):
    up.user.view[0x3000:0x3004] = b"host"
    up.vram(0x5000, 4)[:] = b"vram"
    for hub in (up.radeon.mmhub, up.radeon.gfxhub):
        assert hub.read(0, up.gmc.fb_base + 0x5000, 4, "test") == b"vram"
        assert hub.read(up.VMID, up.USER + 0x3000, 4, "test") == b"host"
        assert hub.read(up.VMID, up.USER_VRAM + 0x5000, 4, "test") == b"vram"


def test_a_flush_drops_only_the_translations_of_its_vmid(up):
    card, va = up, 0x5_0000_0000
    for vmid in (8, 9):
        card.map_page(vmid, va, 0x6000 | 0x71)
        card.gmc.set_context(vmid, card.root(vmid))
    card.vram(0x6000, 3)[:], card.vram(0x7000, 3)[:] = b"old", b"new"

    def seen(vmid):
        return [hub.read(vmid, va, 3, "test") for hub in (card.radeon.mmhub, card.radeon.gfxhub)]

    assert seen(8) == seen(9) == [b"old", b"old"]
    for vmid in (8, 9):
        card.map_page(vmid, va, 0x7000 | 0x71)
    card.gmc.flush_tlb(8)
    assert seen(8) == [b"new", b"new"]
    assert seen(9) == [b"old", b"old"]


def test_page_tables_may_begin_at_an_address_of_their_own(up):
    # Page tables count from the first page on.
    up.map_page(0, 0x3000, 0x6000 | 0x71)
    up.gmc.set_context(0, up.root(0), first_page=0x7FFF_0000_0000 >> 12, last_page=0x7FFF_3FFF_FFFF >> 12)
    up.vram(0x6000, 3)[:] = b"sys"
    for hub in (up.radeon.mmhub, up.radeon.gfxhub):
        assert hub.read(0, 0x7FFF_0000_3000, 3, "test") == b"sys"


def test_a_context_that_was_taken_away_translates_nothing(up):
    up.gmc.disable_context(up.VMID)
    with pytest.raises(VmFault, match="0x200000000"):
        up.radeon.gfxhub.read(up.VMID, up.USER, 4, "test")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("stuck_tlb_ack", r"vmid 8 on mmhub: MMVM_INVALIDATE_ENG17_ACK read 0x\w+ .* for 100 ms"),
        (
            "stuck_tlb_semaphore",
            r"vmid 8 on mmhub: taking the engine's semaphore: MMVM_INVALIDATE_ENG17_SEM .* for 100 ms",
        ),
    ],
)
def test_a_hub_that_never_answers_a_flush_is_named(hands, fault, message):
    card = hands()
    card.gmc.start_mmhub()
    card.radeon.faults.inject(fault)
    with pytest.raises(DeviceTimeout, match=message):
        card.gmc.flush_tlb(8)
    card.radeon.faults.clear(fault)
    card.gmc.flush_tlb(8)


def test_a_flush_interrupted_while_it_takes_the_semaphore_blocks_no_other(hands, monkeypatch):
    """The read that takes the semaphore was answered, but an interruption discarded the answer."""
    card = hands()
    card.gmc.start_mmhub()
    block = type(card.mmhub)

    def interrupted(self, word, done, *rest, **more):
        self.read(word)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(block, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            card.gmc.flush_tlb(8)
    card.gmc.flush_tlb(8)


def test_a_fault_is_read_once_and_the_next_one_is_kept(up):
    assert up.gmc.read_fault("gfxhub") is None
    for va in (0x6_0000_5000, 0x6_0000_6000):
        # The write goes to the default page.
        up.radeon.gfxhub.write(up.VMID, va + 8, b"lost", "CPC")
        fault = up.gmc.read_fault("gfxhub")
        assert (fault.hub, fault.gpu_va, fault.vmid, fault.write) == ("gfxhub", va, 8, True)
        assert fault.client == "CPC"
        assert f"CPC wrote page {va:#x} of vmid 8" in str(fault)
        up.radeon.settle()
    assert up.gmc.read_fault("gfxhub") is None


def test_clients_have_the_names_of_their_hub_and_direction():
    # gfxhub_v3_0.c, gfxhub_v12_0.c, mmhub_v3_0.c, mmhub_v4_1_0.c
    for hub, version, client, write, name in (
        ("gfxhub", (11, 0, 0), 8, False, "TCP"),
        ("gfxhub", (12, 0, 0), 1, True, "DB"),
        ("mmhub", (3, 0, 0), 6, False, "MP0"),
        ("mmhub", (3, 0, 2), 15, True, "OSSSYS"),
        ("mmhub", (3, 0, 0), 15, False, "client 0xf"),
        ("mmhub", (4, 1, 0), 23, True, "HDP"),
    ):
        assert gmc_faults.client_name(hub, version, client, write=write) == name


def test_a_status_word_is_decoded_field_by_field():
    # mmhub_3_0_0_sh_mask.h: MORE_FAULTS 0, WALKER_ERROR 3:1, PERMISSION_FAULTS 7:4, MAPPING_ERROR 8, CID 17:9, RW 18,
    # VMID 23:20
    status = MMVM_L2_PROTECTION_FAULT_STATUS.at((3, 0, 0))(1 | 2 << 1 | 3 << 4 | 1 << 8 | 15 << 9 | 1 << 18 | 9 << 20)
    fault = gmc_faults.decode("mmhub", (3, 0, 0), status, 0x7_FFF0_0012)
    assert (fault.client, fault.vmid, fault.write) == ("OSSSYS", 9, True)
    assert (fault.gpu_va, fault.permission, fault.walker_error) == (0x7FFF_0001_2000, 3, 2)
    assert (fault.mapping_error, fault.more) == (True, True)
    later = GCVM_L2_PROTECTION_FAULT_STATUS_LO32.at((12, 0, 0))(18 << 9)
    assert gmc_faults.decode("gfxhub", (12, 0, 0), later, 0).client == "WGS"


def test_nonsense_arguments_are_refused(up):
    for call, message in (
        (lambda: up.gmc.flush_tlb(16), "a vmid is 0 to 15, not 16"),
        (lambda: up.gmc.set_context(8, 0x123), "start on a page, not at 0x123"),
        (lambda: up.gmc.set_context(8, 0x1000, 5, 4), "no range of a 48 bit"),
        (lambda: up.gmc.read_fault("hub"), "mmhub and gfxhub, not 'hub'"),
    ):
        with pytest.raises(ValueError, match=message):
            call()

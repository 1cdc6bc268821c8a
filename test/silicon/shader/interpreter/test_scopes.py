"""What the scope of an instruction does on RDNA4 with caches: messages between waves of a group, between groups, and
between the cores and SDMA or the host. Each pattern is right as LLVM's memory model has it, and shows old bytes where
one scope or one cache instruction is left out. Source: LLVM AMDGPUUsage, "Memory Model GFX12".
"""

import struct

import pytest

from ringup.silicon.amd.common.cache_control import Invalidation
from ringup.silicon.amd.common.parts import Board
from ringup.silicon.amd.common.pieces import Piece
from ringup.silicon.amd.memory.caches import CachedMemory, Caches
from ringup.silicon.amd.memory.vm import FORMATS, Kind, WalkFault
from ringup.silicon.common.cells import RegisterSpace
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.log import EventLog
from ringup.silicon.common.memory import HostMemory, Vram

VA, PA, SIZE = 0x200_0000, 0x4000, 0x1000
# AMDGPU_PTE_VALID, EXECUTABLE, READABLE, WRITEABLE
RIGHTS = 0x71
DATA, READY, FLAG, OUT = 0, 0x100, 0x200, 0x300


class Hub:
    """A hub that maps VRAM at VA."""

    def __init__(self):
        clock = VirtualClock()
        self.board = Board("navi48", clock, EventLog(clock), Faults(), RegisterSpace(), Vram(1 << 16), HostMemory())
        self.form = FORMATS[12]

    def piece(self, vmid, gpu_va, write, execute=False):
        if not 0 <= gpu_va - VA < SIZE:
            raise WalkFault(Kind.VALID, "not mapped")
        return Piece("vram", PA + gpu_va - VA, SIZE - (gpu_va - VA), RIGHTS)

    def fault(self, vmid, gpu_va, write, client, error):
        pass

    def translations(self, vmid):
        return 0

    def epoch(self, vmid):
        return 0


class Cached:
    """Memory of a card with caches at VA. Other addresses are the arena's, where the code is."""

    def __init__(self, arena):
        hub = Hub()
        self.board, self.arena = hub.board, arena
        self.caches = Caches(self.board, scoped=True)
        self.memory = CachedMemory(hub, 8, "TCP", self.caches)
        self.scoped = self.memory.scoped

    @property
    def epoch(self):
        return self.memory.epoch

    def region(self, gpu_va, write, execute=False):
        return (self.memory if gpu_va >= VA else self.arena).region(gpu_va, write, execute)

    def place(self, *args, **rights):
        return self.arena.place(*args, **rights)

    def host_write(self, at, value):
        self.board.vram.write(PA + at, struct.pack("<I", value))

    def host_read(self, at):
        return struct.unpack("<I", self.board.vram.read(PA + at, 4))[0]

    def second_level(self, at):
        return struct.unpack("<I", self.caches.read(PA + at, 4))[0]

    @property
    def stale(self):
        return [event.text for event in self.board.log.find("stale", "gl")]


@pytest.fixture
def cached(rdna4):
    """A `Machine` of gfx1201 whose memory at VA has caches."""
    rdna4.arena = Cached(rdna4.arena)
    return rdna4


def run(cached, text, *, groups=1, items=32, steps=400, **dispatch):
    """Run a program with VA in s[0:1] and 0 in v1; return whether it ended."""
    begun = cached.start(
        "v_mov_b32_e32 v1, 0\n" + text, user_sgprs=(VA & 0xFFFF_FFFF, VA >> 32), group_count=(groups, 1, 1),
        group_size=(items, 1, 1), **dispatch,
    )  # fmt: skip
    ended = any(begun.step(500) for _ in range(steps // 50))
    assert not begun.violations, "\n".join(map(str, begun.violations))
    return ended


# Group 1 has read the data before. It says so, waits for the flag and reads again. Group 0 sends.
BETWEEN_GROUPS = """
 s_cmp_eq_u32 ttmp9, 0
 s_cbranch_scc1 sender
 global_load_b32 v2, v1, s[0:1]
 v_mov_b32_e32 v3, 1
 s_wait_loadcnt 0x0
 global_store_b32 v1, v3, s[0:1] offset:0x100 scope:SCOPE_DEV
again:
 global_load_b32 v3, v1, s[0:1] offset:0x200 {poll}
 s_wait_loadcnt 0x0
 v_readfirstlane_b32 s6, v3
 s_cmp_eq_u32 s6, 0
 s_cbranch_scc1 again
 {acquire}
 global_load_b32 v4, v1, s[0:1] {load}
 s_wait_loadcnt 0x0
 global_store_b32 v1, v4, s[0:1] offset:0x300
 s_endpgm
sender:
 global_load_b32 v3, v1, s[0:1] offset:0x100 scope:SCOPE_DEV
 s_wait_loadcnt 0x0
 v_readfirstlane_b32 s6, v3
 s_cmp_eq_u32 s6, 0
 s_cbranch_scc1 sender
 v_mov_b32_e32 v2, 7
 v_mov_b32_e32 v3, 1
 global_store_b32 v1, v2, s[0:1]
 s_wait_storecnt 0x0
 global_store_b32 v1, v3, s[0:1] offset:0x200 scope:SCOPE_DEV
 s_endpgm
"""
RIGHT = {"poll": "scope:SCOPE_DEV", "acquire": "global_inv scope:SCOPE_DEV", "load": ""}


def test_a_message_passes_between_groups_by_scope_and_invalidation(cached):
    assert run(cached, BETWEEN_GROUPS.format(**RIGHT), groups=2)
    assert cached.arena.second_level(OUT) == 7
    assert cached.arena.stale == []


def test_a_load_of_the_devices_scope_needs_no_invalidation(cached):
    assert run(cached, BETWEEN_GROUPS.format(**RIGHT | {"acquire": "", "load": "scope:SCOPE_DEV"}), groups=2)
    assert cached.arena.second_level(OUT) == 7
    assert cached.arena.stale == []


@pytest.mark.parametrize("acquire", ["", "global_inv scope:SCOPE_CU", "global_wb scope:SCOPE_SYS", "s_dcache_inv"])
def test_a_message_without_invalidation_is_old(cached, acquire):
    assert run(cached, BETWEEN_GROUPS.format(**RIGHT | {"acquire": acquire}), groups=2)
    assert cached.arena.second_level(OUT) == 0
    assert cached.arena.stale == [
        f"line {VA:#x}: a stale copy is read from GL0; it was written since by a kernel or the host and not invalidated"
    ]


EARLY = "old bytes are read while a store of another compute unit is in flight; its wave has not waited on storecnt"


@pytest.mark.parametrize(
    ("wait", "seen"),
    [
        ("s_wait_storecnt 0x0", 7), ("s_wait_storecnt_dscnt 0x0", 7), ("s_wait_idle", 7), ("s_waitcnt 0x0", 7), ("", 0),
        ("s_wait_storecnt 0x1", 0), ("s_wait_dscnt 0x0", 0), ("s_wait_loadcnt 0x0", 0),
    ],
)  # fmt: skip
def test_a_flag_overtakes_data_that_its_wave_has_not_waited_for(cached, wait, seen):
    assert run(cached, BETWEEN_GROUPS.format(**RIGHT).replace("s_wait_storecnt 0x0", wait), groups=2)
    assert cached.arena.second_level(OUT) == seen
    assert cached.arena.stale == ([] if seen else [f"line {VA:#x}: {EARLY}"])
    # They come at last.
    assert cached.arena.second_level(DATA) == 7


@pytest.mark.parametrize(("left", "seen"), [(2, 7), (3, 0)])
def test_a_count_leaves_the_last_stores_in_flight(cached, left, seen):
    more = "".join(f"global_store_b32 v1, v3, s[0:1] offset:{at}\n" for at in (0x80, 0x84))
    text = BETWEEN_GROUPS.format(**RIGHT).replace("s_wait_storecnt 0x0", f"{more} s_wait_storecnt {left}")
    assert run(cached, text, groups=2)
    assert cached.arena.second_level(OUT) == seen


def test_a_flag_that_is_polled_without_a_scope_never_comes(cached):
    assert not run(cached, BETWEEN_GROUPS.format(**RIGHT | {"poll": ""}), groups=2)
    assert f"line {VA + FLAG:#x}: a stale copy is read from GL0" in cached.arena.stale[0]


# Wave 1 has read the data; wave 0 stores to them before the group's barrier.
IN_A_GROUP = """
 v_cmp_gt_u32_e32 vcc_lo, 32, v0
 s_cbranch_vccnz sender
 global_load_b32 v2, v1, s[0:1]
 s_wait_loadcnt 0x0
 s_barrier_signal -1
 s_barrier_wait -1
 s_barrier_signal -1
 s_barrier_wait -1
 {acquire}
 global_load_b32 v4, v1, s[0:1] {load}
 s_wait_loadcnt 0x0
 global_store_b32 v1, v4, s[0:1] offset:0x300
 s_endpgm
sender:
 s_barrier_signal -1
 s_barrier_wait -1
 v_mov_b32_e32 v2, 7
 global_store_b32 v1, v2, s[0:1]
 s_wait_storecnt 0x0
 s_barrier_signal -1
 s_barrier_wait -1
 s_endpgm
"""


@pytest.mark.parametrize(
    ("acquire", "load", "wgp_mode", "seen"),
    [
        ("global_inv scope:SCOPE_SE", "", True, 7), ("", "scope:SCOPE_SE", True, 7), ("", "", True, 0),
        ("global_inv scope:SCOPE_CU", "", True, 0), ("", "", False, 7),
    ],
)  # fmt: skip
def test_waves_of_a_group_share_a_cache_in_cu_mode_only(cached, acquire, load, wgp_mode, seen):
    assert run(cached, IN_A_GROUP.format(acquire=acquire, load=load), items=64, wgp_mode=wgp_mode)
    assert cached.arena.second_level(OUT) == seen
    assert bool(cached.arena.stale) == (seen == 0)


@pytest.mark.parametrize(("wgp_mode", "seen"), [(True, 0), (False, 7)])
def test_a_barrier_does_not_wait_for_stores_to_memory(cached, wgp_mode, seen):
    text = IN_A_GROUP.format(acquire="global_inv scope:SCOPE_SE", load="").replace("s_wait_storecnt 0x0", "")
    assert run(cached, text, items=64, wgp_mode=wgp_mode)
    assert cached.arena.second_level(OUT) == seen
    assert cached.arena.stale == ([] if seen else [f"line {VA:#x}: {EARLY}"])


def test_a_store_arrives_at_last_while_its_wave_goes_on(cached):
    """Group 0 stores a flag without waiting for it and polls for the answer."""
    text = """
     v_mov_b32_e32 v3, 1
     v_mov_b32_e32 v4, 0x100
     v_mov_b32_e32 v5, 0x200
     s_cmp_eq_u32 ttmp9, 0
     s_cbranch_scc0 again
     v_swap_b32 v4, v5
     global_store_b32 v4, v3, s[0:1]
    again:
     global_load_b32 v6, v5, s[0:1] scope:SCOPE_DEV
     s_wait_loadcnt 0x0
     v_readfirstlane_b32 s6, v6
     s_cmp_eq_u32 s6, 0
     s_cbranch_scc1 again
     global_store_b32 v4, v3, s[0:1] scope:SCOPE_DEV
     s_endpgm"""
    assert run(cached, text, groups=2, steps=4000)


TO_HOST = """
 v_mov_b32_e32 v2, 7
 v_mov_b32_e32 v3, 1
 global_store_b32 v1, v2, s[0:1] {store}
 {release}
 s_wait_storecnt 0x0
 global_store_b32 v1, v3, s[0:1] offset:0x200 {flag}
 s_endpgm
"""


@pytest.mark.parametrize(
    ("store", "release", "flag", "seen"),
    [
        ("", "global_wb scope:SCOPE_SYS", "scope:SCOPE_SYS", (7, 1)), ("", "", "scope:SCOPE_SYS", (0, 1)),
        ("", "global_wb scope:SCOPE_DEV", "scope:SCOPE_SYS", (0, 1)), ("scope:SCOPE_SYS", "", "scope:SCOPE_SYS", (7, 1)),
        ("", "global_wb scope:SCOPE_SYS", "scope:SCOPE_DEV", (7, 0)), ("", "global_wbinv scope:SCOPE_SYS", "", (7, 0)),
        ("scope:SCOPE_DEV", "global_inv scope:SCOPE_SYS", "", (0, 0)),
    ],
)  # fmt: skip
def test_the_host_sees_what_reached_the_systems_scope(cached, store, release, flag, seen):
    assert run(cached, TO_HOST.format(store=store, release=release, flag=flag))
    memory = cached.arena
    assert (memory.host_read(DATA), memory.host_read(FLAG)) == seen
    assert (memory.second_level(DATA), memory.second_level(FLAG)) == (7, 1)


POLL = """
 global_load_b32 v5, v1, s[0:1]
 s_wait_loadcnt 0x0
 v_mov_b32_e32 v3, 1
 global_store_b32 v1, v3, s[0:1] offset:0x100 scope:SCOPE_SYS
again:
 global_load_b32 v3, v1, s[0:1] offset:0x200 {poll}
 s_wait_loadcnt 0x0
 v_readfirstlane_b32 s6, v3
 s_cmp_eq_u32 s6, 0
 s_cbranch_scc1 again
 {acquire}
 global_load_b32 v4, v1, s[0:1]
 s_wait_loadcnt 0x0
 global_store_b32 v1, v4, s[0:1] offset:0x300 scope:SCOPE_SYS
 s_endpgm
"""


def answered(cached, text, write):
    """Run a program that polls, call `write` for data and flag once it does; return whether it ended."""
    begun = cached.start("v_mov_b32_e32 v1, 0\n" + text, user_sgprs=(VA & 0xFFFF_FFFF, VA >> 32))
    for _ in range(20):
        begun.step(5)
    assert cached.arena.host_read(READY) == 1
    write(DATA, 7)
    write(FLAG, 1)
    ended = any(begun.step(100) for _ in range(10))
    assert not begun.violations
    return ended


@pytest.mark.parametrize(
    ("poll", "acquire", "out"),
    [
        ("scope:SCOPE_SYS", "global_inv scope:SCOPE_SYS", 7), ("scope:SCOPE_SYS", "global_inv scope:SCOPE_DEV", 0),
        ("scope:SCOPE_DEV", "global_inv scope:SCOPE_SYS", None),
    ],
)  # fmt: skip
def test_the_hosts_message_needs_the_systems_scope(cached, poll, acquire, out):
    ended = answered(cached, POLL.format(poll=poll, acquire=acquire), cached.arena.host_write)
    assert ended == (out is not None)
    if ended:
        assert cached.arena.host_read(OUT) == out


@pytest.mark.parametrize(("acquire", "out"), [("global_inv scope:SCOPE_DEV", 7), ("", 0)])
def test_a_message_of_sdma_needs_the_devices_scope(cached, acquire, out):
    def write(at, value):
        cached.arena.caches.write(PA + at, struct.pack("<I", value), "SDMA0")

    assert answered(cached, POLL.format(poll="scope:SCOPE_DEV", acquire=acquire), write)
    assert cached.arena.host_read(OUT) == out
    assert [f"line {VA:#x}" in one and "SDMA0" in one for one in cached.arena.stale] == [True] * (out == 0)


SCALAR = """
 s_load_b32 s6, s[0:1], 0x0
 v_mov_b32_e32 v2, 7
 global_store_b32 v1, v2, s[0:1] scope:SCOPE_DEV
 s_wait_idle
 {invalidate}
 s_load_b32 s7, s[0:1], 0x0 {scope}
 s_wait_kmcnt 0x0
 v_mov_b32_e32 v4, s7
 global_store_b32 v1, v4, s[0:1] offset:0x300
 s_endpgm
"""


@pytest.mark.parametrize(
    ("invalidate", "scope", "out"),
    [("", "", 0), ("s_dcache_inv", "", 7), ("", "scope:SCOPE_SE", 7), ("global_inv scope:SCOPE_DEV", "", 0)],
)
def test_the_scalar_cache_is_apart_from_the_vectors(cached, invalidate, scope, out):
    assert run(cached, SCALAR.format(invalidate=invalidate, scope=scope))
    assert cached.arena.second_level(OUT) == out
    assert bool(cached.arena.stale) == (out == 0)


def test_atomics_of_any_scope_meet_in_the_second_level(cached):
    text = "v_mov_b32_e32 v2, 1\n global_load_b32 v3, v1, s[0:1]\n global_atomic_add_u32 v1, v2, s[0:1]\n s_endpgm"
    assert run(cached, text, groups=4, items=64)
    assert cached.arena.second_level(DATA) == 4 * 64
    assert cached.arena.host_read(DATA) == 0


def test_an_atomic_does_not_look_into_its_own_cache(cached):
    assert run(cached, "global_load_b32 v3, v1, s[0:1]\n s_wait_loadcnt 0x0\n s_endpgm")
    cached.arena.caches.write(PA, struct.pack("<I", 5), "SDMA0")
    text = "v_mov_b32_e32 v2, 1\n s_mov_b32 exec_lo, 1\n global_atomic_add_u32 v1, v2, s[0:1]\n s_endpgm"
    assert run(cached, text)
    assert cached.arena.second_level(DATA) == 6
    assert cached.arena.stale == []


def test_an_atomic_of_the_systems_scope_meets_the_hosts_bytes(cached):
    assert run(cached, "global_load_b32 v3, v1, s[0:1]\n s_wait_loadcnt 0x0\n s_endpgm")
    cached.arena.host_write(DATA, 100)
    text = "v_mov_b32_e32 v2, 1\n s_mov_b32 exec_lo, 1\n global_atomic_add_u32 v3, v1, v2, s[0:1] {}\n s_wait_loadcnt 0x0\n s_endpgm"
    assert run(cached, text.format("th:TH_ATOMIC_RETURN scope:SCOPE_DEV"))
    assert cached.arena.host_read(DATA) == 100
    assert cached.arena.second_level(DATA) == 1
    cached.arena.caches.invalidate(Invalidation(second_writeback=True, second_invalidate=True))
    cached.arena.host_write(DATA, 200)
    assert run(cached, text.format("th:TH_ATOMIC_RETURN scope:SCOPE_SYS"))
    assert cached.arena.host_read(DATA) == 201


def test_own_stores_are_seen_whatever_their_scope_and_their_neighbours_stay(cached):
    """A neighbour in the same line may change: only bytes that are read count as old."""
    text = """
     v_lshlrev_b32_e32 v3, 2, v0
     v_mov_b32_e32 v2, ttmp9
     v_lshl_add_u32 v3, ttmp9, 4, v3
     s_mov_b32 exec_lo, 15
     global_load_b32 v5, v3, s[0:1]
     s_wait_loadcnt 0x0
     global_store_b32 v3, v2, s[0:1] scope:SCOPE_{}
     s_wait_storecnt 0x0
     global_load_b32 v5, v3, s[0:1]
     s_wait_loadcnt 0x0
     global_store_b32 v3, v5, s[0:1] offset:0x300
     s_endpgm"""
    for scope in ("CU", "SYS"):
        assert run(cached, text.format(scope), groups=4)
        assert [cached.arena.second_level(OUT + 16 * group) for group in range(4)] == [0, 1, 2, 3]
    assert cached.arena.stale == []


def test_packets_invalidate_the_caches_of_all_units_between_dispatches(cached):
    load = (
        "global_load_b32 v4, v1, s[0:1]\n s_wait_loadcnt 0x0\n global_store_b32 v1, v4, s[0:1] offset:0x300\n s_endpgm"
    )
    assert run(cached, load)
    cached.arena.caches.write(PA, struct.pack("<I", 7), "SDMA0")
    for what, seen in ((Invalidation(scalar=True, gl1=True), 0), (Invalidation(gl0=True), 7)):
        cached.arena.caches.invalidate(what)
        assert run(cached, load)
        assert cached.arena.second_level(OUT) == seen
    assert len(cached.arena.stale) == 1


def test_a_fault_names_its_lane(cached):
    text = "v_lshlrev_b32_e32 v1, 12, v0\n global_load_b32 v2, v1, s[0:1] scope:SCOPE_DEV\n s_endpgm"
    broken = cached.broken(text, user_sgprs=(VA & 0xFFFF_FFFF, VA >> 32))
    assert (broken.kind, broken.lane) == ("memory", 1)

"""A card behind a USB bridge: transfers and waits of its work, its start and its copies at three USB speeds, compared
with tinygrad on the same virtual enclosure. Counts are exact and times are of the model's clock, so each is measured
once.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ringup
from ringup.drivers.transport.clock import HostClock
from ringup.errors import RingupError
from ringup.tools.bench.bench import Bench
from ringup.tools.bench.benches.shader import compiled
from ringup.tools.bench.figure import Figure, Goal
from ringup.tools.bench.on_card import VIRTUAL
from ringup.tools.bench.plot import Bars, Curves, Plot, size_text
from ringup.tools.bench.timing import median
from ringup.tools.competitor.environment import find_clang

if TYPE_CHECKING:
    from ringup.silicon.asm2464pd import Enclosure
    from ringup.silicon.asm2464pd.hardware.timing import Speed
    from ringup.tools.competitor.usb_door import Cost

KIB, MIB = 1 << 10, 1 << 20
VRAM_BYTES = 1024 * MIB
SPEEDS = {"5 Gb/s": "super", "10 Gb/s": "super_plus", "20 Gb/s": "super_plus_by2"}
USUAL = "10 Gb/s"  # the speed for counts, which hardly depend on it
SMALL, PUBLISHED = "the card's own small firmware", "the published firmware"
PACKAGE = "firmware-amd"
SIZES = (64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
COUNTED_BYTES, QUICK_MAX_BYTES = MIB, MIB
BULK_BYTES = 4 * MIB  # copies of at least this size are compared with the goal
SHARE_GOAL = Goal("ours", 90)
TRANSFERS_GOAL, WAITS_GOAL, WARM_GOAL = Goal("ratio", 2), Goal("ratio", 10), Goal("ours", 6)
WARM_ROUNDS = 5
COLD, FIRST, WARM = "cold boot", "first kernel", "warm kernel"
SIDES = ("ringup", "tinygrad")
REMOTE = {"DEV": "USB+AMD:LLVM"}
SOURCE = """
__kernel __attribute__((reqd_work_group_size(4, 1, 1)))
void add(__global float *out, __global const float *a, __global const float *b)
{ unsigned i = __builtin_amdgcn_workitem_id_x(); out[i] = a[i] + b[i]; }
"""
LEFT, RIGHT, ITEMS = (1.0, 2.0, 3.0, 4.0), (10.0, 20.0, 30.0, 40.0), 4
VENDOR = {"asm2464pd-patched": "patched", "asm2464pd-stock": "stock"}
VENDOR_BYTES = 256 * KIB
SINGLE_BYTES, QUICK_SINGLE_BYTES = 16 * KIB, KIB
COUNT_NOTE = (
    "on the virtual bridge with the open firmware, {}; a wait is a call that waits for one or "
    "more transfers, a turn is a "
    "stop of the virtual host until a transfer ended, also within one call; peer: its driver, "
    "unmodified above libusb; its firmware files are the same"
)
TIME_NOTE = "by the virtual bridge's clock, which is a model: the driver's own computing and this computer cost nothing"
SHARE_NOTE = (
    "rate by the virtual bridge's clock, over the least of the link's payload rate and that of "
    "the bridge's memory engine"
)
VENDOR_NOTE = (
    "by the virtual bridge's clock, at 10 Gb/s; no cold boot: at 0.7 ms a dword it takes half a minute and more of "
    "that clock; tinygrad drives "
    "the open firmware alone"
)
REAL_NOTE = "on {}, by the wall's clock"


def measure(bench: Bench) -> Iterator[Figure | Plot]:
    """Start a card, compute and copy on every firmware of the bridge; on a real enclosure only ringup, and once."""
    sizes = [size for size in SIZES if size <= QUICK_MAX_BYTES or not bench.quick]
    if bench.card.startswith("usb:"):
        bench.say(bench.card)
        yield from _real(bench, sizes)
        return
    with tempfile.TemporaryDirectory(prefix="ringup-bench-") as folder:
        yield from _open_firmware(bench, _firmware(bench, Path(folder)), sizes)
    yield from _vendor(bench)


def _chip(bench: Bench) -> str:
    return bench.card.removeprefix(VIRTUAL).partition("@")[0]


def _firmware(bench: Bench, folder: Path) -> dict[str, list[Path]]:
    """Return folders of firmware files by kind: the virtual card's, put into `folder`, and the published ones if they
    are installed.
    """
    # only this bench needs it, like the whole model
    from ringup.silicon.amd.board import images
    from ringup.silicon.amd.board.chips import CHIPS

    for name, data in images.build(CHIPS[_chip(bench)]).items():
        (folder / name).write_bytes(data)
    found = {SMALL: [folder]}
    if bench.firmware:
        return found | {PUBLISHED: list(bench.firmware)}
    tree = bench.sources.find(PACKAGE)
    return found | ({PUBLISHED: [tree / "lib/firmware/amdgpu"]} if tree is not None else {})


def _open_firmware(bench: Bench, firmware: Mapping[str, list[Path]], sizes: Sequence[int]) -> Iterator[Figure | Plot]:
    """Yield figures of the open firmware: counts and copies with the small files, the start with all files and at every
    speed.
    """
    runs = {}
    for which, paths in firmware.items():
        for speed, model in SPEEDS.items():
            bench.say(f"{which}, {speed}")
            copied = sizes if which == SMALL else []
            ours, rate = _virtual(bench, model, paths, copied)
            beside = not bench.quick or (which, speed) == (SMALL, USUAL)
            runs[which, speed] = ours, _peer(bench, model, paths, copied) if beside else None, rate
    ours, theirs, _ = runs[SMALL, USUAL]
    yield from _counts(ours, theirs, COUNT_NOTE.format(f"{USUAL}, {SMALL}"), TIME_NOTE)
    boots: dict[str, list[float]] = {}
    for (which, speed), (ours, theirs, _) in runs.items():
        boot_ms = _beside(_ms, ours[COLD], theirs[COLD] if theirs else None)
        yield Figure(f"{COLD}, {which}, {speed}", "ms", *boot_ms, note=TIME_NOTE)
        for side, time_ms in zip(SIDES, boot_ms, strict=True):
            boots.setdefault(f"{side}, {which}", []).extend([] if time_ms is None else [time_ms])
    curves: dict[str, list[tuple[float, float]]] = {}
    for speed in SPEEDS:
        ours, theirs, rate = runs[SMALL, speed]
        yield from _shares(speed, sizes, rate, ours, theirs, curves)
    yield Curves("Copies over USB, of what the way carries", "size of one copy", "%", curves)
    complete = {name: times for name, times in boots.items() if len(times) == len(SPEEDS)}
    yield Bars("Cold boot over USB, by the model's clock", "ms", list(SPEEDS), complete)


def _counts(ours: Mapping[str, Cost], theirs: Mapping[str, Cost] | None, about: str, times: str) -> Iterator[Figure]:
    """Yield transfers, waits, turns and time of each piece of work. `about` and `times` are the notes for counts and
    for times.
    """
    mib = size_text(COUNTED_BYTES)
    works = {
        COLD: COLD,
        FIRST: FIRST,
        WARM: WARM,
        f"in {COUNTED_BYTES}": f"{mib} in",
        f"out {COUNTED_BYTES}": f"{mib} out",
    }
    for key, title in works.items():
        goal = WARM_GOAL if key == WARM else TRANSFERS_GOAL
        mine, other = ours[key], theirs[key] if theirs else None
        yield Figure(f"{title}, transfers", "", *_beside(attrgetter("transfers"), mine, other), goal, note=about)
        yield Figure(f"{title}, waits", "", *_beside(attrgetter("waits"), mine, other), WAITS_GOAL, note=about)
        if mine.turns:
            yield Figure(f"{title}, turns", "", *_beside(attrgetter("turns"), mine, other), note=about)
        yield Figure(f"{title}, time", "ms", *_beside(_ms, mine, other), note=times)


def _ms(cost: Cost) -> float:
    return cost.time_us / 1e3


def _beside(part: Callable[[Cost], float], ours: Cost, theirs: Cost | None) -> tuple[float, float | None]:
    return part(ours), part(theirs) if theirs else None


def _shares(
    speed: str,
    sizes: Sequence[int],
    rate: float,
    ours: Mapping[str, Cost],
    theirs: Mapping[str, Cost] | None,
    curves: dict[str, list[tuple[float, float]]],
) -> Iterator[Figure]:
    """Yield copies as a share of `rate`, in bytes a microsecond, and add them to the curves."""
    for way in ("in", "out"):
        for size in sizes:
            shares = [100 * size / costs[f"{way} {size}"].time_us / rate for costs in (ours, theirs) if costs]
            for side, share in zip(SIDES, shares, strict=False):
                curves.setdefault(f"{side} {way}, {speed}", []).append((size, share))
            yield Figure(
                f"copy {way}, {size_text(size)}, {speed}",
                f"% of {rate:.0f} MB/s",
                shares[0],
                shares[1] if theirs else None,
                SHARE_GOAL if size >= BULK_BYTES else None,
                better="more",
                note=SHARE_NOTE,
            )


# --- both sides -------------------------------------------------------------------------------------------------------
def _enclosure(bench: Bench, speed: str, firmware: str = "open", **options: Any) -> Enclosure:
    """Return a new enclosure with a card on a new host."""
    from ringup.silicon import card
    from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost

    radeon = card(_chip(bench), vram_bytes=VRAM_BYTES, enumerated=False)
    enclosure = Enclosure(radeon, firmware, speed, **options)
    VirtualUsbHost().plug(enclosure)
    return enclosure


def _payload_rate(speed: Speed) -> float:
    """Return bytes a microsecond."""
    from ringup.silicon.asm2464pd.hardware.timing import SRAM_BYTES_PER_US

    return min(speed.bytes_per_us, SRAM_BYTES_PER_US)


def _virtual(bench: Bench, speed: str, firmware: Sequence[Path], sizes: Sequence[int]) -> tuple[dict[str, Cost], float]:
    """Let ringup work on a new virtual enclosure. Return the cost of each piece and the payload rate. Raises
    `RingupError` for a mistake that the model recorded.
    """
    enclosure = _enclosure(bench, speed)
    transport = {"enclosure": enclosure}
    host = enclosure.host
    assert host is not None  # it was plugged in
    name = f"{VIRTUAL}{_chip(bench)}@asm2464pd"
    costs = _work(name, transport, firmware, enclosure.machine, sizes, lambda: host.waits)
    _no_mistakes(enclosure, "ringup")
    return costs, _payload_rate(enclosure.chip.speed)


def _no_mistakes(enclosure: Enclosure, whose: str) -> None:
    found = [*enclosure.violations, *(enclosure.card.violations if enclosure.card else ())]
    if found:
        raise RingupError(f"bench usb: {whose} made a mistake that fails on real hardware: {found[0]}")


def _work(
    name: str,
    transport: Mapping[str, Any],
    firmware: Sequence[Path],
    clock: Any,
    sizes: Sequence[int],
    turns: Callable[[], int],
) -> dict[str, Cost]:
    """Start the card, compute and copy; return the cost of each piece. `turns` counts the host's turns. Raises
    `RingupError` for a wrong result.
    """
    from ringup.tools.competitor.usb_door import Cost

    costs: dict[str, Cost] = {}
    begin_us, begin = clock.now_us, turns()
    with ringup.open(name, kind=ringup.Radeon, transport=transport, firmware=firmware) as card:

        def now() -> Cost:
            # A path through a bridge counts its transfers.
            counts = card.device.counts  # type: ignore[attr-defined]
            return Cost(counts.transfers, counts.waits, turns() - begin, clock.now_us - begin_us)

        def cost(what: str, work: Callable[[], Any]) -> Any:
            before = now()
            result = work()
            costs[what] = now().since(before)
            return result

        costs[COLD] = now()
        if sizes:
            _compute(card, cost, costs)
        for size in sizes:
            data = random.Random(size).randbytes(size)
            with card.alloc(size, name="copied") as buffer:
                # A read of the link waits for the writes that allocation has posted, so that they do not count for the
                # copy.
                _ = card.device.link  # type: ignore[attr-defined]
                cost(f"in {size}", lambda: card.copy.upload(buffer, data).wait())  # noqa: B023 - called at once
                if cost(f"out {size}", partial(card.copy.download, buffer)) != data:
                    raise RingupError(f"bench usb: {size} bytes came back changed")
    return costs


def _compute(card: Any, cost: Callable[[str, Callable[[], Any]], Any], costs: dict[str, Cost]) -> None:
    from ringup.tools.competitor.usb_door import Cost

    code = compiled(SOURCE, card.info.target)
    floats = [memoryview(bytearray(4 * ITEMS)).cast("f") for _ in range(2)]
    inputs = []
    for view, values in zip(floats, (LEFT, RIGHT), strict=True):
        view[:] = memoryview(bytearray(view.nbytes)).cast("f")
        for at, value in enumerate(values):
            view[at] = value
        inputs.append(card.alloc(view.nbytes, name="input"))
        card.copy.upload(inputs[-1], view.tobytes()).wait()

    def launch(kernel: Any, out: Any) -> None:
        stream = card.compute.stream()
        stream.dispatch(kernel, 1, ITEMS, [out, *inputs])
        card.compute.submit(stream).wait()

    def first() -> tuple[Any, Any]:
        program, out = card.load(code, name="add"), card.alloc(4 * ITEMS, name="sums")
        launch(program.only(), out)
        return program, out

    program, out = cost(FIRST, first)
    rounds = []
    for _ in range(WARM_ROUNDS):
        cost(WARM, lambda: launch(program.only(), out))
        rounds.append(costs[WARM])
    costs[WARM] = Cost(
        *(
            median(column)
            for column in zip(*((one.transfers, one.waits, one.turns, one.time_us) for one in rounds), strict=True)
        )
    )
    sums = memoryview(bytes(card.copy.download(out))).cast("f").tolist()
    if sums != [one + other for one, other in zip(LEFT, RIGHT, strict=True)]:
        raise RingupError(f"bench usb: the kernel's sums are wrong: {sums}")
    for buffer in (*inputs, out):
        buffer.free()
    program.free()


def _peer(bench: Bench, speed: str, firmware: Sequence[Path], sizes: Sequence[int]) -> dict[str, Cost] | None:
    """Let tinygrad work on such an enclosure; None without tinygrad. Raises `RingupError` if the model broke or
    tinygrad made a mistake.
    """
    clang = find_clang()
    if bench.peer.python is not None and clang is None:
        bench.peer.say("no figure of tinygrad: it makes code with clang, and there is none")
    if bench.peer.python is None or clang is None:
        return None
    from ringup.tools.competitor.usb_door import UsbDoor

    # tinygrad fills windows to their end, and works on real hardware. So of the two reports of what happens then, use
    # the one that allows it
    enclosure = _enclosure(bench, speed, spoils_full_windows=False)
    assert enclosure.host is not None  # it was plugged in
    with tempfile.TemporaryDirectory(prefix="ringup-bench-") as folder, UsbDoor(enclosure.host) as door:
        job = {
            "variables": {**REMOTE, "CACHEDB": f"{folder}/cache", "CC": clang}, "address": door.address,
            "firmware": [str(path) for path in firmware], "warm": WARM_ROUNDS if sizes else 0, "sizes": list(sizes),
        }  # fmt: skip
        answer = bench.peer.call("bridge", job)
    if answer is None:
        return None
    if not (answer["right"] and answer["same"]):
        bench.peer.say("no figure of tinygrad: its results on the virtual enclosure are wrong")
        return None
    _no_mistakes(enclosure, "tinygrad")
    costs = door.costs
    warm = [costs[f"{WARM} {number}"] for number in range(WARM_ROUNDS)] if sizes else []
    if warm:
        costs[WARM] = sorted(warm, key=lambda cost: cost.transfers)[len(warm) // 2]
    return costs


# --- the vendor's firmware, and real enclosures -----------------------------------------------------------------------
def _vendor(bench: Bench) -> Iterator[Figure]:
    """Yield the cost of opening with the vendor's firmware, and its transfer rates."""
    single = QUICK_SINGLE_BYTES if bench.quick else SINGLE_BYTES
    for bridge, firmware in VENDOR.items():
        bench.say(f"{firmware} firmware")
        enclosure = _enclosure(bench, SPEEDS[USUAL], firmware)
        clock = enclosure.machine
        begin_us = clock.now_us
        with closing(ringup.connect(f"{VIRTUAL}{_chip(bench)}@{bridge}", enclosure=enclosure)) as device:
            opened_us = clock.now_us - begin_us
            yield Figure(f"{firmware} firmware, opening, transfers", "", device.counts.transfers, note=VENDOR_NOTE)
            yield Figure(f"{firmware} firmware, opening, waits", "", device.counts.waits, note=VENDOR_NOTE)
            yield Figure(f"{firmware} firmware, opening", "ms", opened_us / 1e3, note=VENDOR_NOTE)
            for title, size, move in _ways(device, single):
                # the first one sets the path up
                move()
                before, before_us = device.counts.copy(), clock.now_us
                move()
                spent, time_us = device.counts.since(before), clock.now_us - before_us
                yield Figure(f"{title}, transfers", "", spent.transfers, note=VENDOR_NOTE)
                yield Figure(title, "MB/s", size / time_us, better="more", note=VENDOR_NOTE)
        _no_mistakes(enclosure, "ringup")


def _ways(device: Any, single: int) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    """Return the possible paths of bytes: name, size, and the function that moves them."""
    bridge, window = device.bridge, device.bars[0]
    data = random.Random(1).randbytes(VENDOR_BYTES)
    if bridge.bulk is not None:

        def fill() -> None:
            bridge.bulk.fill(0, data)
            bridge.bulk.settle(0)

        def drain() -> None:
            for _ in range(0, VENDOR_BYTES, bridge.bulk.drain_bytes):
                bridge.bulk.arm(0, bridge.bulk.drain_bytes)
                bridge.bulk.drain()

        yield f"{bridge.kind} firmware, {size_text(VENDOR_BYTES)} into the bridge's memory", VENDOR_BYTES, fill
        yield (
            f"{bridge.kind} firmware, {size_text(VENDOR_BYTES)} out of the bridge's memory, by pages",
            VENDOR_BYTES,
            drain,
        )
        return

    def write() -> None:
        window.write_block(0, data[:single])
        bridge.settle()

    yield f"{bridge.kind} firmware, {size_text(single)} into the card's memory, by dwords", single, write
    yield (
        f"{bridge.kind} firmware, {size_text(single)} out of the card's memory, by dwords",
        single,
        partial(window.read_block, 0, single),
    )


def _real(bench: Bench, sizes: Sequence[int]) -> Iterator[Figure]:
    """Yield the same for a real enclosure, by the wall clock: only ringup, without a known payload rate."""
    costs, about = _work(bench.card, {}, bench.firmware, HostClock(), sizes, lambda: 0), REAL_NOTE.format(bench.card)
    yield from _counts(costs, None, about, about)
    for way in ("in", "out"):
        for size in sizes:
            rate = size / costs[f"{way} {size}"].time_us
            yield Figure(f"copy {way}, {size_text(size)}", "MB/s", rate, better="more", note=about)

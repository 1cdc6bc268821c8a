"""`ringup demo`: start a card in its enclosure, copy, compute, pull its cable, start it again and switch it off."""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from ringup.autogen.generate.manifest import MANIFEST, load
from ringup.autogen.generate.sources import Sources
from ringup.drivers.usb4.counts import Counts
from ringup.errors import CompileError, DeviceFault, DeviceLost, NotSupported
from ringup.queues.trace import Trace
from ringup.tools.bench.plot import size_text
from ringup.tools.cards.up import UNITS
from ringup.tools.command_line.card_argument import VIRTUAL, card_name
from ringup.tools.common import files
from ringup.tools.common.json_text import json_text
from ringup.tools.common.paths import add_firmware_argument, cache_folder
from ringup.tools.common.progress import Progress
from ringup.tools.common.stages import stage_rows
from ringup.tools.common.usb_side import bridge_of, plain
from ringup.tools.demo.desk import SPEEDS, Desk, Up, UsbTracks, bring_up
from ringup.tools.demo.faults import fault_and_reset
from ringup.tools.demo.kernels import Prepared, tasks
from ringup.tools.host import doctor
from ringup.tools.host.finding import FINE, OPTIONAL, WRONG

if TYPE_CHECKING:
    from ringup.tools.demo.show import Show

DEFAULT = "virtual:navi31@asm2464pd"
HEADINGS = (
    "This machine", "The enclosure", "Bring-up", "Copies", "Kernels", "Sentences", "The cable is pulled", "Power down", "To look at",
)  # fmt: skip
FAULT = "A fault"  # on NVIDIA's cards, in place of the cable
MACHINE, ENCLOSURE, BRING_UP, COPIES, KERNELS, SENTENCES, PULLED, DOWN, FILES = HEADINGS
KIB, MIB = 1 << 10, 1 << 20
COPY_BYTES, SLOW_BYTES = 4 * MIB, 4 * KIB  # slow: with firmware without bulk transfers
SWEEP = (16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB)
BUSY_RUNS = 50  # runs of the last kernel, to measure its power
WARM, WARM_RUNS = "saxpy", 3  # so short that one poll sees its end
STORY_TRACK, POWER_TRACK = "demo", "card/power, W"
TO, FROM = "to", "from"
SEED = 5
TRACE_FILE, REPORT_FILE = "demo.pftrace", "demo.html"
MODELLED = "times, rates and watts are the model's estimates for the hardware"
# how kernels are launched, by whether the card is NVIDIA's
LAUNCHED = {False: "PM4 packets", True: "launch descriptors (QMDs)"}
NO_TENSORS = "skipped: the compiler of tensors has no target for NVIDIA's cards yet"
NO_POWER = "NVIDIA's driver tells no power through its public controls"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "demo",
        help="start a card, copy, compute, pull its cable, switch it off; write a trace and a page",
        description="Start a card (by default a virtual one in a virtual enclosure) and show its work: "
        "stages with times and USB "
        "transfers, a copy each way, kernels dispatched through the card's own packets and checked against NumPy, a "
        "published model, compiled here, that finds which of ten sentences is nearest to one that you type (not on "
        "NVIDIA's cards yet), an unplug in the middle of a copy and the recovery (only with a virtual enclosure), a "
        "fault of a kernel and the reset (only on NVIDIA's cards, such as virtual:ga102@nvidia), power going down. It "
        "writes a trace for ui.perfetto.dev and a page with plots.",
    )
    parser.add_argument(
        "card", nargs="?", metavar="CARD", help=f"its name, as `ringup list` shows it (default: {DEFAULT})"
    )
    parser.add_argument("--card", dest="card_option", metavar="NAME", help="the same as CARD")
    add_firmware_argument(parser)
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for trace and page (default: a new temporary folder)"
    )
    parser.add_argument(
        "--sentence",
        default="",
        metavar="TEXT",
        help="the sentence for the model (default: what is typed, if anything)",
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="also write the output as a picture")
    parser.add_argument("--json", action="store_true", help="print one object with the figures and nothing else")


def run(args: argparse.Namespace) -> int:
    # this imports rich, which other commands do not need
    from ringup.tools.demo.show import Show

    name = card_name(args) if args.card or args.card_option else DEFAULT
    show = Show(quiet=args.json, picture=args.svg)
    demo = Demo(name, args.firmware, show, args.sentence)
    demo.play()
    folder = args.out or Path(mkdtemp(prefix="ringup-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    demo.leave(folder)
    show.end()
    if args.json:
        print(json_text(demo.story))
    return 0


class Demo:
    """The whole demo. `story` has the figures as plain values."""

    def __init__(self, name: str, firmware: list[Path], show: Show, sentence: str = "") -> None:
        """`sentence`: for the model; if it is empty the user is asked."""
        self._name, self._firmware, self._show, self._sentence = name, firmware, show, sentence
        self._desk = Desk(name)
        self._usb, self._trace = UsbTracks(), Trace()
        self._image: Any = None
        self._kernel: Any = None
        times = MODELLED if name.startswith(VIRTUAL) else "times are of this computer"
        self.story: dict[str, Any] = {"card": name, "times": times, "chapters": []}

    def play(self) -> None:
        """Run all chapters. A failure of the card ends the demo with its error."""
        self._heading(MACHINE)
        self._machine()
        with self._card() as up:
            self._introduce(up)
            with self._chapter(COPIES, up, "to the card and back"):
                self._copies(up)
            with self._chapter(
                KERNELS, up, f"machine code by {LAUNCHED[up.nvidia]}, results compared with NumPy's to the bit"
            ):
                self._kernels(up)
            with self._chapter(
                SENTENCES, up, "a published model in our compiler's machine code, results compared with NumPy's"
            ):
                self._sentences(up)
            if up.nvidia:
                with self._chapter(FAULT, up, "a kernel stores where no memory is; its channel is made anew"):
                    self.story["fault"] = fault_and_reset(up, self._show, self._kernel)
            if self._desk.enclosure is not None:
                with self._chapter(PULLED, up, "in the middle of a copy, and plugged in again"):
                    self._pull(up)
            else:
                self._rest(up)
        if self._desk.enclosure is not None:
            self._come_back()
        self._power_down()
        if mistakes := self._desk.mistakes():
            self._show.line(f"the models recorded mistakes that fail on real hardware: {'; '.join(mistakes)}", "red")
        self.story["mistakes"] = mistakes

    def leave(self, folder: Path) -> None:
        """Write trace and page into a folder, and print their paths."""
        from ringup.tools.demo.report import report

        self._usb.add_to(self._trace)
        trace, html = folder / TRACE_FILE, folder / REPORT_FILE
        with files.writing(trace) as draft:
            self._trace.save(draft)
        files.write(html, report(self.story, self._image))
        self.story["files"] = {"trace": str(trace), "report": str(html)}
        self._heading(FILES)
        self._show.line(f"{trace}   timeline down to each USB transfer: open it in ui.perfetto.dev")
        self._show.line(f"{html}   the figures, with plots: open it in a browser")

    # --- chapters ---------------------------------------------------------------------------------------------------
    def _heading(self, title: str, about: str = "") -> None:
        self.story["chapters"].append(title)
        self._show.heading(title, about)

    @contextmanager
    def _chapter(self, title: str, up: Up, about: str) -> Iterator[None]:
        """Print the heading of a chapter, and add it to the trace."""
        self._heading(title, about)
        began = up.now_us
        yield
        self._trace.add(STORY_TRACK, title, began, up.now_us - began)

    def _machine(self) -> None:
        """Print a summary of `ringup doctor`."""
        lines = list(doctor.examine(Sources(load(MANIFEST), cache_folder(), {})))
        worst: dict[str, str] = {}
        for line in lines:
            worst[line.group] = max(worst.get(line.group, FINE), line.state, key=(FINE, OPTIONAL, WRONG).index)
        ascii_only = self._show.console.options.ascii_only
        self._show.marks([(group, *_mark(state, ascii_only)) for group, state in worst.items()])
        count = Counter(line.state for line in lines)
        self.story["doctor"] = {state: count[state] for state in (FINE, OPTIONAL, WRONG)}
        for line in lines:
            if line.state == WRONG:
                self._show.line(f"{line.what}: {line.seen}; {line.todo}", "red")
        self._show.line(
            f"{count[FINE]} fine, {count[OPTIONAL]} missing and optional, {count[WRONG]} wrong: "
            "`ringup doctor` shows all"
        )

    @contextmanager
    def _card(self) -> Iterator[Up]:
        """Bring the card up and show it."""
        with bring_up(self._desk, self._firmware, met=self._meet, usb=self._usb, console=self._show.console) as up:
            yield up

    def _meet(self, path: Any) -> None:
        """Print the path to the card, before anything is started."""
        bridge = bridge_of(path)
        if bridge is not None:
            self._heading(ENCLOSURE)
            opening = path.counts
            speed = f"{bridge['speed_mbps'] / 1000:g} Gb/s"
            firmware = f"{bridge['firmware']} firmware {bridge['version']}"
            self._show.line(f"{bridge['ids']}, {firmware}, {speed}; its slot: {bridge['link']}")
            self._show.line(f"found, woken and enumerated by {opening}")
            self.story["bridge"], self.story["opening"] = bridge, plain(opening)
        self._heading(BRING_UP, "stage by stage" + (", with what went over USB" if bridge else ""))

    def _introduce(self, up: Up) -> None:
        info, stages = up.card.info, stage_rows(up.card.stages)
        if up.transfers:
            stages = [row | {"transfers": count} for row, count in zip(stages, up.transfers, strict=True)]
        self.story["what"] = {
            "card": info.name, "chip": info.chip, "target": info.target, "memory": f"{info.vram_bytes >> 20} MiB",
            UNITS[up.nvidia]: info.compute_units, "found": info.found,
        }  # fmt: skip
        self.story["bring_up_ms"], self.story["stages"] = round(up.took_ms, 1), stages
        cost = ""
        if up.opening is not None:
            took = up.counts().since(up.opening)
            cost, self.story["bring_up"] = f", {took}", plain(took)
        self._show.line(
            f"{info.chip} is up: {info.vram_bytes >> 20} MiB, {info.compute_units} {UNITS[up.nvidia]}, {info.target}; "
            f"it was {info.found}"
        )
        self._show.line(f"{len(stages)} stages took {up.took_ms:.0f} ms{cost}")
        self._show.line(self.story["times"], "dim")

    def _copies(self, up: Up) -> None:
        size = COPY_BYTES if up.fast else SLOW_BYTES
        rows = []
        for way, rate, counts in _there_and_back(up, size):
            rows.append({"way": way, "bytes": size, "mb_s": rate} | ({"usb": plain(counts)} if up.opening else {}))
            over = f", {counts}" if up.opening else ""
            self._show.line(f"{size_text(size)} {way} the card: {rate:.3g} MB/s{over}; every byte is right")
        self.story["copies"] = rows
        if self._desk.enclosure is not None and up.fast:
            self._sweep()

    def _sweep(self) -> None:
        """Copy every size at every speed of the cable, each in an enclosure of its own."""
        rows = []
        with Progress("copies", len(SPEEDS)) as progress:
            for link in SPEEDS:
                progress.say(f"copies at {link}")
                with bring_up(Desk(self._name, link), self._firmware) as up:
                    row: dict[str, Any] = {"link": link, "bring_up_ms": round(up.took_ms, 1), TO: [], FROM: []}
                    for way, size, rate in _rates(up):
                        row[way].append((size, rate))
                rows.append(row)
                progress.advance()
        self.story["sweep"] = rows
        self._show.table(
            ("cable", "cold start", f"{size_text(SWEEP[-1])} to it", "from it"),
            [
                (row["link"], f"{row['bring_up_ms']:.0f} ms", *(f"{row[way][-1][1]:.0f} MB/s" for way in (TO, FROM)))
                for row in rows
            ],
        )

    def _kernels(self, up: Up) -> None:
        rows, prepared = [], {}
        with up.card.profile() as profile:
            for task in tasks(small=not up.fast):
                before = up.counts()
                prepared[task.name] = Prepared(up.card, task)
                result = prepared[task.name].run()
                right = int((result == task.expected).sum())
                if right != task.expected.size:
                    raise DeviceFault(
                        f"{up.card.name}: {task.name} differs from NumPy's in {task.expected.size - right} of "
                        f"{task.expected.size} "
                        "elements; the card's core, memory or link is faulty"
                    )
                waves = task.expected.size // up.card.info.wave_size
                rows.append({"kernel": task.name, "data": task.about, "waves": waves, "right": right, "us": 0.0})
                rows[-1] |= {"transfers": up.counts().since(before).transfers} if up.opening else {}
            self._image = result
        spans = {span.name: profile.duration_us(span) for span in profile.spans()}
        for row in rows:
            row["us"] = round(spans[row["kernel"]], 1)
        self._trace.events += profile.trace().events
        self.story["kernels"] = rows
        heads = ("kernel", "data", "warps" if up.nvidia else "waves", "ran", "equal to NumPy's")
        self._show.table(
            heads,
            [
                (r["kernel"], r["data"], f"{r['waves']}", f"{r['us']:.0f} us", f"{r['right']} of {r['right']}")
                for r in rows
            ],
        )
        self._kernel = prepared[WARM]
        self._warm(up, self._kernel)
        self._show.image(self._image)
        self._work(up, prepared[task.name])

    def _sentences(self, up: Up) -> None:
        """Let a published model find the nearest of ten sentences; print the reason if it cannot."""
        from ringup.tools.demo import sentences as demo_sentences  # imports the compiler too

        self.story["sentences"] = None
        if up.nvidia:
            self._show.line(NO_TENSORS)
            return
        if not up.fast:
            self._show.line("skipped: its 90 MB of weights take hours with firmware without bulk transfers")
            return
        sentence = self._sentence or self._show.ask("A sentence, or Enter", demo_sentences.DEFAULT)
        try:
            self.story["sentences"] = demo_sentences.embed(up, self._show, sentence)
        except CompileError as error:
            self._show.line(f"skipped: {error}", "red")

    def _warm(self, up: Up, kernel: Prepared) -> None:
        """Run a kernel from a kept stream, and print its cost once everything is loaded."""
        kept = up.card.compute.keep(kernel.stream())
        for _ in range(WARM_RUNS):
            kept.submit().wait()
        before, began = up.counts(), up.now_us
        kept.submit().wait()
        took_us, counts = up.now_us - began, up.counts().since(before)
        self.story["warm"] = {"us": took_us} | ({"usb": plain(counts)} if up.opening else {})
        over = f", with {counts.transfers} USB transfers ({counts.waits} waited for)" if up.opening else ""
        self._show.line(f"{WARM} from a kept stream: done after {took_us} us{over}")

    def _work(self, up: Up, kernel: Prepared) -> None:
        """Keep the card busy for a while, and print its power before and after."""
        idle = self._power(up)
        kept = up.card.compute.keep(kernel.stream())
        runs = BUSY_RUNS if up.fast else 1
        for _ in range(runs):
            point = kept.submit()
        point.wait()
        busy = self._power(up)
        self.story["power"] = {"idle_w": idle, "busy_w": busy}
        if idle is None:
            self._show.line(f"this picture was drawn {runs} times from a kept stream; {NO_POWER}")
            return
        self._show.line(f"power {idle} W at first, {busy} W after this picture was drawn {runs} times")

    def _power(self, up: Up) -> int | None:
        """Return the card's power; None where nobody tells it."""
        if up.nvidia:
            return None
        watts: int = up.card.stats().metrics.power_w
        self._trace.count(POWER_TRACK, up.now_us, watts)
        return watts

    def _pull(self, up: Up) -> None:
        """Pull the cable when half of a copy is transferred."""
        assert self._desk.enclosure is not None
        size = COPY_BYTES if up.fast else SLOW_BYTES
        buffer = up.card.alloc(size, name="half a copy")
        self._desk.enclosure.faults.inject("disconnect_after_bytes", size // 2)
        # the loss of the card is reported here
        logging.disable(logging.WARNING)
        began = up.now_us
        try:
            up.card.copy.upload(buffer, bytes(size)).wait()
        except DeviceLost as error:
            self._show.line(f"DeviceLost: {error}", "red")
        else:
            raise DeviceFault(f"{up.card.name}: its cable was pulled in the middle of a copy, but the copy succeeded")
        finally:
            noticed = up.now_us - began
            up.card.close()
            logging.disable(logging.NOTSET)
        self._trace.add(STORY_TRACK, "the cable is out", up.now_us, 0)
        self._show.line(f"noticed {noticed / 1000:.1f} ms after the copy of {size_text(size)} began")
        self.story["unplug"] = {"error": "DeviceLost", "noticed_ms": noticed / 1000}

    def _come_back(self) -> None:
        """Plug the enclosure in again, and check that the card works as before."""
        self._desk.plug_again()
        with bring_up(self._desk, self._firmware, usb=self._usb) as up:
            for stage in up.card.stages:
                self._trace.add("bring-up", stage.name, stage.started_us, stage.took_us)
            for _, _, _ in _there_and_back(up, SLOW_BYTES):
                pass
            took = f"{up.took_ms:.0f} ms"
            self._show.line(
                f"plugged in again: started in {took}, it was {up.card.info.found}; a copy each way is correct", "green"
            )
            self.story["unplug"] |= {"up_again_ms": round(up.took_ms, 1), "found": up.card.info.found}
            self._rest(up)

    def _rest(self, up: Up) -> None:
        """Record the power of the card before it is closed."""
        self.story["power"]["before_close_w"] = self._power(up)

    def _power_down(self) -> None:
        """Print the power after the card is closed; switch its slot off if the bridge can."""
        power = self.story["power"]
        self._heading(DOWN)
        if power["before_close_w"] is None:
            self._show.line("the card was closed: its channels and its memory are free, and its driver lets it sleep")
            return
        self._show.line(f"{power['before_close_w']} W before; the card was closed: its queues and engines are off")
        if "bridge" not in self.story:
            return
        path = self._desk.connect()
        try:
            self._trace.add(STORY_TRACK, DOWN, path.clock.now_us, 0)
            path.power_off()
            link = path.bridge.link()
            power["slot"] = str(link)
            self._show.line(f"its slot is off: link {link}; opening the card switches it on again", "green")
        except NotSupported as error:
            self._show.line(f"its slot stays on: {error}")
        finally:
            path.close()


def _mark(state: str, ascii_only: bool) -> tuple[str, str]:
    """Return the sign and the colour of a state."""
    sign, plain_sign, colour = doctor.MARKS[state]
    return plain_sign if ascii_only else sign, colour


def _there_and_back(up: Up, size: int) -> Iterator[tuple[str, float, Counts]]:
    """Copy random bytes to the card and back; yield each way's MB/s and its USB transfers. Raises `DeviceFault` if
    bytes differ.
    """
    data = Random(SEED).randbytes(size)
    with up.card.alloc(size, name="copies") as buffer:
        rate, counts, _ = _timed(up, size, lambda: up.card.copy.upload(buffer, data).wait())
        yield TO, rate, counts
        rate, counts, came = _timed(up, size, lambda: up.card.copy.download(buffer))
        if came != data:
            raise DeviceFault(
                f"{up.card.name}: the bytes that came back differ from those sent; the card's memory or link is faulty"
            )
        yield FROM, rate, counts


def _rates(up: Up) -> Iterator[tuple[str, int, float]]:
    """Copy every size to the card, then from it; yield MB/s."""
    with up.card.alloc(SWEEP[-1], name="copies") as buffer:
        # the first copy also makes its staging memory
        _upload(up.card, buffer, bytes(SWEEP[0]))
        for size in SWEEP:
            rate, _, _ = _timed(up, size, partial(_upload, up.card, buffer, bytes(size)))
            yield TO, size, rate
        for size in SWEEP:
            rate, _, _ = _timed(up, size, partial(up.card.copy.download, buffer, size_bytes=size))
            yield FROM, size, rate


def _upload(card: Any, buffer: Any, data: bytes) -> None:
    card.copy.upload(buffer, data).wait()


def _timed(up: Up, size: int, work: Callable[[], Any]) -> tuple[float, Counts, Any]:
    """Run it; return MB/s by the transport's clock, its USB transfers, and its result."""
    before, began = up.counts(), up.now_us
    result = work()
    return size / max(1, up.now_us - began), up.counts().since(before), result

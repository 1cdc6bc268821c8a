"""Runs in a guest: ringup's own driver on a card that NVIDIA's open kernel modules drive, `nvidia:0`, or on a bare one,
`pci:0000:01:00.0`.

    card_client.py CARD DOING CODE [WORDS]    print what was seen as JSON; CODE: a cubin for the card
    card_client.py CARD DOING,DOING CODE      several in turn on the card that is opened once; JSON by their names

The functions below are what can be done. `nvidia_nodes.py` and `nvidia_bare.py` know what is right.
"""

from __future__ import annotations

import json
import mmap
import random
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ringup
from ringup.autogen.nv import rm_ctrl_2080_fifo as fifo
from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu
from ringup.errors import OutOfMemory, RingupError

MIB, PAGE = 1 << 20, 4096
# nothing is mapped there
NOWHERE = 0x70_0000_0000


def words_of(data: bytes) -> list[int]:
    """Return bytes as dwords."""
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def failed(work: Callable[[], object]) -> list[str]:
    """Return the error that work ends with: its class, its text, its notes."""
    try:
        done = work()
    except RingupError as error:
        return [type(error).__name__, str(error), *getattr(error, "__notes__", ())]
    return ["", repr(done)]


class Card:
    """The card with the kernels of the cubin."""

    def __init__(self, name: str, code: str) -> None:
        self.card = ringup.open(name)
        self.program = self.card.load(Path(code).read_bytes(), "kernels")
        self.random = random.Random(4)

    def run(self, kernel: str, grid: int, block: int, start: list[int], *more: int) -> list[int]:
        """Run a kernel on an array; return what the array holds then."""
        card = self.card
        with card.alloc(4 * len(start)) as array:
            card.copy.upload(array, struct.pack(f"<{len(start)}I", *start)).wait()
            stream = card.compute.stream()
            stream.dispatch(self.program[kernel], grid, block, [array, *more])
            card.copy.wait_for(card.compute.submit(stream))
            return words_of(card.copy.download(array))

    def works(self) -> bool:
        """Return whether kernels and copies work."""
        return self.run("squares", 1, 64, [7] * 64, 64) == [number * number for number in range(64)]

    def free_bytes(self) -> int:
        """Return how much of the card's memory is free."""
        return int(self.card.stats().memory["vram"].free_bytes)

    # --- what it is -------------------------------------------------------------------------------------------------
    def facts(self) -> Any:
        """What the card is, what is mapped into this process, whether the clock runs."""
        first = self.card.gpu_clock()
        time.sleep(0.1)
        clock_ns = self.card.gpu_clock() - first
        maps = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
        return {
            "info": asdict(self.card.info),
            "clock_ns": clock_ns,
            "maps": sorted(path for path in maps if path.startswith("/")),
            "report": str(self.card.report()),
        }

    # --- memory -----------------------------------------------------------------------------------------------------
    def kinds(self) -> Any:
        """Copy between memory of all kinds."""
        copy, data = self.card.copy, self.random.randbytes(9000)
        said = {}
        with self.card.alloc(9000) as far, self.card.alloc(9000, visible=True) as seen:
            with self.card.alloc(9000, "host") as near:
                near.view[:] = data
                copy.copy_buffer(far, near).wait()
                copy.copy_buffer(seen, far).wait()
                said["visible"] = bytes(seen.view) == data
                seen.view[5:9] = b"abcd"
                copy.copy_buffer(near, seen).wait()
                said["stored"] = bytes(near.view) == data[:5] + b"abcd" + data[9:]
            pages = mmap.mmap(-1, 8192)
            pages[:] = data[:8192]
            with self.card.pin(pages) as pinned:
                copy.copy_buffer(far, pinned).wait()
                said["pinned"] = copy.download(far, size_bytes=8192) == data[:8192]
                copy.fill(pinned, 0x01020304, size_bytes=4096).wait()
                said["filled"] = pages[:4096] == b"\4\3\2\1" * 1024 and pages[4096:] == data[4096:8192]
            pages.close()
        return said

    def unaligned(self) -> Any:
        """Pin memory that begins and ends within pages, which NVIDIA's driver lets its card reach."""
        array = bytearray(self.random.randbytes(9000))
        with self.card.alloc(9000) as seen, self.card.pin(memoryview(array)[3:8191]) as pinned:
            self.card.copy.copy_buffer(seen, pinned).wait()
            return self.card.copy.download(seen, size_bytes=8188) == array[3:8191]

    def cycles(self, times: str) -> Any:
        """Allocate and free, so many times; return the free memory before, with one buffer, and after."""
        before = self.free_bytes()
        with self.card.alloc(3 * MIB):
            with_one = self.free_bytes()
        kinds = ((4096, "vram", False), (3 * MIB, "vram", False), (100_000, "host", True), (65536, "vram", True))
        for number in range(int(times)):
            size, where, visible = kinds[number % len(kinds)]
            self.card.alloc(size, where, visible=visible).free()
        return before, with_one, self.free_bytes()

    def too_much(self) -> Any:
        """Ask for more than there is: of the card's memory, of its window, of the host's."""
        # the driver keeps what it has made once
        self._more_than_there_is()
        before = self.free_bytes()
        said, pieces = self._more_than_there_is()
        return {"said": said, "pieces": pieces, "free": [before, self.free_bytes()], "works": self.works()}

    def _more_than_there_is(self) -> tuple[list[list[str]], int]:
        card, window = self.card, self.card.info.window_bytes
        said = [
            failed(lambda: card.alloc(1 << 40)),
            failed(lambda: card.alloc(card.info.vram_bytes)),
            failed(lambda: card.alloc(2 * window, visible=True)),
            failed(lambda: card.alloc(1 << 45, "host")),
        ]
        held, piece = [], window // 4
        try:
            while len(held) < 5:
                held.append(card.alloc(piece, visible=True))
        except OutOfMemory as error:
            said.append(["OutOfMemory", str(error)])
        for buffer in held:
            buffer.free()
        return said, len(held)

    # --- copies -----------------------------------------------------------------------------------------------------
    def copies(self) -> Any:
        """Copy 1 byte to 64 MiB at odd places, overlapping, in rectangles; fill. Return what went wrong."""
        card, wrong = self.card, []
        for size in (1, 2, 3, 4, 5, 63, 64, 65, 4095, 4096, 4097, 65537, MIB + 1, 16 * MIB, 64 * MIB):
            piece = self.random.randbytes(min(size, MIB))
            data, start = (piece * -(-size // len(piece)))[:size], self.random.randrange(9)
            with card.alloc(size + 16) as source, card.alloc(size + 16) as target:
                card.copy.upload(source, data, start).wait()
                card.copy.fill(target, 0xEEEEEEEE, 0, (size + 16) // 4 * 4).wait()
                card.copy.copy_buffer(target, source, size, target_offset=3, source_offset=start).wait()
                got = card.copy.download(target, size_bytes=(size + 16) // 4 * 4)
                if got != b"\xee" * 3 + data + b"\xee" * (len(got) - 3 - size):
                    wrong.append(f"{size} bytes")
        with card.alloc(60000) as one, card.alloc(700 * 100) as target:
            for distance in (-5000, -4096, -64, 64, 4096, 5000):
                data = self.random.randbytes(30000)
                card.copy.upload(one, data, 10000).wait()
                card.copy.copy_buffer(one, one, 30000, target_offset=10000 + distance, source_offset=10000).wait()
                if card.copy.download(one, offset_bytes=10000 + distance, size_bytes=30000) != data:
                    wrong.append(f"moved by {distance}")
            card.copy.fill(target, 0).wait()
            card.copy.copy_rect(target, 700, one, 512, 301, 77, target_offset=7, source_offset=13).wait()
            source, got = card.copy.download(one), card.copy.download(target)
            rows = [(got[7 + 700 * y :][:301], source[13 + 512 * y :][:301]) for y in range(77)]
            if any(mine != other for mine, other in rows) or any(got[308:700]):
                wrong.append("a rectangle")
            card.copy.fill(one, 0x11223344).wait()
            card.copy.fill(one, 0xAABBCCDD, 4100, 12).wait()
            got = card.copy.download(one, offset_bytes=4096, size_bytes=20)
            if got != b"\x44\x33\x22\x11" + b"\xdd\xcc\xbb\xaa" * 3 + b"\x44\x33\x22\x11":
                wrong.append("a fill")
        return wrong

    # --- kernels ----------------------------------------------------------------------------------------------------
    def kernels(self) -> Any:
        """Run each kernel: global, shared and local memory, atomic additions."""
        return {
            "squares": self.run("squares", 5, 64, [7] * 320, 300),
            "turn": self.run("turn", 1, 256, list(range(256))),
            "stack": self.run("stack", 1, 64, [0] * 64),
            "count": self.run("count", 100, 128, [5]),
        }

    def kept(self) -> Any:
        """Submit kept streams again and again, with other arguments."""
        card, program = self.card, self.program
        with card.alloc(PAGE) as array:
            card.copy.fill(array, 7).wait()
            stream = card.compute.stream()
            at = stream.dispatch(program["squares"], 1, 64, [array, 0])
            kept = card.compute.keep(stream)
            kept.submit().wait()
            first = words_of(card.copy.download(array, size_bytes=12))
            for number in range(1, 65):
                kept.patch_args(at + program["squares"].arg_offset(1), struct.pack("<I", number))
                point = kept.submit()
            point.wait()
            then = words_of(card.copy.download(array, size_bytes=264))
            card.copy.fill(array, 0).wait()
            stream = card.compute.stream()
            stream.dispatch(program["count"], 1, 1, [array])
            again = card.compute.keep(stream)
            for _ in range(3000):
                point = again.submit()
            point.wait(60)
            count = words_of(card.copy.download(array, size_bytes=4))
            again.free()
            kept.free()
        return {"first": first, "then": then, "count": count}

    def wraps(self) -> Any:
        """Submit so much that rings and GPFIFOs wrap, also streams that lie outside the ring."""
        card = self.card
        with card.alloc(PAGE) as sums, card.alloc(PAGE) as places:
            card.copy.fill(sums, 0).wait()
            for _ in range(3000):
                stream = card.compute.stream()
                stream.dispatch(self.program["count"], 1, 1, [sums])
                point = card.compute.submit(stream)
            point.wait(60)
            for number in range(5000):
                stream = card.copy.stream()
                stream.store(places.gpu_va + 4 * (number % 1000), number)
                point = card.copy.submit(stream)
            for turn in range(6):
                stream = card.copy.stream()
                for number in range(1, 1000):
                    stream.store(places.gpu_va + 4 * number, number + turn)
                point = card.copy.submit(stream)
            point.wait(60)
            found = words_of(card.copy.download(places, size_bytes=4000))
            return {"count": words_of(card.copy.download(sums, size_bytes=4)), "places": found}

    def orders(self) -> Any:
        """Let queues wait for each other, in both directions; copy by two engines in turn."""
        card, size = self.card, 8 * MIB
        other, copies = card.new_compute_queue(), card.copies
        with card.alloc(PAGE) as word:
            card.copy.fill(word, 0).wait()
            point = None
            for value in range(1, 101):
                queue = (card.compute, copies[0], other, copies[-1])[value % 4]
                stream = queue.stream()
                if point is not None:
                    stream.wait_for(point)
                stream.store(word.gpu_va, value)
                point = queue.submit(stream)
            copies[-1].wait_for(point)
            last = words_of(copies[-1].download(word, size_bytes=4))
        other.close()
        data = self.random.randbytes(MIB) * 8
        with card.alloc(size) as first, card.alloc(size) as second, card.alloc(size) as third:
            copies[0].upload(first, data).wait()
            point = None
            for _ in range(5):
                stream = copies[0].stream()
                if point is not None:
                    stream.wait_for(point)
                stream.copy(second.gpu_va, first.gpu_va, size)
                between = copies[0].submit(stream)
                stream = copies[-1].stream()
                stream.wait_for(between)
                stream.copy(third.gpu_va, second.gpu_va, size)
                point = copies[-1].submit(stream)
            copies[-1].wait_for(point)
            return {"last": last, "copied": copies[-1].download(third) == data, "engines": len(copies)}

    def profile(self) -> Any:
        """Profile a kernel and a fill."""
        with self.card.profile() as profile, self.card.alloc(PAGE) as array:
            stream = self.card.compute.stream()
            stream.dispatch(self.program["squares"], 1, 64, [array, 64])
            self.card.compute.submit(stream).wait()
            self.card.copy.fill(array, 1).wait()
        return [span.name for span in profile.spans()]

    # --- trouble ----------------------------------------------------------------------------------------------------
    def hangs(self) -> Any:
        """A kernel that never ends, and a semaphore that never comes, until a reset."""
        card = self.card
        with card.alloc(PAGE) as word:
            card.copy.fill(word, 0).wait()
            stream = card.compute.stream()
            stream.dispatch(self.program["spin"], 1, 32, [word])
            spinning = card.compute.submit(stream)
            late = failed(lambda: spinning.wait(2))
            card.reset()
            said = {"kernel": late, "its work": failed(lambda: spinning.wait(1)), "works": self.works()}
            queue = card.copies[-1]
            stream = queue.stream()
            stream.append(_acquire(stream, word.gpu_va, 5))
            waiting = queue.submit(stream)
            said["semaphore"] = failed(lambda: waiting.wait(2))
            said["others work"] = self.works()
            stream = card.copy.stream()
            stream.store(word.gpu_va, 5, 0)
            card.copy.submit(stream).wait()
            said["it came"] = failed(lambda: waiting.wait(5))
            stream = queue.stream()
            stream.append(_acquire(stream, word.gpu_va, 6))
            waiting = queue.submit(stream)
            card.reset()
            said["given up"] = failed(lambda: waiting.wait(1))
        return {**said, "works again": self.works(), "resets": card.stats().resets}

    def faults(self) -> Any:
        """A kernel that stores where nothing is mapped, and a copy that reads behind a buffer."""
        card = self.card
        stream = card.compute.stream()
        stream.dispatch(self.program["squares"], 1, 64, [NOWHERE, 64])
        point = card.compute.submit(stream)
        said = {"kernel": failed(lambda: point.wait(5)), "refused": failed(lambda: card.compute.submit(stream))}
        card.reset()
        said["works"] = self.works()
        with card.alloc(65536, name="mine") as buffer:
            stream = card.copy.stream()
            stream.copy(buffer.gpu_va, buffer.gpu_va + 65536, 64)
            point = card.copy.submit(stream)
            said["copy"] = failed(lambda: point.wait(5))
            card.reset()
        return {**said, "works again": self.works(), "faults": card.stats().faults}

    def twice(self) -> Any:
        """Open the card a second time in this process; close it twice."""
        other = Card(self.card.name, sys.argv[3])
        said = [other.works(), self.works()]
        other.card.close()
        other.card.close()
        said.append(self.works())
        self.card.close()
        self.card.close()
        try:
            self.card.alloc(PAGE)
        except ValueError as error:
            said.append(str(error))
        return said

    def rules(self) -> Any:
        """As an administrator, close the card to compute, let one client in, and let all in again. Return what a second
        client is told each time, and the watchdog's flags while this one is there.
        """
        objects = self.card._objects
        watchdog = objects.client.ask(
            objects.subdevice, fifo.NV2080_CTRL_CMD_RC_GET_WATCHDOG_INFO, fifo.NV2080_CTRL_RC_GET_WATCHDOG_INFO_PARAMS
        )

        def second() -> bool:
            other = Card(self.card.name, sys.argv[3])
            try:
                return bool(other.works())
            finally:
                other.card.close()

        said = {}
        for name, mode in (
            ("closed", gpu.NV2080_CTRL_GPU_COMPUTE_MODE_RULES_COMPUTE_PROHIBITED),
            ("alone", gpu.NV2080_CTRL_GPU_COMPUTE_MODE_RULES_EXCLUSIVE_COMPUTE_PROCESS),
            ("open", gpu.NV2080_CTRL_GPU_COMPUTE_MODE_RULES_NONE),
        ):
            objects.client.ask(
                objects.subdevice,
                gpu.NV2080_CTRL_CMD_GPU_SET_COMPUTE_MODE_RULES,
                gpu.NV2080_CTRL_GPU_SET_COMPUTE_MODE_RULES_PARAMS,
                rules=mode,
            )
            said[name] = failed(second)
        return {**said, "works": self.works(), "watchdog": watchdog.watchdogStatusFlags}

    def works_on(self, log: str, stop: str) -> Any:
        """Work until a file is there; write each round into another."""
        rounds = 0
        with Path(log).open("w") as out:
            while not Path(stop).exists():
                rounds += self.works()
                out.write(f"ROUND {rounds}\n")
                out.flush()
        return rounds


def _acquire(stream: Any, gpu_va: int, value: int) -> list[int]:
    """Return methods that hold a channel until 64 bits in memory have reached a value."""
    return stream._commands.semaphores.acquire(gpu_va, value)


def main(words: list[str]) -> int:
    """Do what the first word says."""
    name, doing, code, *more = words
    card = Card(name, code)
    several = doing.split(",")
    said = getattr(card, doing)(*more) if len(several) == 1 else {one: getattr(card, one)() for one in several}
    card.card.close()
    sys.stdout.write(json.dumps(said) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

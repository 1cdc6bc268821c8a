"""Virtual cards served to guests from this process: their loop runs in a thread of its own, which alone touches them.

with Served(folder, "navi31", "navi33") as served:
    with Guest(folder / "guest", cards=served.sockets[:1], served=served) as guest:
        served.mark("the driver loads")
        ...
        assert not served.call(lambda: served.cards[0].violations)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from ringup.silicon import card as make
from ringup.silicon import nvidia_card, nvidia_cards
from ringup.silicon.amd.board.chips import find
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.log import Event
from ringup.silicon.serve.vfio_user import VfioUserServer
from ringup.silicon.shader.host.beside import Beside
from ringup.tools.cards import access_log

Result = TypeVar("Result")
# TIMEOUT: one step of a model, and the steps before it.
CALL_S = 120.0
# of a guest, beside 0.1 s in which it runs
LONG_SPELL_S = 3.0
SMALL_BYTES = 256 << 20
QUIET = frozenset({"read", "write", "packet"})


class Served:
    """Cards of those chips, each at a socket. Their BAR 0 shows all of their memory, as firmware of a machine with
    resizable BARs sets it, but for those at the places in `small`: it shows 256 MiB.
    """

    def __init__(self, folder: Path, *chips: str, log: bool = True, small: Collection[int] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.sockets = tuple(folder / f"{place}.sock" for place in range(len(chips)))
        self.log_path = folder / "access.log"
        self.events: list[Event] = []  # all except accesses and packets
        clock = VirtualClock()
        self._beside = Beside()
        # Radeons, and NVIDIA cards by the names of their chips
        self.cards: tuple[Any, ...] = tuple(
            nvidia_card(chip, clock=clock, beside=self._beside)
            if chip in nvidia_cards()
            else make(
                chip,
                bar0_bytes=SMALL_BYTES if place in small else _window(chip),
                clock=clock,
                beside=self._beside,
                for_other_drivers=True,
            )
            for place, chip in enumerate(chips)
        )
        self._server = VfioUserServer(clock, self._beside)
        self._logged = log
        self._log: access_log.AccessLog | None = None
        self._stack = ExitStack()
        self._thread = threading.Thread(target=self._server.run, name="served cards")

    def __enter__(self) -> Self:
        """Serve the cards."""
        with ExitStack() as stack:
            stack.enter_context(self._beside)
            stack.callback(self._server.close)
            self._log = stack.enter_context(access_log.writing(self.log_path if self._logged else None))
            for path, card in zip(self.sockets, self.cards, strict=True):
                self._server.serve(str(path), card)
                card.log.watch(self._note)
                if self._log is not None:
                    self._log.follow(card)
            self._thread.start()
            stack.callback(self._end)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _end(self) -> None:
        self._server.stop()
        self._thread.join(CALL_S)

    def _note(self, event: Event) -> None:
        if event.kind not in QUIET:
            self.events.append(event)

    def call(self, action: Callable[[], Result]) -> Result:
        """Run `action` in the cards' thread, between two accesses of a guest, and return its result."""
        return self._server.call(action).result(CALL_S)

    def slows(self, monitor: Path) -> None:
        """Slow the clock of the guest whose emulator has a monitor there, while the cards are behind."""
        self._server.slow(str(monitor))

    @contextmanager
    def long_programs(self) -> Iterator[None]:
        """Stop the guest nearly all of the time while cards compute: these programs are long, and end."""
        self._server.let_compute(LONG_SPELL_S)
        try:
            yield
        finally:
            self._server.let_compute()

    @property
    def stopped_s(self) -> float:
        """How long guests have been stopped, because the cards were behind."""
        return self._server.stopped_s

    def mark(self, text: str) -> None:
        """Write a remark into the access log."""
        log = self._log
        if log is not None:
            self.call(lambda: log.mark(text))

    def violations(self, place: int = 0) -> list[str]:
        """Return the violations that a card recorded, each with its time, and clear them."""
        card = self.cards[place]

        def take() -> list[str]:
            seen = [str(event) for event in card.violations]
            card.violations.clear()
            return seen

        return self.call(take)


def _window(chip: str) -> int:
    """Return the smallest BAR 0 that shows all of a chip's memory."""
    size = 1 << 20
    while size < find(chip).vram_bytes:
        size *= 2
    return size

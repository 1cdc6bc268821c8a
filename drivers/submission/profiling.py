"""Profiles of a card: stamps in host memory, hooks in its queues' streams, the card's counter against the host's
clock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ringup.drivers.submission.card_queue import CardQueue, Hooks
from ringup.queues.profile import Profile, Span
from ringup.queues.timeline import Point
from ringup.queues.trace import Correlation, Trace

if TYPE_CHECKING:
    from ringup.drivers.submission.verbs import AnyCard

CLOCK_BYTES = 8
PLACES = 4096  # commands of one profile
BETWEEN_US = 100  # at least so long lie the two looks at both clocks apart


class CardProfile:
    """`with card.profile() as profile:` stamps every dispatch and copy of streams that are begun inside. Results last
    after the card.

    Such streams stamp whenever they are submitted, also later: their memory stays until `close`.
    """

    def __init__(self, card: AnyCard[Any, Any, Any, Any]) -> None:
        self._card = card
        self._memory = card.memory.alloc(
            PLACES * 2 * card.STAMP.size_bytes,
            "vram" if card.device.polls_vram else "host",
            visible=True,
            name="profile",
            cached=False,
        )
        access = card.memory.access(self._memory)
        # which holds what was there before; the first submission's flush brings it there
        if self._memory.where == "vram":
            access.write(0, bytes(len(access)))
        self._profile = Profile(
            self._memory.gpu_va,
            PLACES,
            lambda byte: int.from_bytes(access[byte : byte + CLOCK_BYTES], "little"),
            stamp_bytes=card.STAMP.size_bytes,
            clock_at=card.STAMP.clock_at,
        )
        self._spans: list[Span] = []
        # queues, and the hooks they had before
        self._hooked: list[tuple[CardQueue, Hooks | None]] = []
        self._clock: Correlation | None = None

    def __enter__(self) -> CardProfile:
        self._began = self._now()
        for queue in self._card.queues:
            self._hook(queue)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for queue, before in self._hooked:
            queue.set_hooks(before)
        if error is None:
            self._finish()

    def close(self) -> None:
        """Give the stamps' memory back: no stream that was begun inside may be submitted any more. The card's end does
        it too.
        """
        if not self._memory.freed:
            self._memory.free()

    def _finish(self) -> None:
        """Wait for what was submitted, read the stamps and both clocks once more."""
        for queue in self._card.queues:
            queue.idle()
        self._spans = self._profile.spans()
        self._card.device.clock.sleep_us(BETWEEN_US)
        self._clock = Correlation(self._began, self._now())

    def _now(self) -> tuple[int, float]:
        return self._card.gpu_clock(), self._card.device.clock.now_us

    def _hook(self, queue: CardQueue) -> None:
        submit = partial(self._submit, queue, queue.submit)
        self._hooked.append((queue, queue.set_hooks(Hooks(self._profile.around(queue.name), submit))))

    def _submit(self, queue: CardQueue, submit: Callable[..., Point], *args: Any, **options: Any) -> Point:
        """Submit, and note when that began and how long it took."""
        clock = self._card.device.clock
        began = clock.now_us
        point = submit(*args, **options)
        self._profile.host.append((f"{queue.name} {point.value}", began, clock.now_us - began))
        return point

    # --- results ----------------------------------------------------------------------------------------------------
    def spans(self) -> list[Span]:
        """Return every dispatch and copy that ran, by its beginning."""
        return self._spans

    def duration_us(self, span: Span) -> float:
        """Return how long a command ran."""
        return (span.end_ticks - span.begin_ticks) / self._correlation().ticks_per_us

    def trace(self) -> Trace:
        """Return all of it on the host's time, the card's bring-up in front."""
        return self._profile.trace(self._correlation(), self._spans, tuple(self._card.stages))

    def save(self, path: Path | str) -> None:
        """Write the trace to a file that ui.perfetto.dev opens."""
        self.trace().save(path)

    def _correlation(self) -> Correlation:
        if self._clock is None:
            raise ValueError("the profile is still under way: its results are there when its `with` block has ended")
        return self._clock

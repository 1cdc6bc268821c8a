"""One seed: a card, a program with a history on it, and one to three faults that strike at random moments of it."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from contextlib import suppress
from functools import partial

from nvidia_code import sass_programs
from nvidia_code.histories import History, Moments, check_error

from ringup.errors import DeviceLost, LinkDown, RingupError
from ringup.queues.timeline import Point

LOST = (DeviceLost, LinkDown)
NOWHERE = 0x7F_0000_0000
# when a fault strikes, and how a program is wrong
PHASES = ("start", "work", "work", "work", "reset", "close")
MISTAKES = ("page fault", "endless", "spin")
# a program calls it again when it was interrupted
MAX_CLOSES = 4


def load(card):
    """Put the kernels of `sass_programs` on a card."""
    return card.load(sass_programs.cubin(card.target), "sass_programs")


def interrupt():
    """Interrupt the process, as Ctrl-C does."""
    raise KeyboardInterrupt


class Seed(ABC):
    """What happens by one seed. A subclass says how its card is opened, and what may happen to it."""

    def __init__(self, seed, clock, rungs, accesses, moments=None, *, computes=True):
        """`rungs`: kinds of resets. `accesses`: how many a phase takes, at least."""
        self.rungs, self.accesses = rungs, accesses
        self.rng, self.clock, self.moments = random.Random(seed), clock, moments or Moments()
        self.load = load if computes else None
        # what struck so far, by name
        self.happened = []
        self.card = self.history = None
        self._plan = {phase: [] for phase in accesses}
        self._mistakes = []

    def plan(self):
        """Choose what happens."""
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            (kind, act), phase = self.fault(), self.rng.choice(PHASES)
            if act is None:
                self._mistakes.append(kind)
            else:
                self._plan[phase].append((kind, act))

    @abstractmethod
    def fault(self):
        """Return the name of something that may happen, and what lets it happen; None for a mistake of the program."""

    @abstractmethod
    def open(self, *, healed=False):
        """Open the card. `healed`: nothing happens any more."""

    @abstractmethod
    def heal(self):
        """End what was injected."""

    @abstractmethod
    def check_left(self):
        """Check that the closed card is quiet, and that nothing is kept of it."""

    def _arm(self, phase):
        """Let the faults of a phase happen at random accesses."""
        most = self.accesses[phase]
        due, self._plan[phase] = self._plan[phase], []
        for kind, act in due:
            at = self.rng.randrange(1, most) if self.rng.random() < 0.6 else int(most ** self.rng.random())
            self.moments.at(at, partial(self._happen, kind, act))

    def _happen(self, kind, act):
        self.happened.append(kind)
        act()

    # --- the phases -------------------------------------------------------------------------------------------------
    def run(self):
        """Open, use and close the card, and open it again."""
        self._arm("start")
        try:
            self.card = self.open()
        except (RingupError, KeyboardInterrupt) as error:
            check_error(error if isinstance(error, RingupError) else "interrupted", bool(self.happened))
        else:
            self._use()
            self._close()
        self.moments.forget()
        self.check_left()
        self.heal()
        with self.open(healed=True) as card:
            History(card, self.rng, self.load, self.clock, lambda: False).works()
        self.check_left()

    def _use(self):
        self.history = history = History(self.card, self.rng, self.load, self.clock, lambda: bool(self.happened))
        self._arm("work")
        for number in range(self.rng.randrange(4, 14)):
            try:
                if number >= 2 and self._mistakes:
                    history.call(self._mistake, self._mistakes.pop())
                history.step()
            except LOST:
                history.report()
                return
            except (RingupError, KeyboardInterrupt):
                if not self._recovered():
                    return
        if self.rng.random() < 0.3 and not self._recovered():
            return
        self._finish()

    def _mistake(self, kind):
        """Submit something wrong, and wait for what comes of it."""
        card = self.card
        self.happened.append(kind)
        if kind == "spin" and self.load is not None:
            with card.alloc(4096, "host") as cell:
                card.copy.fill(cell, 0).wait()
                stream = card.compute.stream()
                stream.dispatch(load(card)["spin"], 1, 1, [cell])
                card.compute.submit(stream).wait(0.01)
        elif kind == "endless":
            stream = card.copy.stream()
            stream.wait_for(Point(card.compute.timeline, card.compute.timeline.last + 5))
            card.copy.submit(stream).wait(0.05)
        else:
            stream = card.copy.stream()
            stream.copy(NOWHERE, NOWHERE + 4096, 64)
            card.copy.submit(stream).wait(1)

    def _recovered(self):
        """Go on after an error, with or without a reset. Return whether the card still works."""
        history = self.history
        if self.rng.random() < 0.3:
            self.heal()
        if self.rng.random() < 0.5:
            try:
                history.call(history.settle)
            except LOST:
                return False
            except (RingupError, KeyboardInterrupt):
                pass
            else:
                return True
        return history.recover(self.rungs, partial(self._arm, "reset"), self.heal)

    def _finish(self):
        """Compare some pieces, after all that happened."""
        history = self.history
        self.heal()
        with suppress(*LOST):
            try:
                history.call(history.settle)
                for _ in range(3 if history.pieces else 0):
                    history.call(history.check)
            except LOST:
                raise
            except RingupError:
                # without a fault, the strongest reset helps
                if history.recover(self.rungs[-1:], lambda: None, self.heal):
                    history.works()

    def _close(self):
        self._arm("close")
        for _ in range(MAX_CLOSES):
            try:
                self.card.close()
                break
            except KeyboardInterrupt:
                pass
        self.moments.forget()
        self.history.report()

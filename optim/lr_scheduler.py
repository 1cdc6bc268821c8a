"""Schedules of learning rates: each `step` changes the option "lr" of an optimiser's groups, as PyTorch's do.

A schedule that multiplies looks at the rate that is there, so that several of them, and changes by hand, go together.
Rates are numbers of the host: a changed one compiles nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsFloat, cast

from ringup.optim.optimizer import Group, Optimizer

MODES = ("min", "max")


class LRScheduler:
    """A schedule over an optimiser's groups. `last_epoch` counts the steps; a subclass defines `get_lr`."""

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        """Take the rates that the groups have now as the first ones, or those of "initial_lr" to go on from
        `last_epoch`.
        """
        self.optimizer, self.last_epoch = optimizer, last_epoch
        for group in optimizer.param_groups:
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ValueError('to go on with a schedule, every group needs its "initial_lr"')
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self._last_lr = [group["lr"] for group in optimizer.param_groups]
        self.step()

    def get_lr(self) -> list[float]:
        """Return the rates of step `last_epoch`, one for each group."""
        raise NotImplementedError

    def get_last_lr(self) -> list[float]:
        """Return the rates that the last step has set."""
        return list(self._last_lr)

    def step(self) -> None:
        """Go to the next rates."""
        self.last_epoch += 1
        self._set(self.get_lr())

    def _set(self, rates: Sequence[float]) -> None:
        for group, rate in zip(self._groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = list(rates)

    @property
    def _groups(self) -> list[Group]:
        return self.optimizer.param_groups

    @property
    def _rates(self) -> list[float]:
        return [group["lr"] for group in self._groups]

    def state_dict(self) -> dict[str, Any]:
        """Return what the schedule remembers; the optimiser and functions are left out."""
        return {
            name: value
            for name, value in vars(self).items()
            if name not in ("optimizer", "lr_lambdas", "_schedulers") and not callable(value)
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        vars(self).update(state_dict)


class LambdaLR(LRScheduler):
    """The first rate times a function of the number of steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        """Take one function for all groups, or one for each."""
        count = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * count if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != count:
            raise ValueError(f"{len(self.lr_lambdas)} functions for {count} groups")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return the rates of this step."""
        return [base * one(self.last_epoch) for base, one in zip(self.base_lrs, self.lr_lambdas, strict=True)]


class MultiplicativeLR(LambdaLR):
    """The rate that is there times a function of the number of steps."""

    def get_lr(self) -> list[float]:
        """Return the rates of this step."""
        if self.last_epoch == 0:
            return self._rates
        return [rate * one(self.last_epoch) for rate, one in zip(self._rates, self.lr_lambdas, strict=True)]


class StepLR(LRScheduler):
    """The rate times `gamma` after every `step_size` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        """Take an optimiser."""
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return the rates of this step."""
        turn = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return [rate * self.gamma if turn else rate for rate in self._rates]


class MultiStepLR(LRScheduler):
    """The rate times `gamma` at each of the `milestones`."""

    def __init__(
        self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        """Take an optimiser."""
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return the rates of this step."""
        return [rate * self.gamma ** self.milestones[self.last_epoch] for rate in self._rates]


class ConstantLR(LRScheduler):
    """The rate times `factor` for the first `total_iters` steps."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        """Take an optimiser."""
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return the rates of this step."""
        if self.last_epoch == 0:
            return [rate * self.factor for rate in self._rates]
        back = 1 / self.factor if self.last_epoch == self.total_iters else 1.0
        return [rate * back for rate in self._rates]


class LinearLR(LRScheduler):
    """The rate times a factor that goes from `start_factor` to `end_factor` in `total_iters` steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        """Take an optimiser."""
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ValueError(f"factors from {start_factor} to {end_factor}: above 0 and up to 1, the last may be 0")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return the rates of this step."""
        step, last, start = self.last_epoch, self.total_iters, self.start_factor
        if step == 0:
            return [rate * start for rate in self._rates]
        if step > last:
            return self._rates
        apart = self.end_factor - start
        return [rate * (1 + apart / (last * start + (step - 1) * apart)) for rate in self._rates]


class PolynomialLR(LRScheduler):
    """The first rate times (1 - step / total_iters) to the power of `power`."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        """Take an optimiser."""
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return the rates of this step."""
        step, last = self.last_epoch, self.total_iters
        if step == 0 or step > last:
            return self._rates
        factor = ((1 - step / last) / (1 - (step - 1) / last)) ** self.power
        return [rate * factor for rate in self._rates]


class ExponentialLR(LRScheduler):
    """The rate times `gamma` at each step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        """Take an optimiser."""
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return the rates of this step."""
        return [rate if self.last_epoch == 0 else rate * self.gamma for rate in self._rates]


class CosineAnnealingLR(LRScheduler):
    """A half cosine from the first rate to `eta_min` in `T_max` steps, and back in as many (Loshchilov and Hutter,
    2016).
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:  # noqa: N803
        """Take an optimiser."""
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return the rates of this step."""
        step, half, least = self.last_epoch, self.T_max, self.eta_min
        if step == 0:
            return self._rates
        # the lowest point has nothing that could be multiplied
        if (step - 1 - half) % (2 * half) == 0:
            rise = (1 - math.cos(math.pi / half)) / 2
            return [rate + (base - least) * rise for rate, base in zip(self._rates, self.base_lrs, strict=True)]
        factor = (1 + math.cos(math.pi * step / half)) / (1 + math.cos(math.pi * (step - 1) / half))
        return [factor * (rate - least) + least for rate in self._rates]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines down to `eta_min`, the first in `T_0` steps, each next one `T_mult` times as long."""

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,  # noqa: N803
        T_mult: int = 1,  # noqa: N803
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        """Take an optimiser."""
        if T_0 < 1 or T_mult < 1:
            raise ValueError(f"T_0 of {T_0} and T_mult of {T_mult}: whole numbers from 1 on")
        self.T_0, self.T_i, self.T_mult, self.eta_min, self.T_cur = T_0, T_0, T_mult, eta_min, float(last_epoch)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Return the rates of this step."""
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Go to the next rates, or to those of an epoch, which may be a fraction."""
        if epoch is None:
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur, self.T_i = self.T_cur - self.T_i, self.T_i * self.T_mult
            self.last_epoch += 1
        elif epoch < 0:
            raise ValueError(f"an epoch of {epoch}: not negative")
        else:
            start, length = 0, self.T_0
            while epoch >= start + length:
                start, length = start + length, length * self.T_mult
            self.T_cur, self.T_i, self.last_epoch = epoch - start, length, math.floor(epoch)
        self._set(self.get_lr())


class OneCycleLR(LRScheduler):
    """A rise to `max_lr` and a fall far below the first rate, the momentum the other way round (Smith, 2018)."""

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        """Take an optimiser; `total_steps`, or `epochs` times `steps_per_epoch`, is how long the cycle is."""
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR needs total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f'anneal_strategy of {anneal_strategy!r}; there are "cos" and "linear"')
        self.total_steps, self.cosine, self.cycle_momentum = total_steps, anneal_strategy == "cos", cycle_momentum
        rise = pct_start * total_steps - 1
        if three_phase:
            self.phases = [
                (rise, "initial", "max"),
                (2 * rise, "max", "initial"),
                (total_steps - 1.0, "initial", "min"),
            ]
        else:
            self.phases = [(rise, "initial", "max"), (total_steps - 1.0, "max", "min")]
        groups = optimizer.param_groups
        tops = list(max_lr) if isinstance(max_lr, Sequence) else [max_lr] * len(groups)
        self.rates = [
            {"initial": top / div_factor, "max": top, "min": top / div_factor / final_div_factor} for top in tops
        ]
        # the momentum is lowest where the rate is highest
        self.momenta = {"initial": max_momentum, "max": base_momentum, "min": max_momentum}
        if last_epoch == -1:
            for group, rates in zip(groups, self.rates, strict=True):
                group["initial_lr"] = group["lr"] = rates["initial"]
        if cycle_momentum and not all("betas" in group or "momentum" in group for group in groups):
            raise ValueError("an optimiser without momentum or betas: use cycle_momentum=False")
        super().__init__(optimizer, last_epoch)

    def _between(self, first: float, last: float, share: float) -> float:
        if self.cosine:
            return last + (first - last) / 2 * (1 + math.cos(math.pi * share))
        return (last - first) * share + first

    def get_lr(self) -> list[float]:
        """Return the rates of this step; the momentum is set on the way."""
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"step {step} of a cycle of {self.total_steps} steps")
        place = next((i for i, one in enumerate(self.phases) if step <= one[0]), len(self.phases) - 1)
        end, first, last = self.phases[place]
        before = self.phases[place - 1][0] if place else 0.0
        share = (step - before) / (end - before)
        if self.cycle_momentum:
            momentum = self._between(self.momenta[first], self.momenta[last], share)
            for group in self._groups:
                if "betas" in group:
                    group["betas"] = (momentum, *group["betas"][1:])
                else:
                    group["momentum"] = momentum
        return [self._between(one[first], one[last], share) for one in self.rates]


class SequentialLR(LRScheduler):
    """Schedules one after the other: each next one begins at its milestone."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        """Take schedules that were just made, and the steps where the second and the following ones begin."""
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"{len(schedulers)} schedules need {len(schedulers) - 1} milestones, not {len(milestones)}"
            )
        if any(one.optimizer is not optimizer for one in schedulers):
            raise ValueError("schedules of another optimiser")
        self.optimizer, self._schedulers, self.milestones = optimizer, list(schedulers), list(milestones)
        # the first steps of the schedules have multiplied the rates: only the first schedule's counts
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for one in self._schedulers:
            one.last_epoch -= 1
        self.last_epoch = last_epoch + 1
        self._schedulers[0].step()
        self._last_lr = self._schedulers[0].get_last_lr()

    def step(self) -> None:
        """Go to the next rates."""
        self.last_epoch += 1
        place = bisect_right(self.milestones, self.last_epoch)
        one = self._schedulers[place]
        if place and self.milestones[place - 1] == self.last_epoch:
            _begin(one)
        else:
            one.step()
        self._last_lr = one.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """Return what this schedule and its parts remember."""
        return {**super().state_dict(), "_schedulers": [one.state_dict() for one in self._schedulers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "_schedulers"})
        for one, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            one.load_state_dict(state)


def _begin(schedule: LRScheduler) -> None:
    """Let a schedule go from its first step, with the first rates."""
    for group in schedule.optimizer.param_groups:
        group["lr"] = group["initial_lr"]
    if isinstance(schedule, CosineAnnealingWarmRestarts):
        schedule.step(0)
        return
    schedule.last_epoch = -1
    schedule.step()


class ReduceLROnPlateau:
    """The rate times `factor` where a number has not become better for more than `patience` steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        """Take an optimiser; in `mode` "max" greater numbers are better.

        After a change the next `cooldown` steps do not count. Rates do not go below `min_lr`, and a change below `eps`
        is none.
        """
        if factor >= 1:
            raise ValueError(f"a factor of {factor}: below 1")
        if mode not in MODES or threshold_mode not in ("rel", "abs"):
            raise ValueError(f'mode {mode!r} and threshold_mode {threshold_mode!r}: "min" or "max", "rel" or "abs"')
        count = len(optimizer.param_groups)
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.eps = threshold, threshold_mode, cooldown, eps
        self.min_lrs = list(min_lr) if isinstance(min_lr, Sequence) else [min_lr] * count
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs, self.cooldown_counter, self.last_epoch = 0, 0, 0
        self._last_lr = [group["lr"] for group in optimizer.param_groups]

    def _is_better(self, value: float, best: float) -> bool:
        """Return whether a number is better than the best so far by more than the threshold."""
        way = -1 if self.mode == "min" else 1
        if self.threshold_mode == "abs":
            return way * value > way * (best + way * self.threshold)
        return way * value > way * best * (1 + way * self.threshold)

    def step(self, metrics: SupportsFloat) -> None:
        """Look at one more number, such as the loss of an epoch."""
        # a tensor of one element gives its number by item()
        value = float(cast("Any", metrics).item() if hasattr(metrics, "item") else metrics)
        self.last_epoch += 1
        if self._is_better(value, self.best):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                new = max(group["lr"] * self.factor, least)
                if group["lr"] - new > self.eps:
                    group["lr"] = new
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def get_last_lr(self) -> list[float]:
        """Return the rates that the last step has left."""
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """Return what the schedule remembers."""
        return {name: value for name, value in vars(self).items() if name != "optimizer"}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        vars(self).update(state_dict)

"""The search over the possible shapes of kernels: each candidate is compiled and measured, on a card or by the model,
and the best one is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from ringup.compiler.compile import Step, compile_kernel
from ringup.compiler.graph.index import Int, bounds
from ringup.compiler.graph.nodes import Node
from ringup.compiler.kernel.choose import candidates
from ringup.compiler.machine.work import work
from ringup.compiler.schedule.kernel import Kernel
from ringup.compiler.schedule.order import plan
from ringup.compiler.schedule.signature import Signature, of_kernel
from ringup.compiler.target import DEFAULT, Cost
from ringup.compiler.target import target as find_target
from ringup.compiler.tuning import RANK, Entry, Judge, Tuning
from ringup.errors import CompileError

# Another shape must cost less than this part of the heuristic one; a smaller difference is noise.
MAX_COST_PART: Final = 0.98


class Measure(Protocol):
    """Determines the cost of a compiled kernel. `judge`: what determines it. `unit`: the unit of the cost."""

    judge: Judge
    unit: str

    def cost(self, step: Step) -> float:
        """Return the cost of one launch; lower is better."""
        ...


class ModelMeasure:
    """Cycles of a launch by the model of the chip. It needs no card."""

    judge: Judge = "model"
    unit = "cycles"

    def cost(self, step: Step) -> float:
        """Return the cycles of a launch, with symbolic sizes at their maximum."""
        return modelled(step).cycles


class Trial(NamedTuple):
    """One candidate: its name and its cost, or the reason why it could not be compiled (then the cost is None)."""

    choice: str
    cost: float | None
    refused: str = ""


class Tuned(NamedTuple):
    """One kernel: its trials, the heuristic one first, and the number of the best. `known`: the result was in a file,
    so nothing was tried.
    """

    name: str
    trials: tuple[Trial, ...]
    best: int
    known: bool = False

    @property
    def gain(self) -> float:
        """Return how many times faster the best shape is than the heuristic one."""
        first, best = self.trials[0].cost, self.trials[self.best].cost
        return first / best if first and best else 1.0


class Job(NamedTuple):
    """One kernel to tune. Its inputs are in the order of its signature."""

    kernel: Kernel
    signature: Signature


def jobs_of(outputs: Sequence[Node]) -> list[Job]:
    """Return the distinct kernels of a graph, in the order of their launches."""
    found: dict[Signature, Job] = {}
    for kernel in plan(outputs).kernels:
        signature, inputs = of_kernel(kernel)
        found.setdefault(signature, Job(replace(kernel, inputs=inputs), signature))
    return list(found.values())


def tune_graph(
    outputs: Sequence[Node],
    tuning: Tuning,
    target: str = DEFAULT,
    *,
    measure: Measure | None = None,
    again: bool = False,
    say: Callable[[str], None] | None = None,
    done: Callable[[], None] | None = None,
) -> list[Tuned]:
    """Tune every kernel of a graph and keep the results. `measure` is the model by default. The file is saved after
    each kernel.

    A kernel that `tuning` knows by the same or a more trustworthy judge is not tried again, unless `again`. `say` is
    called with each candidate, `done` after each kernel. Raises CompileError if even a kernel's heuristic shape cannot
    be compiled, and whatever measuring raises.
    """
    judged = measure or ModelMeasure()
    found = []
    for i, job in enumerate(jobs_of(outputs)):
        if i and done is not None:
            done()
        entry = tuning.entry(job.signature, target)
        if entry is not None and not again and RANK[entry.judge] >= RANK[judged.judge]:
            trials = (Trial("heuristic", entry.heuristic_cost), Trial(entry.choice, entry.cost))
            found.append(Tuned(entry.kernel, trials, 1, known=True))
            continue
        one = tune_kernel(job, target, judged, say)
        best = one.trials[one.best]
        tuning.keep(
            job.signature,
            target,
            Entry(best.choice, judged.judge, best.cost or 0.0, one.trials[0].cost or 0.0, one.name),
        )
        tuning.save()
        found.append(one)
    if found and done is not None:
        done()
    return found


def tune_kernel(job: Job, target: str, measure: Measure, say: Callable[[str], None] | None = None) -> Tuned:
    """Measure every candidate of a kernel. One that cannot be compiled is skipped, unless it is the heuristic one."""
    trials: list[Trial] = []
    name = ""
    for choice in candidates(job.kernel, find_target(target).traits):
        if say is not None:
            say(f"{name or 'kernel'}: {choice}")
        try:
            step = compile_kernel(job.kernel, job.signature, target, choice if trials else None)
        except CompileError as error:
            if not trials:
                raise
            trials.append(Trial(str(choice), None, str(error)))
            continue
        name = name or step.binary.name
        trials.append(Trial(str(choice), measure.cost(step)))
    first = trials[0].cost or 0.0
    best = 0
    for i, trial in enumerate(trials):
        if trial.cost is not None and trial.cost < first * MAX_COST_PART and trial.cost < (trials[best].cost or 0.0):
            best = i
    return Tuned(name, tuple(trials), best)


def modelled(step: Step) -> Cost:
    """Return the cost of one launch of a compiled kernel by the model, with symbolic sizes at their maximum."""
    groups = 1
    for count in step.lowered.groups:
        groups *= _most(count)
    chip, function = find_target(step.binary.target), step.lowered.function
    return chip.cost(step.code, step.binary, function, groups, bytes_moved(step, groups))


def bytes_moved(step: Step, groups: int) -> int:
    """Return the bytes that must pass between memory and the chip at least once: those read of each input, and those
    written.
    """
    kernel = step.kernel
    done = work(step.lowered.function)
    threads = groups * step.binary.group_size
    there = sum(_most(node.size) * node.dtype.size_bytes for node in dict.fromkeys(kernel.inputs))
    written = sum(root.dtype.size_bytes for root in kernel.roots)
    for size in kernel.shape:
        written *= _most(size)
    return min(there, done.loaded_bytes * threads) + written


def _most(number: Int) -> int:
    return bounds(number)[1]

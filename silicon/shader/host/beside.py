"""Where translations are made: at once, or in a thread beside the cards. For which processor, where they are kept."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from ringup.silicon.shader.host.code_cache import CodeCache

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class How:
    """How programs are translated: for LLVM's name of a processor (empty for this host), and where translations are
    kept on disk, if anywhere.
    """

    host_cpu: str = ""
    kept: CodeCache | None = None


class Beside(ThreadPoolExecutor):
    """A thread that translates while cards keep running: LLVM releases Python's global lock.

    Leaving its context waits until the translation under way has finished.
    """

    def __init__(self) -> None:
        # One thread is enough: LLVM handles one translation at a time in a process.
        super().__init__(1, "translation")
        self._latest: Future[Any] | None = None
        # the latest without which a program cannot go on
        self._awaited: Future[Any] | None = None

    @property
    def busy(self) -> bool:
        """Whether a translation is under way or queued."""
        return self._latest is not None and not self._latest.done()

    @property
    def is_awaited(self) -> bool:
        """Whether a translation is under way or queued without which a program cannot go on."""
        return self._awaited is not None and not self._awaited.done()

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        """Queue a translation that a program waits for."""
        self._awaited = future = self.improve(fn, *args, **kwargs)
        return future

    def improve(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        """Queue a translation of a program that has one already."""
        self._latest = future = super().submit(fn, *args, **kwargs)
        return future

    def __exit__(self, *_: object) -> None:
        self.shutdown(cancel_futures=True)


def submitted(
    executor: Executor | None, function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Future[Result]:
    """Call a function in `executor` if there is one, else now. What it raises now is raised here."""
    if executor is not None:
        return executor.submit(function, *args, **kwargs)
    return _done(function, *args, **kwargs)


def improved(
    executor: Executor | None, function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Future[Result]:
    """Do as `submitted`, where no program waits for the result."""
    if isinstance(executor, Beside):
        return executor.improve(function, *args, **kwargs)
    return submitted(executor, function, *args, **kwargs)


def _done(function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Future[Result]:
    done: Future[Result] = Future()
    done.set_result(function(*args, **kwargs))
    return done

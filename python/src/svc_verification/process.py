"""Values of which a forked child needs its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


# Each process of a line of forks has its own number; process ids may be used again.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class PerProcess(Generic[T]):
    """A value for each process: the connections, threads and locks of the parent do not work in a forked child."""

    def __init__(self, create: Callable[[], T]) -> None:
        self._create, self._values = create, dict[int, T]()
        self.get()

    def get(self) -> T:
        value = self._values.get(_forks)
        # `setdefault` is atomic between threads.
        return self._values.setdefault(_forks, self._create()) if value is None else value

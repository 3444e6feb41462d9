"""Values of which a forked child needs its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """A value for each process: the connections, threads and locks of the parent do not work in a forked child."""

    def __init__(self, create: Callable[[], T]) -> None:
        self._create, self._values = create, dict[int, T]()
        self.get()

    def get(self) -> T:
        process = os.getpid()
        value = self._values.get(process)
        # `setdefault` is atomic between threads.
        return self._values.setdefault(process, self._create()) if value is None else value

"""Threads for the requests of the mode `observe`, for which the process waits at its exit, but not long."""

from __future__ import annotations

import atexit
import logging
import os
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from threading import Lock, Thread
from typing import Any

from .transport import run_blocking

logger = logging.getLogger(__name__)
# Below the 100 connections of an httpx client, so that a call need not wait for a connection.
MAX_THREADS = 64
# Limits the wait at the exit: an engine that does not answer must not delay it by the timeouts of all requests.
EXIT_SECONDS = 10.0
_unfinished = set[Future[None]]()


class Background:
    """Runs calls in daemon threads, because a process waits at its exit for all other threads."""

    def __init__(self) -> None:
        self._lock, self._threads = Lock(), 0
        self._waiting = deque[tuple[Future[None], Coroutine[Any, Any, None]]]()

    def submit(self, call: Coroutine[Any, Any, None]) -> Future[None]:
        """Raises `RuntimeError` if the process cannot start a thread."""
        ended = Future[None]()
        with self._lock:
            if self._threads < MAX_THREADS:
                self._threads += 1
                try:
                    Thread(target=self._work, name="svc-observe", daemon=True).start()
                except RuntimeError:
                    self._threads -= 1
                    if self._threads == 0:
                        raise
            self._waiting.append((ended, call))
            _unfinished.add(ended)
        return ended

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                ended, call = self._waiting.popleft()
            try:
                run_blocking(call)
                ended.set_result(None)
            except BaseException as error:
                ended.set_exception(error)
            _unfinished.discard(ended)


# A forked child has none of these threads, so it must not wait for their requests.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unfinished.clear)


@atexit.register
def _finish() -> None:
    lost = len(wait(tuple(_unfinished), EXIT_SECONDS).not_done)
    if lost > 0:
        logger.error("gate: %d requests of the mode observe have no response at the exit of the process", lost)

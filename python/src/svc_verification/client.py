"""The clients of the engine and of the public API: one with blocking calls, one with coroutines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from importlib import import_module
from typing import Any, Self, TypeVar, Unpack

import anyio
import httpx
from anyio.lowlevel import RunVar

from .admissions import AdmissionCalls
from .background import Background
from .errors import SvcError
from .lookups import LookupCalls
from .models import ProofFilter
from .process import PerProcess
from .proofs import ProofCalls
from .transport import Request, Response, run_blocking

T = TypeVar("T")
# Follows no redirect, which would send the API key to its target. Requests no compression: httpx decompresses each
# chunk as a whole, before the client can count its bytes, so a response of a few kilobytes could fill the memory.
HTTP: dict[str, Any] = {"follow_redirects": False, "headers": {"accept-encoding": "identity"}}


class _Body:
    """Counts bytes on arrival: an endless body must not fill the memory."""

    def __init__(self, request: Request, response: httpx.Response) -> None:
        self.request, self.response, self.content = request, response, bytearray()
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            message = "the response is compressed, although the request does not accept that"
            raise SvcError("unexpected_response", message, status=response.status_code)

    def add(self, chunk: bytes) -> None:
        self.content += chunk
        if len(self.content) > self.request.max_bytes:
            message = f"the response is longer than {self.request.max_bytes} bytes"
            raise SvcError("unexpected_response", message, status=self.response.status_code)

    def complete(self) -> Response:
        return Response(self.response.status_code, self.response.headers, bytes(self.content))


# Identifies an event loop: one object for each loop, as long as the loop runs.
_loop_mark: RunVar[object] = RunVar("svc_verification_loop")


def _running_loop() -> object:
    mark = _loop_mark.get(None)
    if mark is None:
        _loop_mark.set(mark := object())
    return mark


def _require_open(http: httpx.Client | httpx.AsyncClient) -> None:
    if http.is_closed:
        raise SvcError("invalid_input", "the client is closed")


def _no_response(request: Request, error: Exception, http: httpx.Client | httpx.AsyncClient) -> SvcError:
    if isinstance(error, httpx.InvalidURL):
        return SvcError("invalid_input", f"the address of the request is not valid: {error}")
    if isinstance(error, RuntimeError):
        # httpx raises a `RuntimeError` for a closed client. Any other `RuntimeError` is a fault of the process or of a
        # transport.
        if type(error) is not RuntimeError or not http.is_closed:
            raise error
        return SvcError("aborted", "the client was closed during the call: the service may have acted")
    if isinstance(error, (httpx.TimeoutException, TimeoutError)):
        return SvcError("timeout", f"no complete response in {request.timeout:g} s")
    return SvcError("network", f"no complete response from {httpx.URL(request.url).host} ({type(error).__name__})")


class Client(AdmissionCalls, ProofCalls, LookupCalls):
    """A client with blocking calls. Use it as a context manager, or close it. Threads may share it.

    A forked child opens its own connections, except those of a given `transport`.

    The deadline is checked whenever data arrives: a server that sends its headers byte by byte can exceed it.
    """

    def _open(self, transport: Any) -> None:
        # Copies of this client share these objects.
        self._own_http = PerProcess(lambda: httpx.Client(transport=transport, **HTTP))
        self._own_background = PerProcess(Background)

    @property
    def _http(self) -> httpx.Client:
        try:
            return self._own_http.get()
        except (OSError, ValueError) as error:
            raise SvcError("network", f"this process cannot open connections: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        _require_open(self._http)
        return run_blocking(call())

    def _spawn(self, call: Coroutine[Any, Any, None]) -> Future[None]:
        _require_open(self._http)
        return self._own_background.get().submit(call)

    def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def _perform(self, request: Request) -> Response:
        end = time.monotonic() + request.timeout
        try:
            with self._http.stream(
                request.method, request.url, headers=request.headers, content=request.body, timeout=request.timeout
            ) as response:
                body = _Body(request, response)
                for chunk in response.iter_bytes():
                    body.add(chunk)
                    if time.monotonic() > end:
                        raise TimeoutError
                return body.complete()
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError, TimeoutError) as error:
            raise _no_response(request, error, self._http) from error

    def list_proofs(self, **conditions: Unpack[ProofFilter]) -> Iterator[dict[str, Any]]:
        """All proofs of the tenant, the newest first. Requests each page on demand."""
        cursor: str | None = None
        while True:
            page, cursor = self.list_page(cursor, **conditions)
            yield from page
            if cursor is None:
                return


class AsyncClient(AdmissionCalls, ProofCalls, LookupCalls):
    """The calls of `Client` as coroutines, for asyncio and trio."""

    def _open(self, transport: Any) -> None:
        self._http = httpx.AsyncClient(transport=transport, **HTTP)
        # Connections work only in the event loop that opened them. Copies of this client share this dictionary.
        self._loops = dict[str, object]()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def _run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        _require_open(self._http)
        loop = _running_loop()
        if self._loops.setdefault("first", loop) is not loop:
            raise SvcError("invalid_input", "the client belongs to another event loop")
        return await call()

    def _spawn(self, call: Coroutine[Any, Any, None]) -> asyncio.Task[None] | Future[None]:
        """Starts a call. asyncio has only weak references to tasks: keep the result until the call ends."""
        try:
            return asyncio.get_running_loop().create_task(call)
        except RuntimeError:
            ended = Future[None]()

        async def tracked() -> None:
            try:
                await call
            finally:
                ended.set_result(None)

        import_module("trio").lowlevel.spawn_system_task(tracked)
        return ended

    async def _sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    async def _perform(self, request: Request) -> Response:
        try:
            with anyio.fail_after(request.timeout):
                async with self._http.stream(
                    request.method, request.url, headers=request.headers, content=request.body, timeout=request.timeout
                ) as response:
                    body = _Body(request, response)
                    async for chunk in response.aiter_bytes():
                        body.add(chunk)
                    return body.complete()
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError, TimeoutError) as error:
            raise _no_response(request, error, self._http) from error

    async def list_proofs(self, **conditions: Unpack[ProofFilter]) -> AsyncIterator[dict[str, Any]]:
        """All proofs of the tenant, the newest first. Requests each page on demand."""
        cursor: str | None = None
        while True:
            page, cursor = await self.list_page(cursor, **conditions)
            for one in page:
                yield one
            if cursor is None:
                return

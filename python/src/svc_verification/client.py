"""The clients of the engine and of the public API: one with blocking calls, one with coroutines."""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

import anyio
import httpx
from anyio.lowlevel import RunVar

from . import admissions, lookups, proofs, tiles
from .documents import RECEIPT
from .errors import SvcError
from .models import AdmissionFields, Agent, Exchange, ExecuteFields, Lookup, OutcomeFields, ProofFilter, Receipt, Run
from .offline import OfflineResult
from .pins import Pins
from .transport import Deadline, Pause, Request, Response, Retry, Service, Steps, header_value

P = ParamSpec("P")
T = TypeVar("T")
ProofPage = tuple[list[dict[str, Any]], str | None]
MAX_ENGINE_BYTES = 128 * 1024 * 1024
# Above the largest entry bundle: 256 entries of 64 KiB.
MAX_PUBLIC_BYTES = 17 * 1024 * 1024
AFTER_PAUSE = Response(0, {}, b"")
# A followed redirect would send the API key to its target. httpx decompresses each chunk as a whole, before the client
# can count its bytes: a response of a few kilobytes could fill the memory.
HTTP: dict[str, Any] = {"follow_redirects": False, "headers": {"accept-encoding": "identity"}}


class _Settings:
    """The addresses and credentials of a client; by default those of the environment, as for the command `svc`."""

    def __init__(
        self,
        engine_url: str | None = None,
        api_key: str | None = None,
        tenant_id: str | None = None,
        public_url: str | None = None,
        *,
        timeout: float = 60.0,
        retry: Retry | None = None,
        pins: Pins | None = None,
        max_age: float | None = None,
        transport: httpx.BaseTransport | httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`timeout` limits a whole call, with its retries, in seconds. With `pins` of a log, every public answer is
        verified against evidence, which is at most `max_age` seconds old. `transport` is an httpx transport.
        """
        if max_age is not None and (pins is None or not max_age >= 0):
            raise SvcError("invalid_input", "max_age needs pins, and must be at least 0")
        if pins is not None and pins.log is None:
            raise SvcError("invalid_input", "pins of a client need a log")
        self.timeout, self.retry, self.pins, self.max_age = timeout, retry or Retry(), pins, max_age
        self._engine_url = os.environ.get("SVC_ENGINE_URL") if engine_url is None else engine_url
        self._public_url = os.environ.get("SVC_PUBLIC_URL") if public_url is None else public_url
        self._api_key = api_key
        self._tenant_id = os.environ.get("SVC_TENANT_ID") if tenant_id is None else tenant_id
        Deadline(timeout)
        self._open(transport)

    def _open(self, transport: Any) -> None:
        raise NotImplementedError

    @property
    def tenant_id(self) -> str:
        return _required(self._tenant_id, "tenant_id", "SVC_TENANT_ID")

    @property
    def _engine(self) -> Service:
        """Reads the settings on demand: a client of the public API needs no key."""
        headers = {
            "x-svc-api-key": header_value(
                "api_key", _api_key_of_environment() if self._api_key is None else self._api_key
            ),
            "x-svc-tenant-id": header_value("tenant_id", self.tenant_id),
            "svc-api-version": "v1",
        }
        url = _required(self._engine_url, "engine_url", "SVC_ENGINE_URL")
        return Service("engine_url", url, headers, self.retry, MAX_ENGINE_BYTES)

    def require_engine(self) -> None:
        """Raises `SvcError` (`invalid_input`) if a setting for calls of the engine is missing or not valid."""
        _ = self._engine

    @property
    def _public(self) -> Service:
        url = _required(self._public_url, "public_url", "SVC_PUBLIC_URL")
        return Service("public_url", url, {}, self.retry, MAX_PUBLIC_BYTES)

    @property
    def _deadline(self) -> Deadline:
        return Deadline(self.timeout)

    def with_timeout(self, timeout: float) -> Self:
        """A client that shares the connections, and limits a whole call to `timeout` seconds."""
        Deadline(timeout)
        other = copy.copy(self)
        other.timeout = timeout
        return other

    def _agent(self, kind: str, fields: Mapping[str, Any]) -> Steps[Receipt]:
        body = admissions.agent_envelope(self.tenant_id, kind, fields)
        return admissions.submit(self._engine, self._deadline, body)

    def _look_up(self, kind: str, identifier: str, view: str | None = None) -> Steps[Lookup]:
        return lookups.lookup(self._public, self._deadline, kind, identifier, self.pins, self.max_age, view)


def _required(value: str | None, option: str, variable: str) -> str:
    if not value:
        raise SvcError("invalid_input", f"set {variable}, or give {option}")
    return value


def _api_key_of_environment() -> str:
    key, file = os.environ.get("SVC_API_KEY"), os.environ.get("SVC_API_KEY_FILE")
    if key and file:
        raise SvcError("invalid_input", "set SVC_API_KEY or SVC_API_KEY_FILE, not both")
    if not file:
        return _required(key, "api_key", "SVC_API_KEY_FILE or SVC_API_KEY")
    try:
        return Path(file).read_text().strip()
    except (OSError, ValueError):
        # Without a cause: a `UnicodeDecodeError` has the bytes of the key.
        raise SvcError("invalid_input", f"SVC_API_KEY_FILE {file} cannot be read") from None


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


# One object for each event loop, as long as the loop runs.
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
        # httpx raises a `RuntimeError` for a closed client. Any other is a fault of the process or of a transport.
        if type(error) is not RuntimeError or not http.is_closed:
            raise error
        return SvcError("aborted", "the client was closed during the call: the service may have acted")
    if isinstance(error, (httpx.TimeoutException, TimeoutError)):
        return SvcError("timeout", f"no complete response in {request.timeout:g} s")
    return SvcError("network", f"no complete response from {httpx.URL(request.url).host} ({type(error).__name__})")


class _Call(Generic[P, T]):
    """Turns a generator of requests into a method of `Client`, and a coroutine method of `AsyncClient`."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        self.steps, self.__doc__ = steps, steps.__doc__

    @overload
    def __get__(self, client: Client, owner: object) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: object) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Client | AsyncClient, owner: object) -> Callable[P, T | Coroutine[Any, Any, T]]:
        @wraps(self.steps)
        def call(*args: P.args, **named: P.kwargs) -> T | Coroutine[Any, Any, T]:
            return client._run(self.steps(client, *args, **named))

        return call


class _Calls(_Settings):
    @_Call
    def execute(self, **fields: Unpack[ExecuteFields]) -> Steps[Receipt]:
        """Admits an execution. Returns only an `ADMITTED` receipt with the hash of this request.

        Raises `SvcError`: `policy_denied` with its receipt in `denial`, `approval_required` with its receipt in
        `approval`, and another code when there is no decision. The same fields return the first receipt again.
        """
        return admissions.submit(self._engine, self._deadline, admissions.execute_request(self.tenant_id, fields))

    @_Call
    def admit(self, **fields: Unpack[AdmissionFields]) -> Steps[Receipt]:
        """Admits an action of an agent. Returns and raises like `execute`."""
        return self._agent("admission", fields)

    @_Call
    def record_outcome(self, **fields: Unpack[OutcomeFields]) -> Steps[Receipt]:
        """Records how an admitted action ended."""
        return self._agent("outcome", fields)

    @_Call
    def close_run(self, *, agent: Agent, run: Run) -> Steps[Receipt]:
        """Ends a run; its `seq` is the number of requests before the close."""
        return self._agent("close", {"agent": agent, "run": run})

    @_Call
    def submit(self, body: Mapping[str, Any]) -> Steps[Receipt]:
        """Admits a complete body, such as one of `agent_envelope`. Submitting it again repeats the admission."""
        return admissions.submit(self._engine, self._deadline, dict(body))

    @_Call
    def follow_admission(self, proof_id: str) -> Steps[Receipt]:
        """Waits for the decision on an accepted admission; take `proof_id` from the error of the first call."""
        expected = admissions.Expected(RECEIPT, proof_id=proof_id)
        return admissions.follow(self._engine, self._deadline, expected)

    @_Call
    def wait_for_approval(self, required: Receipt | str, timeout: float | None = None) -> Steps[Receipt]:
        """The receipt of the second decision about a request that requires an approval.

        `required` is `error.approval["receipt"]`, or the id of the pending proof, which the evidence of the second
        decision must name. Without a timeout the call waits until the approval expires.
        """
        deadline = Deadline(math.inf if timeout is None else timeout)
        return admissions.wait_for_approval(self._engine, deadline, required)

    @_Call
    def receipt_evidence(self, receipt: Receipt, pins: Pins) -> Steps[tuple[dict[str, Any], OfflineResult]]:
        """The signed proof behind a receipt, verified under pinned AEP keys. The evidence binds the operator."""
        return proofs.receipt_evidence(self._engine, self._deadline, receipt, pins)

    @_Call
    def read_proof(self, proof_id: str) -> Steps[Exchange]:
        """A proof of the tenant with its record, current verdict and history."""
        return proofs.read_proof(self._engine, self._deadline, proof_id)

    @_Call
    def list_page(self, cursor: str | None = None, **conditions: Unpack[ProofFilter]) -> Steps[ProofPage]:
        """A page of the proofs of the tenant, the newest first, and the cursor of the next page, or None."""
        return proofs.list_page(self._engine, self._deadline, conditions, cursor)

    @_Call
    def export_proof(
        self, proof_id: str, media: str = "json", disclose: Sequence[str] | None = None
    ) -> Steps[Exchange]:
        """Exports a proof as `json`, `aep-json` or the bytes of a `pdf`. `disclose` names the values to show."""
        return proofs.export_proof(self._engine, self._deadline, proof_id, media, disclose)

    @_Call
    def verify_proof(self, proof: str | dict[str, Any]) -> Steps[Exchange]:
        """The registry's verdict on a proof id or an export, check by check."""
        return proofs.verify_proof(self._engine, self._deadline, proof)

    @_Call
    def read_run(self, run: str, agent: str) -> Steps[Exchange]:
        """The requests of a run, and whether it is closed."""
        return proofs.read_run(self._engine, self._deadline, run, agent)

    @_Call
    def export_run(self, run: str, agent: str) -> Steps[Exchange]:
        """Every proof of a closed run, for `verify_run`."""
        return proofs.export_run(self._engine, self._deadline, run, agent)

    @_Call
    def lookup(self, kind: str, identifier: str) -> Steps[Lookup]:
        """The public verdict on an artifact. A registry without a current snapshot raises `unavailable`."""
        return self._look_up(kind, identifier)

    @_Call
    def history(self, kind: str, identifier: str) -> Steps[Lookup]:
        """The status history of an artifact."""
        return self._look_up(kind, identifier, "history")

    @_Call
    def trust_chain(self, kind: str, identifier: str) -> Steps[Lookup]:
        """Each stage of an artifact with its verdict."""
        return self._look_up(kind, identifier, "chain")

    @_Call
    def evidence(self, identifier: str) -> Steps[bytes]:
        """The evidence of a public answer, for `verify_evidence`."""
        return lookups.read_evidence(self._public, self._deadline, identifier)

    @_Call
    def read_log(self, first: int = 0) -> Steps[list[dict[str, Any]]]:
        """The log's entries from an index to the next multiple of 256; an empty list at the end of the log.

        Every entry is verified under a checkpoint of the pinned log. The next call may see a longer log.
        """
        return tiles.read_log(self._public, self._deadline, first, self.pins)

    @_Call
    def wait_for_verdict(self, proof_id: str) -> Steps[Lookup]:
        """Polls for the public verdict on a proof, which appears a few seconds after its admission."""
        return lookups.wait_for_verdict(self._public, self._deadline, proof_id, self.pins, self.max_age)


class Client(_Calls):
    """A client with blocking calls. Use it as a context manager, or close it. Threads may share it.

    The deadline is checked whenever data arrives: a server that sends its headers byte by byte can exceed it.
    """

    def _open(self, transport: Any) -> None:
        self._http = httpx.Client(transport=transport, **HTTP)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _run(self, steps: Steps[T]) -> T:
        _require_open(self._http)
        try:
            step = next(steps)
            while True:
                try:
                    answer = self._perform(step)
                except SvcError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def _perform(self, step: Request | Pause) -> Response:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return AFTER_PAUSE
        end = time.monotonic() + step.timeout
        try:
            with self._http.stream(
                step.method, step.url, headers=step.headers, content=step.body, timeout=step.timeout
            ) as response:
                body = _Body(step, response)
                for chunk in response.iter_bytes():
                    body.add(chunk)
                    if time.monotonic() > end:
                        raise TimeoutError
                return body.complete()
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError, TimeoutError) as error:
            raise _no_response(step, error, self._http) from error

    def list_proofs(self, **conditions: Unpack[ProofFilter]) -> Iterator[dict[str, Any]]:
        """All proofs of the tenant, the newest first. Requests each page on demand."""
        cursor: str | None = None
        while True:
            page, cursor = self.list_page(cursor, **conditions)
            yield from page
            if cursor is None:
                return


class AsyncClient(_Calls):
    """The calls of `Client` as coroutines, for asyncio and trio."""

    def _open(self, transport: Any) -> None:
        self._http = httpx.AsyncClient(transport=transport, **HTTP)
        # Connections work only in the event loop that opened them. Copies of this client share the dictionary.
        self._loops = dict[str, object]()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def _run(self, steps: Steps[T]) -> T:
        _require_open(self._http)
        loop = _running_loop()
        if self._loops.setdefault("first", loop) is not loop:
            raise SvcError("invalid_input", "the client belongs to another event loop")
        try:
            step = next(steps)
            while True:
                try:
                    answer = await self._perform(step)
                except SvcError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _perform(self, step: Request | Pause) -> Response:
        if isinstance(step, Pause):
            await anyio.sleep(step.seconds)
            return AFTER_PAUSE
        try:
            with anyio.fail_after(step.timeout):
                async with self._http.stream(
                    step.method, step.url, headers=step.headers, content=step.body, timeout=step.timeout
                ) as response:
                    body = _Body(step, response)
                    async for chunk in response.aiter_bytes():
                        body.add(chunk)
                    return body.complete()
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError, TimeoutError) as error:
            raise _no_response(step, error, self._http) from error

    async def list_proofs(self, **conditions: Unpack[ProofFilter]) -> AsyncIterator[dict[str, Any]]:
        """All proofs of the tenant, the newest first. Requests each page on demand."""
        cursor: str | None = None
        while True:
            page, cursor = await self.list_page(cursor, **conditions)
            for one in page:
                yield one
            if cursor is None:
                return

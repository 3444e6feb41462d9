"""Requests, retries, deadlines and checks of responses. The client sends and sleeps.

Every call is a coroutine. In a `Client` each step blocks, so the coroutine never suspends.
"""

from __future__ import annotations

import inspect
import random
import re
import time
from collections.abc import Awaitable, Coroutine, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar, cast
from urllib.parse import urlencode, urlsplit

from .encoding import canonical_json, parse_json, sha256
from .errors import Code, InvalidError, SvcError
from .forms import Form, having, is_index, is_text, items, read
from .models import Exchange

T = TypeVar("T")


@dataclass(frozen=True)
class Retry:
    """Retries of a request, with times in seconds. Retrying is safe: every call is idempotent."""

    attempts: int = 5
    attempt_timeout: float = 15.0
    base_delay: float = 0.2
    max_delay: float = 10.0

    def __post_init__(self) -> None:
        # Negates the valid case, because every comparison with NaN is false.
        if not (self.attempts >= 1 and self.attempt_timeout > 0 and self.base_delay >= 0 and self.max_delay >= 0):
            raise SvcError("invalid_input", "retry: attempts and attempt_timeout must be positive, delays at least 0")

    def backoff(self, attempt: int) -> float:
        """A random delay from the upper half, so that clients which failed together do not retry together."""
        full = min(self.max_delay, self.base_delay * 2 ** min(attempt - 1, 30))
        return float(full * (1 + random.random()) / 2)  # noqa: S311


@dataclass(frozen=True)
class Request:
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    timeout: float
    max_bytes: int


@dataclass(frozen=True)
class Response:
    """A complete response of any status; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").split(";")[0].strip().lower()

    @property
    def retry_after(self) -> float | None:
        """Seconds of `Retry-After`. A date counts from the response's own `Date`, because the clocks may differ."""
        text = self.headers.get("retry-after", "").strip()
        if re.fullmatch("[0-9]{1,9}", text):
            return float(text)
        until, sent = _http_date(text), self.sent_at
        return None if until is None else max(0.0, until - (time.time() if sent is None else sent))

    @property
    def sent_at(self) -> float | None:
        """The time of the response by the clock of its sender."""
        return _http_date(self.headers.get("date", ""))


def run_blocking(call: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine of which no step suspends."""
    try:
        call.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    raise AssertionError("unreachable")


async def settle(result: T | Awaitable[T]) -> T:
    """The result of a call of either client."""
    return await result if inspect.isawaitable(result) else result


def _http_date(text: str) -> float | None:
    """Parses IMF-fixdate, the only form that a sender may use."""
    if not re.fullmatch("[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT", text):
        return None
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None


class Deadline:
    def __init__(self, timeout: float) -> None:
        if not timeout > 0:
            raise SvcError("invalid_input", "timeout must be above 0")
        self.timeout, self.end = timeout, time.monotonic() + timeout

    def remaining(self) -> float:
        return self.end - time.monotonic()

    def error(self) -> SvcError:
        return SvcError("timeout", f"the call took longer than {self.timeout:g} s")


class Service:
    """One API at a base address, with the headers and limits of one call, which may send several requests."""

    def __init__(self, client: Any, name: str, base: str, headers: Mapping[str, str], max_bytes: int) -> None:
        self.base, self.headers, self.max_bytes = _base_url(name, base), headers, max_bytes
        self.client, self.deadline = client, Deadline(client.timeout)
        # The time of the last response by the clock of the service, or, without a `Date`, by the local clock.
        self.answered_at = 0.0

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        accept: str = "application/json",
        idempotency_key: str | None = None,
    ) -> Response:
        """Retries after a network error, 408, 429, 502, 503 and 504; any other response would not change.

        Gives up at once when the delay exceeds the remaining time.
        """
        try:
            url = self.base + path + (f"?{urlencode(query)}" if query else "")
        except UnicodeError as cause:
            raise SvcError("invalid_input", "a value of the query contains a lone surrogate") from cause
        headers = {**self.headers, "accept": accept}
        if body is not None:
            headers["content-type"] = "application/json"
        if idempotency_key is not None:
            headers["x-svc-idempotency-key"] = idempotency_key
        deadline, retry, attempt = self.deadline, self.client.retry, 1
        while True:
            remaining = deadline.remaining()
            if remaining <= 0:
                raise deadline.error()
            timeout = min(retry.attempt_timeout, remaining)
            try:
                request = Request(method, url, headers, body, timeout, self.max_bytes)
                response: Response = await settle(self.client._perform(request))
                sent = response.sent_at
                self.answered_at = time.time() if sent is None else sent
                if response.status not in RETRIED:
                    return response
                error = http_error(response)
            except SvcError as failed:
                error = deadline.error() if deadline.remaining() <= 0 else failed
            delay = max(error.retry_after or 0, retry.backoff(attempt))
            if not error.retryable or attempt >= retry.attempts or delay >= deadline.remaining():
                raise error
            await settle(self.client._sleep(delay))
            attempt += 1

    async def wait(self, seconds: float) -> None:
        await settle(self.client._sleep(max(0.0, min(seconds, self.deadline.remaining()))))
        if self.deadline.remaining() <= 0:
            raise self.deadline.error()

    async def read(self, path: str, method: str = "GET", **options: Any) -> Response:
        """Like `send`, but raises for every status except 200."""
        response = await self.send(method, path, **options)
        if response.status != 200:
            raise http_error(response)
        return response

    async def exchange(self, path: str, form: Form | None, *, body: bytes | None = None, **options: Any) -> Exchange:
        """A GET, or a POST of a body, with hashes of request and response. Without a form, the response is bytes."""
        method = "GET" if body is None else "POST"
        query = options.get("query") or {}
        asked = canonical_json({"method": method, "path": path, "query": query}).encode() if body is None else body
        response = await self.read(path, method, body=body, **options)
        if form is None and response.media_type != options["accept"]:
            raise unexpected(response, f"the response is not {options['accept']}")
        return Exchange(
            sha256(asked).hex(),
            asked.decode(),
            sha256(response.content).hex(),
            response.headers.get("x-request-id"),
            response.content if form is None else read_document(response, form),
        )


def _base_url(name: str, text: str) -> str:
    try:
        url = urlsplit(text)
        is_plain = url.port != 0 and url.hostname and not (url.username or url.password or url.query or url.fragment)
    except ValueError:
        is_plain = False
    if not is_plain or not re.fullmatch("https?://[!-~]+", text, re.IGNORECASE):
        raise SvcError("invalid_input", f"{name} is not a plain http(s) address")
    return text.rstrip("/")


def header_value(name: str, text: str) -> str:
    """Does not quote the value: it may be a secret."""
    if not re.fullmatch("[!-~]+", text):
        raise SvcError("invalid_input", f"{name} is missing or has invalid characters")
    return text


# Responses

RETRIED = frozenset({408, 429, 502, 503, 504})
# Statuses that a proxy may send without a problem document of the API.
PROXY = RETRIED | {500}
BY_STATUS: dict[int, Code] = {
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    408: "unavailable",
    409: "not_ready",
    410: "gone",
    423: "lane_locked",
    429: "rate_limited",
    502: "unavailable",
    503: "unavailable",
    504: "unavailable",
}
# Problems with the status 409 that a repetition of the request does not change.
FINAL_CONFLICTS = frozenset({"already_decided", "approver_retired", "run_closed", "run_seq_taken"})
PROBLEM = having(
    type=is_text,
    title=is_text,
    status=is_index,
    detail=is_text,
    code=is_text,
    errors_=items(having(pointer=is_text, detail=is_text)),
)


def unexpected(response: Response, message: str) -> SvcError:
    return SvcError("unexpected_response", message, **_identify(response))


def _identify(response: Response) -> dict[str, Any]:
    return {"status": response.status, "request_id": response.headers.get("x-request-id")}


def read_document(response: Response, form: Form) -> Any:
    """The document of a response as sent: strict JSON of this form. Raises `unexpected_response`."""
    if response.media_type != "application/json":
        raise unexpected(response, "the response is not application/json")
    try:
        return read(form, parse_json(response.content), "malformed")
    except InvalidError as fault:
        message = f"the response does not have the expected form: {fault.code}, at {fault.pointer or '/'}"
        raise unexpected(response, message) from fault


def http_error(response: Response) -> SvcError:
    status, problem = response.status, _problem_of(response)
    code: Code
    if problem is None:
        if status not in PROXY:
            return unexpected(response, f"status {status} without a problem document: check the address")
        code, message = BY_STATUS.get(status, "engine_failed"), f"status {status}"
    else:
        code = BY_STATUS.get(status, "invalid_request" if status < 500 else "engine_failed")
        if problem["code"] in FINAL_CONFLICTS:
            code = "invalid_request"
        first = next(iter(problem.get("errors", [])), None)
        where = f" ({first['pointer'] or '/'}: {first['detail']})" if first else ""
        message = f"{problem['code']}: {problem['detail']}{where}"
    return SvcError(code, message, **_identify(response), problem=problem, retry_after=response.retry_after)


def _problem_of(response: Response) -> dict[str, Any] | None:
    """The problem document of a response; None if its `status` is not that of the response."""
    if response.media_type != "application/problem+json":
        return None
    try:
        problem: dict[str, Any] = read(PROBLEM, parse_json(response.content), "malformed")
    except InvalidError:
        return None
    return problem if problem["status"] == response.status else None

"""The settings of a client, and the calls that both clients share."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

import httpx

from .errors import SvcError
from .pins import Pins
from .transport import Deadline, Retry, Service, header_value

if TYPE_CHECKING:
    from .client import AsyncClient, Client

P = ParamSpec("P")
T = TypeVar("T")
MAX_ENGINE_BYTES = 128 * 1024 * 1024
# Limit of a response: above the largest entry bundle, 256 entries of 64 KiB.
MAX_PUBLIC_BYTES = 17 * 1024 * 1024


class Settings:
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
        key = _api_key_of_environment() if self._api_key is None else self._api_key
        headers = {
            "x-svc-api-key": header_value("api_key", key),
            "x-svc-tenant-id": header_value("tenant_id", self.tenant_id),
            "svc-api-version": "v1",
        }
        url = _required(self._engine_url, "engine_url", "SVC_ENGINE_URL")
        return Service(self, "engine_url", url, headers, MAX_ENGINE_BYTES)

    def require_engine(self) -> None:
        """Raises `SvcError` (`invalid_input`) if a setting for calls of the engine is missing or not valid."""
        _ = self._engine

    @property
    def _public(self) -> Service:
        url = _required(self._public_url, "public_url", "SVC_PUBLIC_URL")
        return Service(self, "public_url", url, {}, MAX_PUBLIC_BYTES)

    def with_timeout(self, timeout: float) -> Self:
        """A client that shares the connections, and limits a whole call to `timeout` seconds."""
        Deadline(timeout)
        other = copy.copy(self)
        other.timeout = timeout
        return other


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
        # Ignores a byte order mark, which an editor may write.
        return Path(file).read_text("utf-8-sig").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        # Raises without a cause: a `UnicodeDecodeError` contains the bytes of the key.
        raise SvcError("invalid_input", f"SVC_API_KEY_FILE {file} cannot be read: {why}") from None


class Call(Generic[P, T]):
    """Turns a coroutine method into a blocking method of `Client`. It stays a coroutine method of `AsyncClient`."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self.method, self.__doc__ = method, method.__doc__

    @overload
    def __get__(self, client: Client, owner: object) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: object) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Client | AsyncClient, owner: object) -> Callable[P, T | Coroutine[Any, Any, T]]:
        @wraps(self.method)
        def call(*args: P.args, **named: P.kwargs) -> T | Coroutine[Any, Any, T]:
            return client._run(lambda: self.method(client, *args, **named))

        return call

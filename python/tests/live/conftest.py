"""The running service, which test/interop/python-client.long.test.ts starts."""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import httpx
import pytest

from svc_verification import AsyncClient, Client, Pins, Retry

FAST = Retry(attempt_timeout=10.0, base_delay=0.01, max_delay=0.04)


@pytest.fixture(scope="session", autouse=True)
def _running_service() -> None:
    if "SVC_TEST_PINS" not in os.environ:
        pytest.skip("needs a running service: npx vitest run --project=long test/interop/python-client")


@pytest.fixture(scope="session")
def pins() -> Pins:
    return Pins(**json.loads(os.environ["SVC_TEST_PINS"]))


Change = Callable[[httpx.Request, httpx.Response], httpx.Response]


class Altered(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Applies the next of `changes`, if any, to each response of the real service. A change may raise."""

    def __init__(self, *changes: Change) -> None:
        self.changes, self.requests = list(changes), list[httpx.Request]()
        self.blocking, self.coroutine = httpx.HTTPTransport(), httpx.AsyncHTTPTransport()

    def _change(self, request: httpx.Request, response: httpx.Response) -> httpx.Response:
        self.requests.append(request)
        return self.changes.pop(0)(request, response) if self.changes else response

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self.blocking.handle_request(request)
        response.read()
        return self._change(request, response)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self.coroutine.handle_async_request(request)
        await response.aread()
        return self._change(request, response)


class Driven:
    """A client whose methods block; with `is_async` each method runs a coroutine of an `AsyncClient` to its end."""

    def __init__(self, *, is_async: bool, transport: Altered | None = None, **settings: Any) -> None:
        self.is_async, self.transport = is_async, transport
        self.settings = {"retry": FAST, **settings}

    def with_(self, *changes: Change, **settings: Any) -> "Driven":
        return Driven(is_async=self.is_async, **{"transport": Altered(*changes), **self.settings, **settings})

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if not self.is_async:
                with Client(transport=self.transport, **self.settings) as client:
                    found = getattr(client, name)(*args, **named)
                    return list(found) if isinstance(found, Iterator) else found

            async def run() -> Any:
                async with AsyncClient(transport=self.transport, **self.settings) as client:
                    found = getattr(client, name)(*args, **named)
                    return [one async for one in found] if hasattr(found, "__aiter__") else await found

            return anyio.run(run)

        return call


@pytest.fixture(params=[False, True], ids=["blocking", "async"])
def client(request: pytest.FixtureRequest, pins: Pins) -> Driven:
    return Driven(is_async=request.param, pins=pins)

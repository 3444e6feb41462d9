import contextlib
import copy
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import anyio
import httpx
import pytest
from langchain_core.tools import BaseTool, StructuredTool, tool
from pydantic import BaseModel, Field, SecretStr

from svc_verification import (
    ApprovalWait,
    AsyncClient,
    Client,
    Gate,
    LostOutcome,
    Pins,
    SvcError,
    admitted,
    open_run,
    plain_hash,
    verify_run,
)
from svc_verification.langchain import admit_tool
from svc_verification.transport import run_blocking, settle

from .conftest import FAST, Altered, Change


class World:
    """A gate, and the requests that it sent."""

    def __init__(self, *changes: Change, is_async: bool = False) -> None:
        self.network, self.lost = Altered(*changes), list[LostOutcome]()
        client = (AsyncClient if is_async else Client)(transport=self.network, retry=FAST)
        self.gate = Gate(client, {"id": "gate-1"}, on_outcome_error=self.lost.append)
        self.is_async, self.ran = is_async, list[Any]()

    def book(self, **options: Any) -> Callable[..., Any]:
        """A decorated tool that records its calls."""

        def book(seats: int, guest: Any = "Ada") -> Any:
            self.ran.append((seats, guest))
            return {"table": seats}

        async def book_async(seats: int, guest: Any = "Ada") -> Any:
            return book(seats, guest)

        options = {"tool": "reservations.book", "action": "BOOK", **options}
        gated: Any = admitted(self.gate, **options)(book_async if self.is_async else book)

        def call(*args: Any, **named: Any) -> Any:
            async def run() -> Any:
                try:
                    return await gated(*args, **named)
                finally:
                    await self.gate.drain_async()

            if self.is_async:
                return anyio.run(run)
            try:
                return gated(*args, **named)
            finally:
                self.gate.drain()

        return call

    def sent(self) -> list[dict[str, Any]]:
        """The sent bodies, without the members that vary from request to request."""
        varying = ("nonce", "requested_at", "schema_version", "tenant_id")
        bodies = [json.loads(one.content) for one in self.network.requests if one.content]
        return [{name: value for name, value in body.items() if name not in varying} for body in bodies]


@pytest.fixture(params=[False, True], ids=["blocking", "async"])
def world_of(request: pytest.FixtureRequest) -> Callable[..., World]:
    return lambda *changes: World(*changes, is_async=request.param)


def test_a_function_runs_after_its_admission_and_its_outcome_is_recorded(world_of: Callable[..., World]) -> None:
    world = world_of()
    assert world.book()(2) == {"table": 2}
    admission, outcome = world.sent()
    agent = {"id": "gate-1"}
    arguments_hash = plain_hash({"seats": 2, "guest": "Ada"})
    named = {"action": "BOOK", "tool": "reservations.book"}
    assert admission == {"kind": "admission", "agent": agent, "arguments_hash": arguments_hash, **named}
    parent = {"parent_proof_id": outcome["parent_proof_id"]}
    result_hash = plain_hash({"table": 2})
    assert outcome == {"kind": "outcome", "agent": agent, "result": "succeeded", "result_hash": result_hash, **parent}
    assert world.lost == []


def lose(request: httpx.Request, _: httpx.Response) -> httpx.Response:
    raise httpx.ReadError("lost", request=request)


@pytest.mark.parametrize(
    ("code", "options", "changes", "guest"),
    [
        ("policy_denied", {"action": "NEVER"}, [], "Ada"),
        ("network", {}, [lose] * 5, "Ada"),
        ("unexpected_response", {}, [lambda *_: httpx.Response(200, json={})], "Ada"),
        ("invalid_input", {}, [], object()),
        ("invalid_input", {"action": "lower case"}, [], "Ada"),
        ("invalid_input", {"action": None, "tool": "検索"}, [], "Ada"),
    ],
)
def test_a_call_without_an_admission_does_not_run(
    world_of: Callable[..., World], code: str, options: dict[str, Any], changes: list[Change], guest: object
) -> None:
    world = world_of(*changes)
    with pytest.raises(SvcError) as caught:
        world.book(**options)(2, guest)
    assert (caught.value.code, caught.value.tool) == (code, options.get("tool", "reservations.book"))
    assert (caught.value.proof_id is not None) == (code == "policy_denied")
    assert world.ran == []


@pytest.mark.parametrize("is_fact", [False, True], ids=["arguments", "facts"])
def test_a_call_that_changes_during_its_admission_does_not_run(
    world_of: Callable[..., World], *, is_fact: bool
) -> None:
    value = {"currency": "EUR"}

    def change(_: httpx.Request, response: httpx.Response) -> httpx.Response:
        value["currency"] = "USD"
        return response

    world = world_of(change)
    options = {"facts": lambda seats, guest=None: value} if is_fact else {}
    with pytest.raises(SvcError) as caught:
        world.book(**options)(2, *([] if is_fact else [value]))
    assert (caught.value.code, world.ran) == ("arguments_changed", [])
    admission, outcome = world.sent()
    assert admission.get("facts") == ({"currency": "EUR"} if is_fact else None)
    assert outcome["result"] == "failed"


def test_a_lost_outcome_is_reported_and_the_result_is_returned(world_of: Callable[..., World]) -> None:
    world = world_of(lambda _, response: response, *[lose] * 5)
    assert world.book()(2) == {"table": 2}
    (lost,) = world.lost
    assert isinstance(lost.error, SvcError)
    with Client() as client:
        assert client.submit(lost.envelope)["status"] == "ADMITTED"


def test_a_cancelled_coroutine_is_a_failed_outcome() -> None:
    world = World(is_async=True)

    @admitted(world.gate, tool="wait", action="BOOK")
    async def wait() -> None:
        await anyio.sleep_forever()

    async def run() -> None:
        with anyio.move_on_after(1):
            await wait()

    anyio.run(run)
    assert [one.get("result") for one in world.sent()] == [None, "failed"]


def test_a_generator_function_and_wrong_options_are_rejected_at_once() -> None:
    def stream() -> Iterator[int]:
        yield 1

    with Client() as client:
        with pytest.raises(SvcError, match="generator function"):
            admitted(Gate(client, {"id": "gate-1"}))(stream)
        with pytest.raises(SvcError, match="/agent/id"):
            Gate(client, {"id": ""})
        with pytest.raises(SvcError, match="needs an AsyncClient"):
            admitted(Gate(client, {"id": "gate-1"}))(anyio.sleep)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_the_package_of_a_run_is_complete(kind: type[Client] | type[AsyncClient], pins: Pins) -> None:
    async def program() -> str:
        client: Any = kind(retry=FAST)
        run = open_run(client, {"id": "gate-1"})
        gate = Gate(client, {"id": "gate-1"}, approval=ApprovalWait(30))

        async def book_async(seats: int) -> int:
            return seats

        function: Any = (lambda seats: seats) if kind is Client else book_async
        for action in ("BOOK", "NEVER", "PAY"):
            book = admitted(gate, tool="book", action=action, fields=lambda seats: {"run": run})(function)
            with contextlib.suppress(SvcError):
                await settle(book(2))
        await settle(run.close())
        return str(run.id)

    run_id = run_blocking(program()) if kind is Client else anyio.run(program)
    with Client() as client:
        for _ in range(100):
            with contextlib.suppress(SvcError):
                package = client.export_run(run_id, "gate-1").response
                break
            time.sleep(0.1)
        # The numbers of the admission, its outcome, the denial, the pending decision, the second decision and its
        # outcome are 0, 1, 2, 3, 3 and 4.
        verified = verify_run(package, pins)
        assert (verified.complete, verified.missing, len(verified.members or [])) == (True, [], 6)
        assert client.read_run(run_id, "gate-1").response["state"] == "closed"


# LangChain


class Guest(BaseModel):
    name: str
    vip: bool = False


def book_table(seats: int, guest: Guest) -> str:
    """Books a table."""
    return f"{seats} for {guest.name}"


def tools() -> list[BaseTool]:
    async def coroutine(seats: int, guest: Guest) -> str:
        return book_table(seats, guest)

    both = StructuredTool.from_function(book_table, coroutine=coroutine, name="book_table")
    return [tool(book_table), both]


@pytest.mark.parametrize("original", tools(), ids=["function", "coroutine"])
@pytest.mark.parametrize("is_async", [False, True], ids=["invoke", "ainvoke"])
def test_a_langchain_tool_is_admitted_once(original: BaseTool, *, is_async: bool) -> None:
    # LangChain runs a tool without a coroutine in a thread, so its gate has a blocking client.
    has_coroutine = getattr(original, "coroutine", None) is not None
    world = World(is_async=is_async and has_coroutine)
    gated = admit_tool(original, world.gate)
    given = {"seats": 2, "guest": {"name": "Ada"}}

    async def run() -> Any:
        return await gated.ainvoke(given)

    assert (anyio.run(run) if is_async else gated.invoke(given)) == "2 for Ada"
    admission, outcome = world.sent()
    assert admission["agent"] == {"id": "gate-1", "framework": "langchain"}
    assert (admission["action"], admission["tool"]) == ("BOOK_TABLE", "book_table")
    assert admission["arguments_hash"] == plain_hash({"seats": 2, "guest": {"name": "Ada", "vip": False}})
    assert outcome["result_hash"] == plain_hash("2 for Ada")


def test_a_langchain_tool_without_an_admission_does_not_run() -> None:
    world = World()

    @tool
    def book(seats: int) -> None:
        """Books a table."""
        world.ran.append(seats)

    gated = admit_tool(book, world.gate, action="NEVER")
    with pytest.raises(SvcError):
        gated.invoke({"seats": 2})
    with pytest.raises(SvcError):
        copy.copy(gated).run({"seats": 2})
    assert world.ran == []


class Payment(BaseModel):
    due: datetime = datetime(2026, 11, 27, tzinfo=UTC)
    pin: SecretStr | None = None
    to: str = Field(default="Ada", exclude=True)


def test_a_langchain_tool_does_not_run_with_data_that_the_hash_does_not_cover() -> None:
    world = World()

    @tool
    def pay(payment: Payment) -> None:
        """Pays."""
        world.ran.append(payment.to)

    gated = admit_tool(pay, world.gate, action="BOOK")
    for payment in ({"pin": "1234"}, {"to": "Eve"}):
        with pytest.raises(SvcError) as caught:
            gated.invoke({"payment": payment})
        assert caught.value.code == "invalid_input"
    gated.invoke({"payment": {}})
    assert world.ran == ["Ada"]

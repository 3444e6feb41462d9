"""The gate without a service."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Callable
from functools import wraps
from typing import Any

import anyio
import httpx
import pytest
from langchain_core.callbacks import BaseRunManager
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool

from svc_verification import AsyncClient, Client, Gate, LostOutcome, SvcError, admitted, canonical_hash
from svc_verification.langchain import admit_tool

from .engine import AGENT, SETTINGS, Engine, Kind, admit, client_of, deny


def gate_of(kind: Kind, engine: Callable[..., Any]) -> Gate:
    return Gate(client_of(kind, engine), AGENT)


def test_an_outcome_whose_recording_is_cancelled_is_reported_as_lost() -> None:
    engine, recording, lost = Engine(), asyncio.Event(), list[LostOutcome]()

    async def answer(request: httpx.Request) -> httpx.Response:
        if len(engine.sent) == 1:
            recording.set()
            await anyio.sleep_forever()
        return engine(request)

    async def run() -> None:
        @admitted(Gate(client_of(AsyncClient, answer), AGENT, on_outcome_error=lost.append), tool="book")
        async def book() -> int:
            return 4

        task = asyncio.create_task(book())
        await recording.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert [one.envelope["result"] for one in lost] == ["succeeded"]


def test_an_outcome_whose_recording_is_interrupted_is_reported_as_lost() -> None:
    lost = list[LostOutcome]()
    client = client_of(Client, Engine(admit, KeyboardInterrupt()))
    book = admitted(Gate(client, AGENT, on_outcome_error=lost.append), tool="book")(lambda: 4)
    with pytest.raises(KeyboardInterrupt):
        book()
    assert [one.envelope["result"] for one in lost] == ["succeeded"]


def test_a_langchain_tool_is_finalized_once_after_its_copies() -> None:
    finalized = list[None]()

    class Book(BaseTool):
        name: str = "book"
        description: str = "Books a table."

        def _run(self, seats: int) -> int:
            return seats

        def __del__(self) -> None:
            finalized.append(None)

    gated = [admit_tool(Book(), gate_of(Client, Engine()))]
    gated.append(gated[0].model_copy())
    assert [one.invoke({"seats": 2}) for one in gated] == [2, 2]
    gated.pop()
    assert finalized == []
    gated.pop()
    gc.collect()
    assert finalized == [None]


@pytest.mark.parametrize("method", ["__copy__", "model_copy"])
def test_a_langchain_tool_whose_class_makes_its_own_copies_runs_only_with_a_permit(method: str) -> None:
    ran = list[int]()

    class Book(BaseTool):
        name: str = "book"
        description: str = "Books a table."

        def _run(self, seats: int) -> int:
            ran.append(seats)
            return seats

    setattr(Book, method, lambda self, **_: Book())
    with pytest.raises(SvcError):
        admit_tool(Book(), gate_of(Client, Engine(deny))).invoke({"seats": 2})
    assert ran == []


@pytest.mark.parametrize("name", ["engine_url", "tenant_id", "api_key"])
def test_a_gate_without_a_setting_of_the_engine_is_rejected_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # An empty setting must not select the tenant or the key of the environment.
    for variable in ("SVC_ENGINE_URL", "SVC_TENANT_ID", "SVC_API_KEY"):
        monkeypatch.setenv(variable, "http://other")
    with pytest.raises(SvcError, match=name) as caught:
        Gate(Client(**SETTINGS | {name: ""}), AGENT)
    assert caught.value.code == "invalid_input"


@pytest.mark.parametrize("option", ["hashed", "facts", "fields"])
def test_a_call_whose_description_fails_does_not_run(option: str) -> None:
    def describe() -> Any:
        raise LookupError("no such guest")

    ran = list[int]()
    options: dict[str, Any] = {option: describe}
    book = admitted(gate_of(Client, Engine()), tool="book", **options)(lambda: ran.append(4))
    with pytest.raises(SvcError, match=r"book did not run: .*no such guest") as caught:
        book()
    assert (caught.value.code, caught.value.tool, ran) == ("invalid_input", "book", [])


async def coroutine() -> int:
    return 4


async def async_generator() -> AsyncIterator[int]:
    yield 4


@pytest.mark.parametrize("lazy", [coroutine, async_generator, lambda: (one for one in [4])])
def test_an_unstarted_coroutine_or_generator_is_a_failed_outcome(lazy: Callable[[], Any]) -> None:
    engine = Engine()
    # Like a decorator that hides the coroutine function.
    book = admitted(gate_of(Client, engine), tool="book")(lambda: lazy())
    with pytest.raises(TypeError, match=r"book returned a .*, whose body has not run"):
        book()
    assert engine.shown("result") == [(None,), ("failed",)]


def test_a_call_with_wrong_arguments_is_not_admitted() -> None:
    engine = Engine()

    def book(seats: int) -> int:
        return seats

    gated: Callable[..., Any] = admitted(gate_of(Client, engine), tool="book", hashed=lambda *_: 4)(book)
    with pytest.raises(TypeError):
        gated(1, 2)
    assert engine.sent == []


def test_hashed_describes_the_call_of_a_wrapper_with_other_arguments() -> None:
    def book(session: str, seats: int) -> str:
        return f"{seats} by {session}"

    @wraps(book)
    def with_session(seats: int) -> str:
        return book("session", seats)

    gate = gate_of(Client, Engine())
    assert admitted(gate, tool="book", hashed=lambda seats: seats)(with_session)(2) == "2 by session"


class Book:
    async def __call__(self, seats: list[int]) -> list[int]:
        return seats


def test_an_object_whose_call_is_a_coroutine_needs_a_gate_with_an_async_client() -> None:
    # With a blocking client, the call would return before the coroutine ran.
    with pytest.raises(SvcError, match="needs an AsyncClient"):
        admitted(gate_of(Client, Engine()), tool="book")(Book())

    async def run() -> list[int]:
        return await admitted(gate_of(AsyncClient, Engine()), tool="book")(Book())([2])

    assert anyio.run(run) == [2]


class Booking(BaseTool):
    name: str = "book"
    description: str = "Books a table."

    def _run(self, seats: int) -> str:
        return f"a table for {seats}"


@pytest.mark.parametrize("is_async", [False, True], ids=["invoke", "ainvoke"])
def test_a_langchain_class_without_a_coroutine_needs_a_blocking_client(*, is_async: bool) -> None:
    engine = Engine()
    tool = admit_tool(Booking(), gate_of(Client, engine))

    async def run() -> Any:
        return await tool.ainvoke({"seats": 2})

    assert (anyio.run(run) if is_async else tool.invoke({"seats": 2})) == "a table for 2"
    assert engine.shown("kind") == [("admission",), ("outcome",)]


@pytest.mark.parametrize("is_async", [False, True], ids=["invoke", "ainvoke"])
def test_an_admission_of_a_langchain_call_has_the_id_that_the_model_gave_to_the_call(*, is_async: bool) -> None:
    engine = Engine()
    inner = admit_tool(Booking(), gate_of(Client, engine))

    class Party(Booking):
        def _run(self, seats: int) -> str:
            return str(inner.invoke({"seats": seats}))

    class AsyncParty(Party):
        async def _arun(self, seats: int) -> str:
            return self._run(seats)

    call: Any = {"type": "tool_call", "name": "book", "id": "call-1", "args": {"seats": 2}}

    async def run() -> Any:
        return await admit_tool(AsyncParty(), gate_of(AsyncClient, engine)).ainvoke(call)

    answered = anyio.run(run) if is_async else admit_tool(Party(), gate_of(Client, engine)).invoke(call)
    admissions = [call_id for kind, call_id in engine.shown("kind", "tool_call_id") if kind != "outcome"]
    assert (answered.content, admissions) == ("a table for 2", ["call-1", None])


@pytest.mark.parametrize("call_id", ["", "x" * 513], ids=["empty", "long"])
def test_a_call_with_an_id_that_no_proof_can_hold_is_admitted_without_the_id(call_id: str) -> None:
    engine = Engine()
    tool = admit_tool(Booking(), gate_of(Client, engine))
    tool.invoke({"type": "tool_call", "name": "book", "id": call_id, "args": {"seats": 2}})
    assert engine.shown("kind", "tool_call_id") == [("admission", None), ("outcome", None)]


def book_table(seats: int) -> str:
    """Books a table."""
    return f"a table for {seats}"


def tools() -> list[BaseTool]:
    own = Booking()
    object.__setattr__(own, "_run", book_table)
    return [Booking(), own, StructuredTool.from_function(book_table)]


@pytest.mark.parametrize("tool", tools(), ids=["class", "own method", "function"])
def test_each_gate_of_a_langchain_tool_decides_about_a_call(tool: BaseTool) -> None:
    inner, outer = Engine(), Engine(admit, admit, deny)
    gated = admit_tool(admit_tool(tool, gate_of(Client, inner)), gate_of(Client, outer))
    assert gated.invoke({"seats": 2}) == "a table for 2"
    assert (len(inner.sent), len(outer.sent)) == (2, 2)
    with pytest.raises(SvcError, match="denied"):
        gated.invoke({"seats": 2})
    assert (len(inner.sent), len(outer.sent)) == (2, 3)


@pytest.mark.parametrize("is_async", [False, True], ids=["invoke", "ainvoke"])
def test_a_copy_of_a_gated_langchain_tool_has_its_own_fields_and_the_gate(*, is_async: bool) -> None:
    async def reserve(seats: int) -> str:
        return "reserved"

    engine = Engine()
    gated = admit_tool(StructuredTool.from_function(book_table), gate_of(AsyncClient if is_async else Client, engine))
    function = {"coroutine": reserve} if is_async else {"func": lambda seats: "reserved"}
    copied = gated.model_copy(update={"name": "reserve", **function})

    async def run() -> Any:
        return await copied.ainvoke({"seats": 2})

    assert (anyio.run(run) if is_async else copied.invoke({"seats": 2})) == "reserved"
    assert engine.shown("tool") == [("reserve",), (None,)]


SEATS = {"title": "book", "type": "object", "properties": {"seats": {"type": "integer"}}}


class Lenient(BaseTool):
    """A tool that accepts arguments that its schema does not name."""

    name: str = "book"
    description: str = "Books a table."
    args_schema: Any = SEATS

    def _run(self, **given: Any) -> str:
        return json.dumps(given)


class Configured(BaseTool):
    name: str = "book"
    description: str = "Books a table."
    args_schema: Any = SEATS

    def _run(self, settings: RunnableConfig, run_manager: BaseRunManager, **given: Any) -> str:
        assert (settings["tags"], isinstance(run_manager, BaseRunManager)) == (["evening"], True)
        return json.dumps(given)


@pytest.mark.parametrize(("tool", "names"), [(Lenient(), ("config", "run_manager")), (Configured(), ("config",))])
def test_the_hash_of_a_langchain_call_covers_every_argument_of_the_model(tool: BaseTool, names: tuple[str]) -> None:
    engine = Engine()
    gated = admit_tool(tool, gate_of(Client, engine))
    given = {"seats": 2} | {name: {"guest": "Eve"} for name in names}
    assert json.loads(gated.invoke(given, {"tags": ["evening"]})) == given
    assert engine.sent[0]["arguments_hash"] == canonical_hash(given)

"""Approvals, and the mode `observe`, without a service."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import anyio
import httpx
import pytest

from svc_verification import (
    Admission,
    ApprovalWait,
    AsyncClient,
    Client,
    Gate,
    LostOutcome,
    PendingApproval,
    Retry,
    SvcError,
    admitted,
)
from svc_verification.transport import settle

from .engine import (
    AGENT,
    Engine,
    Kind,
    admit,
    client_of,
    deny,
    drain,
    hold,
    pending,
    proof_id,
    receipt_of,
    run,
    tool_of,
    unavailable,
)

kinds = pytest.mark.parametrize("kind", [Client, AsyncClient])


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svc_verification.admissions.APPROVAL_POLL", Retry(base_delay=0.001, max_delay=0.001))


def second(body: dict[str, Any]) -> httpx.Response:
    return httpx.Response(200, json=receipt_of(body, "ADMITTED", 77))


@kinds
def test_a_tool_runs_under_the_second_decision(kind: Kind) -> None:
    engine, waiting = Engine(hold, second=second), list[PendingApproval]()

    def on_pending(one: PendingApproval) -> None:
        waiting.append(one)
        raise LookupError("the chat is down")

    async def program() -> Any:
        gate = Gate(client_of(kind, engine), AGENT, approval=ApprovalWait(9, on_pending))
        return await settle(tool_of(gate, lambda seats: seats, action="PAY")(2))

    assert run(kind, program) == 2
    (one,) = waiting
    assert (one.action, one.proof_id, one.approval["expires_at"][:4]) == ("PAY", proof_id(1), "2999")
    assert (one.call.tool, one.call.args) == ("book", (2,))
    assert engine.shown("kind", "parent_proof_id") == [("admission", None), ("outcome", proof_id(77))]


def held(body: dict[str, Any]) -> httpx.Response:
    return pending(receipt_of(body, "APPROVAL_REQUIRED", 1))


def rejected(body: dict[str, Any]) -> httpx.Response:
    return deny(body, 77)


def about_another(body: dict[str, Any]) -> httpx.Response:
    return second(body | {"action": "PAY"})


def of_another_type(body: dict[str, Any]) -> httpx.Response:
    return second(body | {"tool": "another"})


@kinds
@pytest.mark.parametrize(
    ("wait", "answer", "code", "proof"),
    [
        (None, second, "approval_required", 1),
        (ApprovalWait(0.05), held, "approval_required", 1),
        (ApprovalWait(9), lambda _: httpx.Response(503), "approval_required", 1),
        (ApprovalWait(9), rejected, "policy_denied", 77),
        (ApprovalWait(9), about_another, "unexpected_response", 1),
        (ApprovalWait(9), of_another_type, "unexpected_response", 1),
        (
            ApprovalWait(9),
            lambda body: httpx.Response(200, json=receipt_of(body, "DENIED", 77)),
            "unexpected_response",
            1,
        ),
        (
            ApprovalWait(9),
            lambda body: httpx.Response(200, json=receipt_of(body, "ADMITTED", 1)),
            "unexpected_response",
            1,
        ),
    ],
)
def test_a_tool_does_not_run_without_a_second_decision_that_admits_it(
    kind: Kind, wait: ApprovalWait | None, answer: Callable[..., Any], code: str, proof: int
) -> None:
    engine, ran, errors = Engine(hold, second=answer), list[int](), list[SvcError]()

    async def program() -> None:
        gate = Gate(client_of(kind, engine), AGENT, approval=wait, on_not_admitted=errors.append)
        with pytest.raises(SvcError) as caught:
            await settle(tool_of(gate, ran.append)(2))
        assert (caught.value.code, caught.value.tool, caught.value.proof_id) == (code, "book", proof_id(proof))
        assert errors == [caught.value]

    run(kind, program)
    assert (ran, len(engine.sent), engine.polls > 0) == ([], 1, wait is not None)


@kinds
def test_arguments_that_change_during_the_wait_for_an_approval_are_not_admitted(kind: Kind) -> None:
    order, ran, errors = {"seats": 2}, list[Any](), list[str]()

    def approve(body: dict[str, Any]) -> httpx.Response:
        order["seats"] = 9
        return second(body)

    engine = Engine(hold, second=approve)

    async def program() -> None:
        gate = Gate(
            client_of(kind, engine),
            AGENT,
            approval=ApprovalWait(9),
            on_not_admitted=lambda one: errors.append(one.code),
        )
        with pytest.raises(SvcError, match="changed after the request"):
            await settle(tool_of(gate, ran.append)(order))

    run(kind, program)
    assert (ran, errors) == ([], ["arguments_changed"])
    assert engine.shown("result", "parent_proof_id")[1:] == [("failed", proof_id(77))]


def fail(seats: int) -> None:
    raise LookupError("no table")


def stop(seats: int) -> None:
    next(iter(()))


@kinds
@pytest.mark.parametrize(
    ("answer", "function", "code", "result"),
    [
        (admit, lambda seats: seats, None, "succeeded"),
        (admit, fail, None, "failed"),
        (deny, lambda seats: seats, "policy_denied", None),
        (hold, lambda seats: seats, "approval_required", None),
        (unavailable, fail, "unavailable", None),
        (RuntimeError("a fault"), lambda seats: seats, "network", None),
    ],
)
def test_observe_runs_every_tool_and_reports_the_decision(
    kind: Kind, answer: Any, function: Callable[..., Any], code: str | None, result: str | None
) -> None:
    engine, errors, admissions = Engine(answer), list[SvcError](), list[Admission]()

    async def program() -> None:
        gate = Gate(
            client_of(kind, engine), AGENT, mode="observe", on_not_admitted=errors.append, on_admitted=admissions.append
        )
        tool = tool_of(gate, function)
        if function is fail:
            with pytest.raises(LookupError):
                await settle(tool(2))
        else:
            assert await settle(tool(2)) == 2
        await drain(gate)

    run(kind, program)
    assert [one.code for one in errors] == ([] if code is None else [code])
    assert [one.proof_id for one in admissions] == ([proof_id(1)] if code is None else [])
    assert engine.shown("result")[1:] == ([] if result is None else [(result,)])


@kinds
def test_observe_runs_a_tool_whose_call_cannot_be_described(kind: Kind) -> None:
    engine, errors = Engine(), list[SvcError]()

    async def program() -> None:
        gate = Gate(client_of(kind, engine), AGENT, mode="observe", on_not_admitted=errors.append)
        assert await settle(tool_of(gate, lambda seats: 4)(object())) == 4
        await drain(gate)

    run(kind, program)
    assert ([one.code for one in errors], engine.sent) == (["invalid_input"], [])


@kinds
def test_observe_does_not_wait_for_the_decision_and_admits_the_arguments_before_the_tool(kind: Kind) -> None:
    has_run, order = threading.Event(), {"seats": 2}
    late = asyncio.Event()

    def answer_blocking(request: httpx.Request) -> httpx.Response:
        assert has_run.wait(9)
        return engine(request)

    async def answer(request: httpx.Request) -> httpx.Response:
        await late.wait()
        return engine(request)

    engine = Engine()

    def book(order: dict[str, int]) -> None:
        order["seats"] = 9

    async def program() -> None:
        client = client_of(kind, answer_blocking if kind is Client else answer)
        gate = Gate(client, AGENT, mode="observe", on_not_admitted=print)
        await settle(tool_of(gate, book, hashed=lambda order: order["seats"])(order))
        assert engine.sent == []
        has_run.set()
        late.set()
        await drain(gate)

    run(kind, program)
    first = Engine()

    async def again() -> None:
        gate = Gate(client_of(kind, first), AGENT)
        await settle(tool_of(gate, lambda order: None, hashed=lambda order: 2)(order))

    run(kind, again)
    assert engine.sent[0]["arguments_hash"] == first.sent[0]["arguments_hash"]
    assert engine.shown("kind") == [("admission",), ("outcome",)]


def test_observe_records_no_outcome_of_a_generator_that_has_not_run() -> None:
    engine = Engine()
    gate = Gate(client_of(Client, engine), AGENT, mode="observe", on_not_admitted=print)
    made = admitted(gate, tool="book")(lambda: (one for one in [4]))()
    gate.drain()
    assert (list(made), engine.shown("kind")) == ([4], [("admission",)])


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_a_stop_iteration_of_a_tool_reaches_the_caller(mode: Any) -> None:
    engine = Engine()
    gate = Gate(client_of(Client, engine), AGENT, mode=mode, on_not_admitted=print)
    with pytest.raises(StopIteration):
        tool_of(gate, stop)(2)
    gate.drain()
    assert engine.shown("result") == [(None,), ("failed",)]


def test_observe_starts_few_threads_and_reports_the_calls_beyond_its_limit() -> None:
    is_up, engine, errors = threading.Event(), Engine(), list[SvcError]()

    def answer(request: httpx.Request) -> httpx.Response:
        assert is_up.wait(9)
        return engine(request)

    gate = Gate(client_of(Client, answer), AGENT, mode="observe", on_not_admitted=errors.append)
    tool, threads = tool_of(gate, lambda seats: seats), threading.active_count()
    assert [tool(n) for n in range(300)] == list(range(300))
    started = threading.active_count() - threads
    is_up.set()
    gate.drain()
    assert started <= 64
    assert [(one.code, one.tool) for one in errors] == [("unavailable", "book")] * 44
    assert sorted(engine.shown("kind")) == [("admission",)] * 256 + [("outcome",)] * 256


EXITS = """
import socket
from svc_verification import Client, Gate, admitted, background

background.EXIT_SECONDS = 0.2
silent = socket.create_server(("127.0.0.1", 0), backlog=256)
url = f"http://127.0.0.1:{silent.getsockname()[1]}"
gate = Gate(Client(url, tenant_id="acme", api_key="key"), {"id": "agent-7"}, mode="observe", on_not_admitted=print)
tool = admitted(gate, tool="book")(print)
for seats in range(100):
    tool(seats)
"""


def test_a_process_does_not_wait_at_its_exit_for_an_engine_that_does_not_answer() -> None:
    ended = subprocess.run([sys.executable, "-c", EXITS], capture_output=True, timeout=20, check=True)  # noqa: S603
    message = "gate: 100 requests of the mode observe have no response at the exit of the process"
    assert ended.stderr.decode().splitlines() == [message]


def test_an_observed_outcome_whose_request_cannot_start_is_reported_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    client, lost = client_of(Client, Engine()), list[LostOutcome]()
    gate = Gate(client, AGENT, mode="observe", on_not_admitted=print, on_outcome_error=lost.append)

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    def book(seats: int) -> None:
        gate.drain()
        monkeypatch.setattr(client, "_spawn", refuse)

    tool_of(gate, book)(2)
    assert [(one.proof_id, one.envelope["result"]) for one in lost] == [(proof_id(1), "succeeded")]
    assert isinstance(lost[0].error, RuntimeError)


def test_an_observed_call_whose_request_cannot_start_is_reported_and_runs() -> None:
    client, errors = client_of(Client, Engine()), list[SvcError]()
    gate = Gate(client, AGENT, mode="observe", on_not_admitted=errors.append)
    client.close()
    assert tool_of(gate, lambda seats: seats)(2) == 2
    assert [(one.code, one.tool) for one in errors] == [("invalid_input", "book")]


def test_drain_ends_after_its_tasks_were_cancelled() -> None:
    async def program() -> None:
        gate = Gate(client_of(AsyncClient, Engine()), AGENT, mode="observe", on_not_admitted=print)
        await tool_of(gate, lambda seats: seats)(2)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        with anyio.fail_after(5):
            await gate.drain_async()

    anyio.run(program)


def test_drain_of_a_gate_with_an_async_client_is_rejected() -> None:
    gate = Gate(client_of(AsyncClient, Engine()), AGENT, mode="observe", on_not_admitted=print)
    tool = tool_of(gate, lambda seats: seats)

    async def program() -> None:
        await tool(2)
        with pytest.raises(SvcError, match="drain_async"):
            gate.drain()
        await gate.drain_async()

    anyio.run(program)


async def notify(_: object) -> None:
    pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "warn"}, "/mode"),
        ({"mode": "observe"}, "/on_not_admitted"),
        ({"approval": ApprovalWait(0)}, "/approval/wait"),
        ({"approval": ApprovalWait(float("nan"))}, "/approval/wait"),
        ({"approval": ApprovalWait(9, notify)}, "coroutine function"),
        ({"on_admitted": notify}, "coroutine function"),
    ],
)
def test_options_of_a_gate_are_checked_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SvcError, match=message) as caught:
        Gate(client_of(Client, Engine()), AGENT, **options)
    assert caught.value.code == "invalid_input"

"""The numbers of a run, without a service."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import httpx
import pytest

from svc_verification import AsyncClient, Client, Gate, LostOutcome, SvcError, agent_envelope, open_run
from svc_verification.encoding import is_proof_id
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
    problem,
    proof_id,
    run,
    tool_of,
    unavailable,
)

kinds = pytest.mark.parametrize("kind", [Client, AsyncClient])


def numbers(engine: Engine) -> list[tuple[Any, ...]]:
    return [(body["kind"], body["run"]["seq"]) for body in engine.sent]


Program = Callable[[Any, Callable[..., Any]], Any]


def play(kind: Kind, engine: Engine, program: Program, **options: Any) -> None:
    """Calls `program` with an open run and an admitted tool whose calls belong to the run."""

    async def main() -> None:
        client = client_of(kind, engine)
        opened = open_run(client, AGENT)
        gate = Gate(client, AGENT, **options)
        await program(opened, tool_of(gate, lambda seats: seats, fields=lambda seats: {"run": opened}))

    run(kind, main)


async def not_admitted(call: Any) -> str:
    with pytest.raises(SvcError) as caught:
        await settle(call())
    return caught.value.code


@kinds
def test_a_run_numbers_admissions_and_outcomes_and_its_close(kind: Kind) -> None:
    engine = Engine()

    async def program(opened: Any, tool: Callable[..., Any]) -> None:
        assert is_proof_id(opened.id)
        for seats in (1, 2):
            await settle(tool(seats))
        await settle(opened.send(agent_envelope("acme", "admission", {"agent": AGENT, "action": "BOOK"})))
        assert (await settle(opened.close()))["status"] == "ADMITTED"
        assert await not_admitted(lambda: tool(3)) == "invalid_input"
        assert {body["run"]["id"] for body in engine.sent} == {opened.id}

    play(kind, engine, program)
    names = ["admission", "outcome", "admission", "outcome", "admission", "close"]
    assert numbers(engine) == list(zip(names, range(6), strict=True))


@kinds
def test_a_decision_uses_its_number_and_a_rejected_request_does_not(kind: Kind) -> None:
    engine = Engine(deny, hold, problem(422, "invalid_facts"))

    async def program(opened: Any, tool: Callable[..., Any]) -> None:
        codes = [await not_admitted(lambda: tool(1)) for _ in range(3)]
        assert codes == ["policy_denied", "approval_required", "invalid_request"]
        await settle(tool(1))
        await settle(opened.close())

    play(kind, engine, program)
    assert [seq for _, seq in numbers(engine)] == [0, 1, 2, 2, 3, 4]


@kinds
def test_a_number_that_another_process_used_is_not_used_again(kind: Kind) -> None:
    engine = Engine(problem(409, "run_seq_taken"))

    async def program(opened: Any, tool: Callable[..., Any]) -> None:
        assert await not_admitted(lambda: tool(1)) == "invalid_request"
        await settle(tool(1))

    play(kind, engine, program)
    assert [seq for _, seq in numbers(engine)] == [0, 1, 2]


@kinds
def test_the_close_repeats_an_undecided_request_and_records_a_failed_outcome(kind: Kind) -> None:
    engine = Engine(unavailable)

    async def program(opened: Any, tool: Callable[..., Any]) -> None:
        assert await not_admitted(lambda: tool(1)) == "unavailable"
        await settle(opened.close())

    play(kind, engine, program)
    assert numbers(engine) == [("admission", 0), ("admission", 0), ("outcome", 1), ("close", 2)]
    assert engine.sent[0] == engine.sent[1]
    assert engine.shown("result", "parent_proof_id")[2] == ("failed", proof_id(2))


@kinds
@pytest.mark.parametrize(
    ("status", "code"), [(422, "parent_not_found"), (500, "admission_failed"), (403, "key_restricted")]
)
def test_a_run_can_be_closed_although_the_repeated_request_is_rejected(kind: Kind, status: int, code: str) -> None:
    engine = Engine(unavailable, problem(status, code))

    async def program(opened: Any, tool: Callable[..., Any]) -> None:
        assert await not_admitted(lambda: tool(1)) == "unavailable"
        await settle(opened.close())

    play(kind, engine, program)
    assert numbers(engine) == [("admission", 0), ("admission", 0), ("close", 0)]


@kinds
def test_the_close_does_not_claim_that_an_observed_tool_failed(kind: Kind) -> None:
    engine = Engine(unavailable)

    async def main() -> None:
        client = client_of(kind, engine)
        opened = open_run(client, AGENT)
        gate = Gate(client, AGENT, mode="observe", on_not_admitted=print)
        await settle(tool_of(gate, lambda: 4, fields=lambda: {"run": opened})())
        await drain(gate)
        await settle(opened.close())

    run(kind, main)
    assert numbers(engine) == [("admission", 0), ("admission", 0), ("close", 1)]


@kinds
def test_a_run_can_be_closed_after_its_close_has_failed(kind: Kind) -> None:
    lost = list[LostOutcome]()
    engine = Engine(admit, unavailable, unavailable)

    async def program(opened: Any, tool: Callable[..., Any]) -> None:
        await settle(tool(1))
        assert await not_admitted(opened.close) == "unavailable"
        await settle(tool(2))
        await settle(opened.close())

    play(kind, engine, program, on_outcome_error=lost.append)
    assert [one.envelope["run"]["seq"] for one in lost] == [1]
    expected = [("admission", 0), ("outcome", 1), ("outcome", 1), ("admission", 2), ("outcome", 3)]
    assert numbers(engine) == [*expected, ("outcome", 1), ("close", 4)]


@kinds
def test_a_repeated_close_sends_the_envelope_whose_response_was_lost(kind: Kind) -> None:
    engine = Engine(unavailable, admit, admit, unavailable, problem(409, "run_incomplete"))

    async def program(opened: Any, tool: Callable[..., Any]) -> None:
        assert await not_admitted(opened.close) == "unavailable"
        await settle(tool(1))
        for code in ("unavailable", "not_ready"):
            assert await not_admitted(opened.close) == code
        await settle(opened.close())

    play(kind, engine, program)
    assert [seq for _, seq in numbers(engine)] == [0, 0, 1, 2, 2, 2]
    other, *_, lost, rejected, last = engine.sent
    assert lost == rejected
    assert lost["nonce"] not in (other["nonce"], last["nonce"])


def test_a_second_close_of_a_run_is_rejected_while_the_first_runs() -> None:
    engine = Engine(unavailable)

    async def answer(request: httpx.Request) -> httpx.Response:
        await anyio.sleep(0.01)
        return engine(request)

    async def main() -> None:
        client = client_of(AsyncClient, answer)
        opened = open_run(client, AGENT)
        tool = tool_of(Gate(client, AGENT), lambda seats: seats, fields=lambda seats: {"run": opened})
        assert await not_admitted(lambda: tool(1)) == "unavailable"
        first, second = await asyncio.gather(opened.close(), opened.close(), return_exceptions=True)
        assert isinstance(first, dict)
        assert isinstance(second, SvcError)
        assert (first["status"], second.code) == ("ADMITTED", "invalid_input")

    anyio.run(main)
    assert numbers(engine) == [("admission", 0), ("admission", 0), ("outcome", 1), ("close", 2)]


@kinds
def test_the_close_uses_the_number_of_a_rejected_last_request(kind: Kind) -> None:
    engine = Engine(problem(422, "invalid_facts"))

    async def program(opened: Any, tool: Callable[..., Any]) -> None:
        assert await not_admitted(lambda: tool(1)) == "invalid_request"
        await settle(opened.close())

    play(kind, engine, program)
    assert numbers(engine) == [("admission", 0), ("close", 0)]


@kinds
@pytest.mark.parametrize("other", [{"agent": {"id": "agent-8"}}, {"tenant_id": "other"}])
def test_a_run_of_another_agent_or_tenant_is_rejected_before_a_request(kind: Kind, other: dict[str, Any]) -> None:
    engine = Engine()

    async def program() -> None:
        client = client_of(kind, engine)
        agent = other.get("agent", AGENT)
        owner = client_of(kind, engine)
        owner._tenant_id = other.get("tenant_id", "acme")
        opened = open_run(owner, agent)
        gate = Gate(client, AGENT)
        tool = tool_of(gate, lambda seats: seats, fields=lambda seats: {"run": opened})
        with pytest.raises(SvcError, match=r"/run: run .* belongs to agent") as caught:
            await settle(tool(1))
        assert (caught.value.code, caught.value.tool) == ("invalid_input", "book")

    run(kind, program)
    assert engine.sent == []


def test_threads_share_a_run() -> None:
    engine = Engine()
    client = client_of(Client, engine)
    opened = open_run(client, AGENT, {"id": proof_id(5), "seq": 10})
    tool = tool_of(Gate(client, AGENT), lambda seats: seats, fields=lambda seats: {"run": opened})
    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(tool, range(40))) == list(range(40))
    opened.close()
    assert sorted(body["run"]["seq"] for body in engine.sent) == list(range(10, 91))
    assert (engine.sent[-1]["kind"], engine.sent[-1]["run"]) == ("close", {"id": proof_id(5), "seq": 90})

"""Function tools of OpenAI Agents, run by its own runner with a scripted model."""

from copy import copy
from typing import Any

import anyio
import pytest

pytest.importorskip("agents")
from agents import Agent, FunctionTool, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from svc_verification import AsyncClient, Client, Gate, SvcError, canonical_hash
from svc_verification.openai_agents import admit_tool

from .engine import AGENT, Engine, client_of, deny, hold

set_tracing_disabled(True)


class Scripted(Model):
    """A model that calls `book` with these arguments in its first turn, then ends. Keeps the inputs of its turns."""

    def __init__(self, arguments: str) -> None:
        call = ResponseFunctionToolCall(call_id="call-1", name="book", type="function_call", arguments=arguments)
        text = ResponseOutputText(annotations=[], text="done", type="output_text")
        end = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        self.outputs: list[Any] = [call, end]
        self.inputs = list[Any]()

    async def get_response(self, *_: Any, **named: Any) -> ModelResponse:
        self.inputs.append(named["input"])
        return ModelResponse(output=[self.outputs.pop(0)], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


class World:
    def __init__(self, *answers: Any, **options: Any) -> None:
        self.engine, self.ran, self.options = Engine(*answers), list[Any](), options

    def tool(self) -> FunctionTool:
        @function_tool
        async def book(seats: int, guest: str = "Ada") -> str:
            """Books a table."""
            self.ran.append((seats, guest))
            return f"{seats} for {guest}"

        return book

    def play(self, arguments: str) -> str:
        """Returns the result of the call, as the model reads it."""

        async def program() -> str:
            gated = admit_tool(self.tool(), Gate(client_of(AsyncClient, self.engine), AGENT), **self.options)
            model = Scripted(arguments)
            # The runner and users may copy tools.
            agent = Agent(name="host", model=model, tools=[copy(gated)])
            result = await Runner.run(agent, "Book a table.")
            assert result.final_output == "done"
            return str(model.inputs[1][-1]["output"])

        return anyio.run(program)


def test_a_function_tool_is_admitted_with_the_arguments_of_the_model() -> None:
    world = World()
    assert world.play('{"seats": 2}') == "2 for Ada"
    admission, outcome = world.engine.sent
    assert admission["agent"] == {"id": "agent-7", "framework": "openai-agents"}
    assert (admission["tool"], admission["action"], admission["tool_call_id"]) == ("book", "BOOK", "call-1")
    assert admission["arguments_hash"] == canonical_hash({"seats": 2})
    assert (outcome["result"], outcome["result_hash"]) == ("succeeded", canonical_hash("2 for Ada"))


@pytest.mark.parametrize(
    ("answer", "arguments", "reason"),
    [
        (deny, '{"seats": 2}', "book did not run: denied by policy"),
        (hold, '{"seats": 2}', "requires an approval"),
        (RuntimeError("a fault"), '{"seats": 2}', "book did not run: not admitted"),
        (None, '{"seats": 2, "seats": 9}', "duplicate_key"),
        (None, '{"seats": ', "malformed_json"),
    ],
)
def test_a_function_tool_without_an_admission_does_not_run_and_the_model_reads_the_reason(
    answer: Any, arguments: str, reason: str
) -> None:
    # With the option `hashed`, text that is not an object of arguments must not get the hash of other arguments.
    for options in ({}, {"hashed": lambda **_: "any"}):
        world = World(*([] if answer is None else [answer]), **options)
        assert reason in world.play(arguments)
        assert (world.ran, len(world.engine.sent)) == ([], 0 if answer is None else 1)


def test_options_get_the_arguments_by_name() -> None:
    world = World(hashed=lambda seats: [seats], facts=lambda seats: {"seats": seats}, action="RESERVE")
    world.play('{"seats": 2}')
    assert world.engine.sent[0]["arguments_hash"] == canonical_hash([2])
    assert (world.engine.sent[0]["facts"], world.engine.sent[0]["action"]) == ({"seats": 2}, "RESERVE")


def test_an_error_of_a_tool_without_a_failure_function_is_raised_and_is_a_failed_outcome() -> None:
    engine = Engine()

    async def refuse(*_: Any) -> str:
        raise SvcError("policy_denied", "another tool")

    async def program() -> None:
        tool = FunctionTool("book", "Books.", {"type": "object", "properties": {}}, refuse, strict_json_schema=False)
        gated = admit_tool(tool, Gate(client_of(AsyncClient, engine), AGENT))
        with pytest.raises(Exception, match="another tool"):
            await Runner.run(Agent(name="host", model=Scripted(""), tools=[gated]), "Book a table.")

    anyio.run(program)
    assert engine.shown("result") == [(None,), ("failed",)]


def test_a_blocking_client_and_tools_that_are_not_functions_are_rejected_at_once() -> None:
    world = World()
    other: Any = object()
    for tool, kind in ((world.tool(), Client), (other, AsyncClient)):
        with pytest.raises(SvcError, match="expected a FunctionTool"):
            admit_tool(tool, Gate(client_of(kind, world.engine), AGENT))

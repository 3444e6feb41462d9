"""Admits the calls of function tools of OpenAI Agents. Needs the extra `openai-agents`."""

from __future__ import annotations

import contextlib
from copy import copy
from typing import Any, Unpack

from agents import FunctionTool
from agents.tool_context import ToolContext

from .client import AsyncClient
from .encoding import parse_json
from .errors import InvalidError, SvcError
from .gate import Gate
from .options import ToolCall, ToolOptions


def admit_tool(tool: FunctionTool, gate: Gate, **options: Unpack[ToolOptions]) -> FunctionTool:
    """Copies a function tool so that every call is admitted first. Give the agent the copy, not the original.

    The gate needs an `AsyncClient`. The hash covers the arguments as the model sent them; the options are those of
    `admitted`, and get these arguments by name. The model reads the reason of a rejected call as the tool's result. If
    the `failure_error_function` of the tool turns an error into a text, the outcome is `succeeded`.
    """
    if not isinstance(tool, FunctionTool) or not isinstance(gate.client, AsyncClient):
        raise SvcError("invalid_input", "expected a FunctionTool of openai-agents, and a gate with an AsyncClient")
    gated = copy(tool)
    invoke = gated.on_invoke_tool

    async def on_invoke_tool(context: ToolContext[Any], text: str) -> Any:
        named, chosen, has_run = {}, ToolOptions(action=options.get("action")), False
        # `hashed`, `facts` and `fields` get the arguments by name, so they are used only if the text is a JSON object.
        # Otherwise the gate or the tool rejects the call.
        with contextlib.suppress(InvalidError):
            given = parse_json(text or "{}")
            if isinstance(given, dict):
                named, chosen = given, options
        call = ToolCall(
            tool.name, chosen, lambda: parse_json(text or "{}"), (), named, "openai-agents", context.tool_call_id
        )

        async def run() -> Any:
            nonlocal has_run
            has_run = True
            return await invoke(context, text)

        try:
            return await gate.run_async(call, run)
        except SvcError as error:
            # The tool itself may call a second admitted tool and raise the error of that call.
            if has_run or error.code == "aborted":
                raise
            return str(error)

    gated.on_invoke_tool = on_invoke_tool
    return gated

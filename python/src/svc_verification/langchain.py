"""Admits the calls of LangChain tools. Needs the extra `langchain`."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, Unpack, get_type_hints

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from pydantic import BaseModel, ValidationError

from .errors import SvcError
from .gate import Gate
from .options import ToolCall, ToolOptions

ToolT = TypeVar("ToolT", bound=BaseTool)
# The id that the model gave to the running call: LangChain passes it to `run` and `arun` only.
_call_id: ContextVar[str | None] = ContextVar("svc_verification_call_id", default=None)


def admit_tool(tool: ToolT, gate: Gate, **options: Unpack[ToolOptions]) -> ToolT:
    """Copies a tool so that every call is admitted first. Give the agent the copy, not the original.

    The hash covers the arguments that the tool's schema returns. A call without an admission raises `SvcError`, like
    a tool that fails. The options are those of `admitted`. A tool without a coroutine needs a gate with a `Client`,
    also for `ainvoke`; a tool with a coroutine needs a gate with an `AsyncClient` for `ainvoke`.
    """
    if not isinstance(tool, BaseTool):
        raise SvcError("invalid_input", "expected a BaseTool of langchain-core")

    def call_of(method: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> ToolCall:
        added = _added(method)
        named = {name: value for name, value in given.items() if name not in added}

        def arguments() -> object:
            return _plain(args[0] if args and not named else {**named, **({"args": args} if args else {})})

        return ToolCall(tool.name, options, arguments, args, named, "langchain", _call_id.get())

    @wraps(tool._run)
    def run(*args: Any, **named: Any) -> Any:
        return gate.run(call_of(tool._run, args, named), lambda: tool._run(*args, **named))

    @wraps(tool._arun)
    async def run_async(*args: Any, **named: Any) -> Any:
        return await gate.run_async(call_of(tool._arun, args, named), lambda: tool._arun(*args, **named))

    copy = tool.model_copy()
    invoke, invoke_async = copy.run, copy.arun

    @wraps(invoke)
    def invoke_with_id(*args: Any, **named: Any) -> Any:
        token = _call_id.set(named.get("tool_call_id"))
        try:
            return invoke(*args, **named)
        finally:
            _call_id.reset(token)

    @wraps(invoke_async)
    async def invoke_async_with_id(*args: Any, **named: Any) -> Any:
        token = _call_id.set(named.get("tool_call_id"))
        try:
            return await invoke_async(*args, **named)
        finally:
            _call_id.reset(token)

    # Bypasses pydantic, because these methods are not fields of the model.
    for name, method in (("_run", run), ("run", invoke_with_id), ("arun", invoke_async_with_id)):
        object.__setattr__(copy, name, method)
    # The default `_arun` calls `_run` of the copy in a thread.
    if type(tool)._arun is not BaseTool._arun:
        object.__setattr__(copy, "_arun", run_async)
    return copy


def _added(method: Callable[..., Any]) -> set[str]:
    """The parameters that LangChain sets itself. The model can set all others, also one that is named `config`."""
    try:
        hints = get_type_hints(method)
    except Exception:
        # LangChain ignores unreadable annotations too, and then passes no configuration.
        hints = {}
    config = [name for name, hint in hints.items() if hint is RunnableConfig][:1]
    return {*config, *({"run_manager"} & signature(method).parameters.keys())}


def _plain(value: Any) -> Any:
    """Converts the pydantic models in arguments to JSON."""
    if isinstance(value, BaseModel):
        # A model whose JSON lacks data stays a model, so that hashing the arguments fails.
        return value.model_dump(mode="json") if _is_complete(value) else value
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _is_complete(model: BaseModel) -> bool:
    """Whether the JSON of a model has all data of the model. The JSON lacks secrets and excluded fields."""
    try:
        return bool(type(model).model_validate_json(model.model_dump_json(by_alias=True)) == model)
    except ValidationError:
        return False

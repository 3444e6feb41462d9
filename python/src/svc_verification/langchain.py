"""Admits the calls of LangChain tools. Needs the extra `langchain`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

    kind: Any = _without_del(type(tool))

    def call_of(name: str, method: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> ToolCall:
        added = _added(method)
        named = {key: value for key, value in given.items() if key not in added}

        def arguments() -> object:
            return _plain(args[0] if args and not named else {**named, **({"args": args} if args else {})})

        return ToolCall(name, options, arguments, args, named, "langchain", _call_id.get())

    class Admitted(kind):  # type: ignore[misc]
        """A class of its own, so that copies of the copy, and copies for another gate, keep this gate."""

        # Properties, because they take precedence over methods that were set on the tool itself.
        @property
        def _run(self) -> Callable[..., Any]:
            inner = _as(kind, self)._run

            @wraps(inner)
            def run(*args: Any, **named: Any) -> Any:
                return gate.run(call_of(self.name, inner, args, named), lambda: inner(*args, **named))

            return run

        # The default `_arun` calls `_run` of the copy in a thread.
        if kind._arun is not BaseTool._arun or "_arun" in vars(tool):

            @property
            def _arun(self) -> Callable[..., Any]:
                inner = _as(kind, self)._arun

                @wraps(inner)
                async def run(*args: Any, **named: Any) -> Any:
                    return await gate.run_async(call_of(self.name, inner, args, named), lambda: inner(*args, **named))

                return run

        def __del__(self, _original: BaseTool = tool) -> None:
            """Keeps the original as long as its copies, whose resources its `__del__` may close."""

        @wraps(kind.run)
        def run(self, *args: Any, **named: Any) -> Any:
            with _calling(named.get("tool_call_id")):
                return super().run(*args, **named)

        @wraps(kind.arun)
        async def arun(self, *args: Any, **named: Any) -> Any:
            with _calling(named.get("tool_call_id")):
                return await super().arun(*args, **named)

    # The tool's class may make its copy of another class.
    admitted: ToolT = _as(Admitted, _as(Admitted, tool).model_copy())
    return admitted


def _without_del(kind: type) -> Any:
    """The class for the copies, which share the resources of the original."""
    if not hasattr(kind, "__del__"):
        return kind
    return type(kind)(kind.__name__, (kind,), {"__module__": kind.__module__, "__del__": lambda _: None})


def _as(kind: type, tool: BaseTool) -> Any:
    """The tool as an object of another class, with the same state."""
    other: Any = object.__new__(kind)
    for name in BaseModel.__slots__:
        object.__setattr__(other, name, getattr(tool, name))
    return other


@contextmanager
def _calling(call_id: str | None) -> Iterator[None]:
    token = _call_id.set(call_id)
    try:
        yield
    finally:
        _call_id.reset(token)


def _added(method: Callable[..., Any]) -> set[str]:
    """The parameters that LangChain sets itself. The model can set all others, also one that is named `config`."""
    try:
        hints = get_type_hints(method)
    except Exception:
        # Ignores unreadable annotations, as LangChain does, which then passes no configuration.
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

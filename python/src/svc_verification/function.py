"""Admits the calls of functions."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, Unpack, cast

from .client import AsyncClient
from .errors import SvcError
from .gate import Gate
from .options import ToolCall, ToolOptions

P = ParamSpec("P")
R = TypeVar("R")


def admitted(
    gate: Gate, *, tool: str | None = None, **options: Unpack[ToolOptions]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function, or a coroutine function, so that every call is admitted before it runs.

    `tool` is the tool's name in the proof, by default the name of the function. The hash covers the arguments by name,
    with the default values. `ToolOptions` describes the other options.

    A coroutine function needs a gate with an `AsyncClient`, any other function one with a `Client`. Raises `SvcError`
    (`invalid_input`) otherwise, and for a generator function, whose body runs only after the call has returned.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name = tool if tool is not None else getattr(function, "__name__", "")
        # The `__call__` of a callable object may be a coroutine or generator function.
        called = [function, getattr(function, "__call__", function)]  # noqa: B004
        if any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in called):
            raise SvcError("invalid_input", f"{name} is a generator function: decorate its caller")
        is_coroutine = any(map(inspect.iscoroutinefunction, called))
        if is_coroutine != isinstance(gate.client, AsyncClient):
            raise SvcError("invalid_input", f"{name}: a coroutine function needs an AsyncClient, others a Client")
        # Without `hashed`, the names of the arguments are those of the innermost wrapped function. With `hashed`, they
        # are those of the function itself, because a wrapper's arguments may differ from those of the wrapped function.
        signature = inspect.signature(function, follow_wrapped=options.get("hashed") is None)

        def call_of(*args: P.args, **named: P.kwargs) -> ToolCall:
            # Raises the `TypeError` of a call with wrong arguments, before the admission.
            bound = signature.bind(*args, **named)
            bound.apply_defaults()
            return ToolCall(name, options, lambda: dict(bound.arguments), args, named)

        if is_coroutine:

            @wraps(function)
            async def run_async(*args: P.args, **named: P.kwargs) -> Any:
                return await gate.run_async(
                    call_of(*args, **named), lambda: cast(Awaitable[Any], function(*args, **named))
                )

            return cast(Callable[P, R], run_async)

        @wraps(function)
        def run(*args: P.args, **named: P.kwargs) -> R:
            return gate.run(call_of(*args, **named), lambda: function(*args, **named))

        return run

    return decorate

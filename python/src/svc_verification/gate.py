"""Admits every call of a tool before it runs, and records its outcome afterwards.

Arguments, results and errors stay in the process; requests contain only their hashes.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import anyio

from .admissions import agent_envelope
from .client import AsyncClient, Client
from .errors import SvcError
from .hashing import action_of, plain_hash, result_hash
from .models import Agent, Facts, Receipt, ToolFields

P = ParamSpec("P")
R = TypeVar("R")
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LostOutcome:
    """An outcome that could not be recorded. `client.submit(envelope)` records it once, however often it is sent."""

    tool: str
    proof_id: str
    error: BaseException
    envelope: dict[str, Any]


def log_lost(lost: LostOutcome) -> None:
    logger.error("gate: the outcome of %s was not recorded", lost.proof_id, exc_info=lost.error)


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool. `arguments` and `facts` are read for the admission, and again before the tool runs."""

    tool: str
    arguments: Callable[[], object]
    action: str | None = None
    framework: str | None = None
    facts: Callable[[], Facts | None] = lambda: None
    fields: Callable[[], ToolFields] = ToolFields

    def bound(self) -> dict[str, Any]:
        """The hash of the arguments, and the facts: both must stay equal during the admission."""
        facts = self.facts()
        return {"arguments_hash": plain_hash(self.arguments())} | ({} if facts is None else {"facts": dict(facts)})


# Prefixes of error messages, by code.
REASONS = {"approval_required": "", "arguments_changed": "", "policy_denied": "denied by policy: "}


def not_admitted(error: SvcError, tool: str, action: str | None, prefix: str = "not admitted: ") -> SvcError:
    """The error of a call that did not run, with the details of its reason. `prefix`: for codes not in REASONS."""
    proof = f" (proof {error.proof_id})" if error.proof_id else ""
    message = f"{tool} did not run: {REASONS.get(error.code, prefix)}{error}{proof}"
    return replace(error, message=message, tool=tool, action=action)


def require_complete(value: object, tool: str) -> None:
    """Rejects a coroutine or a generator, whose body has not run, for example of a wrapped coroutine function."""
    if inspect.iscoroutine(value) or inspect.isgenerator(value):
        value.close()
    elif not inspect.isasyncgen(value):
        return
    raise TypeError(
        f"{tool} returned a {type(value).__name__}, whose body has not run: decorate a function that runs it"
    )


@dataclass(frozen=True)
class _Planned:
    call: ToolCall
    envelope: dict[str, Any]
    fingerprint: str

    def not_admitted(self, error: Exception) -> SvcError:
        if not isinstance(error, SvcError):
            error = SvcError("network", f"its admission failed: {error}")
        return not_admitted(error, self.call.tool, self.envelope["action"])

    def require_unchanged(self, receipt: Receipt) -> None:
        try:
            is_unchanged = plain_hash(self.call.bound()) == self.fingerprint
        except Exception:
            is_unchanged = False
        if not is_unchanged:
            message, proof_id = "its arguments or facts changed after the request", receipt["registry_proof_id"]
            raise self.not_admitted(SvcError("arguments_changed", message, proof_id=proof_id))


class Gate:
    """A client and the agent whose calls it admits.

    `outcome_timeout` limits the recording of an outcome, in seconds. `on_outcome_error` gets every outcome that could
    not be recorded; by default it is logged. The caller of the tool gets its result regardless.
    """

    def __init__(
        self,
        client: Client | AsyncClient,
        agent: Agent,
        *,
        parent_proof_id: str | None = None,
        outcome_timeout: float = 10.0,
        on_outcome_error: Callable[[LostOutcome], object] = log_lost,
    ) -> None:
        self.client, self.agent, self.on_outcome_error = client, agent, on_outcome_error
        self.parent = {} if parent_proof_id is None else {"parent_proof_id": parent_proof_id}
        self.recorder = client.with_timeout(outcome_timeout)
        # Rejects invalid options when a tool is wrapped, not when it is called.
        client.require_engine()
        agent_envelope(client.tenant_id, "admission", {"agent": agent, "action": "ANY", **self.parent})

    def run(self, call: ToolCall, function: Callable[[], R]) -> R:
        """Runs the function only after an `ADMITTED` receipt for this call. Raises `SvcError` with its `tool`."""
        client, recorder = self.client, self.recorder
        if not isinstance(client, Client) or not isinstance(recorder, Client):
            raise not_admitted(SvcError("invalid_input", "a blocking tool needs a Client"), call.tool, call.action)
        planned = self._plan(call)
        try:
            receipt = client.submit(planned.envelope)
        except Exception as error:
            raise planned.not_admitted(error) from error

        def record(result: str, hash_: str | None = None) -> None:
            envelope = self._outcome(planned, receipt, result, hash_)
            try:
                recorder.submit(envelope)
            except BaseException as error:
                self._report(planned, receipt, error, envelope)
                if not isinstance(error, Exception):
                    raise

        try:
            planned.require_unchanged(receipt)
            value = function()
            require_complete(value, call.tool)
        except BaseException:
            record("failed")
            raise
        record("succeeded", result_hash(value))
        return value

    async def run_async(self, call: ToolCall, function: Callable[[], Awaitable[R]]) -> R:
        """`run` for a coroutine function."""
        client, recorder = self.client, self.recorder
        if not isinstance(client, AsyncClient) or not isinstance(recorder, AsyncClient):
            raise not_admitted(
                SvcError("invalid_input", "a coroutine tool needs an AsyncClient"), call.tool, call.action
            )
        planned = self._plan(call)
        try:
            receipt = await client.submit(planned.envelope)
        except Exception as error:
            raise planned.not_admitted(error) from error

        async def record(result: str, hash_: str | None = None) -> None:
            envelope = self._outcome(planned, receipt, result, hash_)
            try:
                # A cancelled tool did run: its outcome is recorded regardless.
                with anyio.CancelScope(shield=True):
                    await recorder.submit(envelope)
            except BaseException as error:
                self._report(planned, receipt, error, envelope)
                # The scope does not protect against `asyncio.Task.cancel`.
                if not isinstance(error, Exception):
                    raise

        try:
            planned.require_unchanged(receipt)
            value = await function()
            require_complete(value, call.tool)
        except BaseException:
            await record("failed")
            raise
        await record("succeeded", result_hash(value))
        return value

    def _agent_of(self, call: ToolCall) -> dict[str, Any]:
        framework = {} if call.framework is None else {"framework": call.framework}
        return {**framework, **self.agent}

    def _plan(self, call: ToolCall) -> _Planned:
        try:
            bound = call.bound()
            fields = {
                "agent": self._agent_of(call),
                "action": action_of(call.tool) if call.action is None else call.action,
                "tool": call.tool,
                **self.parent,
                **call.fields(),
                **bound,
            }
            envelope = agent_envelope(self.client.tenant_id, "admission", fields)
            return _Planned(call, envelope, plain_hash(bound))
        except Exception as error:
            # `hashed`, `facts` and `fields` may raise any error.
            known = error if isinstance(error, SvcError) else SvcError("invalid_input", str(error))
            raise not_admitted(known, call.tool, call.action, "the call cannot be described in a proof: ") from error

    def _outcome(self, planned: _Planned, receipt: Receipt, result: str, hash_: str | None) -> dict[str, Any]:
        fields = {"agent": self._agent_of(planned.call), "parent_proof_id": receipt["registry_proof_id"]}
        fields |= {"result": result} | ({} if hash_ is None else {"result_hash": hash_})
        return agent_envelope(self.client.tenant_id, "outcome", fields)

    def _report(self, planned: _Planned, receipt: Receipt, error: BaseException, envelope: dict[str, Any]) -> None:
        lost = LostOutcome(planned.call.tool, receipt["registry_proof_id"], error, envelope)
        # An error of the callback must not replace the result of the tool.
        with contextlib.suppress(Exception):
            self.on_outcome_error(lost)


def admitted(
    gate: Gate,
    *,
    tool: str | None = None,
    action: str | None = None,
    hashed: Callable[..., object] | None = None,
    facts: Callable[..., Facts] | None = None,
    fields: Callable[..., ToolFields] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function, or a coroutine function, so that every call is admitted before it runs.

    `tool` is the tool's name in the proof, by default the name of the function; `action` is by default
    `action_of(tool)`. The hash covers the arguments by name, with the default values. If some arguments are not plain
    JSON, `hashed` gets the arguments and returns the value to hash instead. `facts` returns the facts of a call. A
    call does not run if its facts or the hashed value change during the admission. `fields` returns further members
    of the envelope.

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
        # The names of the arguments are those of a wrapped function. With `hashed`, a wrapper may take other arguments.
        signature = inspect.signature(function, follow_wrapped=hashed is None)

        def call_of(*args: P.args, **named: P.kwargs) -> ToolCall:
            # Raises the `TypeError` of a call with wrong arguments, before the admission.
            bound = signature.bind(*args, **named)
            bound.apply_defaults()

            def arguments() -> object:
                return dict(bound.arguments) if hashed is None else hashed(*args, **named)

            return ToolCall(
                name,
                arguments,
                action,
                facts=lambda: None if facts is None else facts(*args, **named),
                fields=lambda: ToolFields() if fields is None else fields(*args, **named),
            )

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

"""Admits every call of a tool before it runs, and records its outcome afterwards.

Arguments, results and errors stay in the process. Requests contain hashes of arguments and results, and chosen facts.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Literal, TypeVar, cast

import anyio

from .admissions import agent_envelope
from .client import AsyncClient, Client
from .errors import SvcError
from .hashing import action_of, plain_hash, result_hash
from .models import Agent, Receipt
from .options import Admission, ApprovalWait, LostOutcome, PendingApproval, ToolCall
from .process import PerProcess
from .run import AgentRun
from .transport import run_blocking, settle

R = TypeVar("R")
T = TypeVar("T")
Result = tuple[Literal["succeeded", "failed"], str | None]
logger = logging.getLogger(__name__)


def log_lost(lost: LostOutcome) -> None:
    logger.error("gate: the outcome of %s was not recorded", lost.proof_id, exc_info=lost.error)


# Prefixes of error messages, by code.
REASONS = {"approval_required": "", "arguments_changed": "", "policy_denied": "denied by policy: "}
LAZY = (CoroutineType, GeneratorType, AsyncGeneratorType)
# Limit of requests of the mode `observe` that wait or run: without it, they would pile up while the engine is down.
MAX_BACKGROUND = 256


def not_admitted(error: SvcError, tool: str, action: str | None, prefix: str = "not admitted: ") -> SvcError:
    """The error of a call that did not run, with the details of its reason. `prefix`: for codes not in REASONS."""
    proof = f" (proof {error.proof_id})" if error.proof_id else ""
    message = f"{tool} did not run: {REASONS.get(error.code, prefix)}{error}{proof}"
    return replace(error, message=message, tool=tool, action=action)


def _require_complete(value: object, tool: str) -> None:
    """Rejects a coroutine or a generator, for example from a wrapped coroutine function: its body has not run."""
    if not isinstance(value, LAZY):
        return
    if not isinstance(value, AsyncGeneratorType):
        value.close()
    raise TypeError(
        f"{tool} returned a {type(value).__name__}, whose body has not run: decorate a function that runs it"
    )


def _notify(callback: Callable[[T], object] | None, value: T) -> None:
    """Calls a callback. Its errors must not replace the result of the tool."""
    with contextlib.suppress(Exception):
        if callback is not None:
            callback(value)


async def _shielded(work: Awaitable[object]) -> None:
    """Completes the record of an outcome even if the call is cancelled, because the tool did run."""
    with anyio.CancelScope(shield=True):
        await work


@dataclass(frozen=True)
class _Planned:
    call: ToolCall
    # The envelope without its number in the run.
    envelope: dict[str, Any]
    fingerprint: str
    run: AgentRun[Any] | None

    def not_admitted(self, error: Exception) -> SvcError:
        if not isinstance(error, SvcError):
            error = SvcError("network", f"its admission failed: {error}")
        return not_admitted(error, self.call.tool, self.envelope["action"])

    def is_unchanged(self) -> bool:
        try:
            return plain_hash(self.call.bound()) == self.fingerprint
        except Exception:
            return False

    async def send(
        self, envelope: dict[str, Any], send: Callable[[dict[str, Any]], Any], *, is_observed: bool = False
    ) -> Receipt:
        if self.run is not None:
            return await self.run.number(envelope, send, is_observed=is_observed)
        return cast(Receipt, await settle(send(envelope)))


class Gate:
    """A client and the agent whose calls it admits.

    `on_not_admitted` gets the error of each call that is not admitted. In the mode `observe` every tool runs at once,
    even without an admission, and changed arguments are not detected. With `approval`, a call waits for a required
    approval. `on_admitted` gets every admission. `outcome_timeout` limits the recording of an outcome, in seconds.
    `on_outcome_error` gets every outcome that could not be recorded; by default it is logged. The caller of the tool
    gets its result regardless. Callbacks are plain functions, whose errors are ignored.
    """

    def __init__(
        self,
        client: Client | AsyncClient,
        agent: Agent,
        *,
        mode: Literal["enforce", "observe"] = "enforce",
        parent_proof_id: str | None = None,
        approval: ApprovalWait | None = None,
        outcome_timeout: float = 10.0,
        on_admitted: Callable[[Admission], object] | None = None,
        on_not_admitted: Callable[[SvcError], object] | None = None,
        on_outcome_error: Callable[[LostOutcome], object] = log_lost,
    ) -> None:
        self.client, self.agent, self.mode, self.approval = client, agent, mode, approval
        self.on_admitted, self.on_not_admitted, self.on_outcome_error = on_admitted, on_not_admitted, on_outcome_error
        self.parent = {} if parent_proof_id is None else {"parent_proof_id": parent_proof_id}
        self.recorder = client.with_timeout(outcome_timeout)
        self._requests = PerProcess(set[object])
        # Rejects invalid options when a tool is wrapped, not when it is called.
        client.require_engine()
        agent_envelope(client.tenant_id, "admission", {"agent": agent, "action": "ANY", **self.parent})
        callbacks = on_admitted, on_not_admitted, on_outcome_error, approval and approval.on_pending
        for is_valid, message in (
            (mode in ("enforce", "observe"), "/mode: must be enforce or observe"),
            (mode == "enforce" or callable(on_not_admitted), "/on_not_admitted: is required in the mode observe"),
            (approval is None or approval.wait > 0, "/approval/wait: must be above 0"),
            (not any(map(inspect.iscoroutinefunction, callbacks)), "a callback must not be a coroutine function"),
        ):
            if not is_valid:
                raise SvcError("invalid_input", message)

    def run(self, call: ToolCall, function: Callable[[], R]) -> R:
        """Runs the function only after an `ADMITTED` receipt for this call.

        Otherwise raises an `SvcError` with the name of the tool in `tool`. In the mode `observe`, runs the function at
        once.
        """
        stops = list[StopIteration]()

        async def tool() -> R:
            try:
                return function()
            except StopIteration as stop:
                stops.append(stop)
                raise

        try:
            return run_blocking(self._guard(call, tool, Client, "a blocking tool needs a Client"))
        except RuntimeError as error:
            # Raises the `StopIteration` of the tool here, because a coroutine cannot raise it (PEP 479).
            if stops and error.__cause__ is stops[0]:
                raise stops[0] from None
            raise

    async def run_async(self, call: ToolCall, function: Callable[[], Awaitable[R]]) -> R:
        """`run` for a coroutine function."""
        return await self._guard(call, function, AsyncClient, "a coroutine tool needs an AsyncClient")

    def drain(self) -> None:
        """Waits for the requests that the mode `observe` sends in the background. Then close the client."""
        if not isinstance(self.client, Client):
            raise SvcError("invalid_input", "a gate with an AsyncClient needs drain_async")
        run_blocking(self.drain_async())

    async def drain_async(self) -> None:
        """`drain` for a gate with an `AsyncClient`."""
        while self._requests.get():
            await settle(self.client._sleep(0.02))

    async def _guard(self, call: ToolCall, tool: Callable[[], Awaitable[R]], kind: type, needed: str) -> R:
        try:
            if not isinstance(self.client, kind):
                raise not_admitted(SvcError("invalid_input", needed), call.tool, call.options.get("action"))
            planned = self._plan(call)
        except SvcError as error:
            _notify(self.on_not_admitted, error)
            if self.mode != "observe":
                raise
            return await tool()
        if self.mode == "observe":
            return await self._observe(planned, tool)
        return await self._enforce(planned, tool)

    async def _enforce(self, planned: _Planned, tool: Callable[[], Awaitable[R]]) -> R:
        admission, result = await self._admit(planned), cast(Result, ("failed", None))
        try:
            # Nothing may run between this check and the tool.
            if not planned.is_unchanged():
                message = "its arguments or facts changed after the request"
                changed = planned.not_admitted(SvcError("arguments_changed", message, proof_id=admission.proof_id))
                _notify(self.on_not_admitted, changed)
                raise changed
            value = await tool()
            _require_complete(value, admission.tool)
            result = "succeeded", result_hash(value)
            return value
        finally:
            await self._record(planned, admission, result)

    async def _observe(self, planned: _Planned, tool: Callable[[], Awaitable[R]]) -> R:
        # The later of the admission and the result starts the record; `setdefault` is atomic between threads.
        ends = dict[str, Admission | Result]()

        async def decide() -> None:
            # Suppresses the error, which `on_not_admitted` got.
            with contextlib.suppress(SvcError):
                admission = await self._admit(planned)
                first = ends.setdefault("first", admission)
                if not isinstance(first, Admission):
                    await self._record(planned, admission, first)

        busy = SvcError("unavailable", f"{MAX_BACKGROUND} requests of the gate already wait for the engine")
        failed = self._spawn(decide()) if len(self._requests.get()) < MAX_BACKGROUND else busy
        if failed is not None:
            _notify(self.on_not_admitted, planned.not_admitted(failed))
            return await tool()
        result: Result | None = ("failed", None)
        try:
            value = await tool()
            # The outcome of a coroutine or a generator, whose body has not run, is not known.
            result = None if isinstance(value, LAZY) else ("succeeded", result_hash(value))
            return value
        finally:
            admission = None if result is None else ends.setdefault("first", result)
            if result is not None and isinstance(admission, Admission):
                failed = self._spawn(self._record(planned, admission, result))
                if failed is not None:
                    self._lost(admission, failed, self._outcome(planned, admission, result))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> Exception | None:
        """Returns the error if the work cannot start: the client is closed, or the process cannot start a thread."""
        try:
            task: Any = self.client._spawn(work)
        except (SvcError, RuntimeError) as error:
            work.close()
            return error
        requests = self._requests.get()
        requests.add(task)
        task.add_done_callback(requests.discard)
        return None

    async def _admit(self, planned: _Planned) -> Admission:
        """Returns only after an `ADMITTED` receipt for this call."""
        try:
            try:
                is_observed = self.mode == "observe"
                receipt = await planned.send(planned.envelope, self.client.submit, is_observed=is_observed)
            except SvcError as error:
                receipt = await self._second_decision(planned, error)
        except Exception as cause:
            known = planned.not_admitted(cause)
            _notify(self.on_not_admitted, known)
            raise known from cause
        action, proof_id = planned.envelope["action"], receipt["registry_proof_id"]
        admission = Admission(planned.call.tool, action, proof_id, receipt, planned.run)
        _notify(self.on_admitted, admission)
        return admission

    async def _second_decision(self, planned: _Planned, error: SvcError) -> Receipt:
        """Waits for a required approval, if the gate has `approval`. Otherwise raises `error`."""
        wait, approval = self.approval, error.approval
        if wait is None or approval is None:
            raise error
        first = approval["receipt"]
        pending = PendingApproval(planned.call, planned.envelope["action"], first["registry_proof_id"], approval)
        _notify(wait.on_pending, pending)
        try:
            receipt = await settle(self.client.wait_for_approval(first, wait.wait))
            if receipt["schema_version"] == first["schema_version"]:
                return receipt
        except SvcError as later:
            # Without a second decision, the call fails with `approval_required` of the first decision.
            if not later.retryable:
                raise
        raise error

    def _agent_of(self, call: ToolCall) -> dict[str, Any]:
        framework = {} if call.framework is None else {"framework": call.framework}
        return {**framework, **self.agent}

    def _plan(self, call: ToolCall) -> _Planned:
        try:
            action, bound, fields = call.options.get("action"), call.bound(), {**call.option("fields", dict)}
            run = fields.pop("run") if isinstance(fields.get("run"), AgentRun) else None
            fields = {
                "agent": self._agent_of(call),
                "action": action_of(call.tool) if action is None else action,
                "tool": call.tool,
                **({} if call.tool_call_id is None else {"tool_call_id": call.tool_call_id}),
                **self.parent,
                **fields,
                **bound,
            }
            envelope = agent_envelope(self.client.tenant_id, "admission", fields)
            if run is not None:
                run.require_owner(self.client.tenant_id, self.agent["id"])
            return _Planned(call, envelope, plain_hash(bound), run)
        except Exception as error:
            # Catches any error, because `hashed`, `facts` and `fields` may raise any.
            known = error if isinstance(error, SvcError) else SvcError("invalid_input", str(error))
            raise not_admitted(
                known, call.tool, call.options.get("action"), "the call cannot be described in a proof: "
            ) from error

    def _outcome(self, planned: _Planned, admission: Admission, result: Result) -> dict[str, Any]:
        fields = {"agent": self._agent_of(planned.call), "parent_proof_id": admission.proof_id, "result": result[0]}
        fields |= {} if result[1] is None else {"result_hash": result[1]}
        return agent_envelope(self.client.tenant_id, "outcome", fields)

    def _lost(self, admission: Admission, error: BaseException, sent: dict[str, Any]) -> None:
        _notify(self.on_outcome_error, LostOutcome(admission.tool, admission.proof_id, error, sent))

    async def _record(self, planned: _Planned, admission: Admission, result: Result) -> None:
        """Records the outcome. A failed record must not replace the result of the tool."""
        sent = self._outcome(planned, admission, result)

        def send(numbered: dict[str, Any]) -> Any:
            nonlocal sent
            sent = numbered
            response: Any = self.recorder.submit(sent)
            return _shielded(response) if inspect.isawaitable(response) else response

        try:
            await planned.send(sent, send)
        except BaseException as error:
            self._lost(admission, error, sent)
            # Raises a cancellation again: the scope does not protect against `asyncio.Task.cancel`.
            if not isinstance(error, Exception):
                raise

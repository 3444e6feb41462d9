"""Runs of an agent, whose requests this process numbers."""

from __future__ import annotations

import secrets
from bisect import insort
from collections.abc import Callable, Coroutine, Mapping
from threading import Lock
from typing import Any, Generic, TypeVar, cast, get_args, overload

from .admissions import agent_envelope
from .client import AsyncClient, Client
from .encoding import current_time
from .errors import Rejected, SvcError
from .models import Agent, Receipt, Run
from .transport import run_blocking, settle

# A receipt, or for an `AsyncClient` a coroutine that returns it.
ReceiptT = TypeVar("ReceiptT")
# After an error with one of these codes, the number of the request is still free.
REJECTED = frozenset(get_args(Rejected))


class AgentRun(Generic[ReceiptT]):
    """A run, whose requests get numbers without a gap. All gates of the agent may share it, also in threads."""

    def __init__(self, client: Client | AsyncClient, agent: Agent, place: Run) -> None:
        self.id = place["id"]
        self._client, self._agent, self._next = client, agent["id"], place["seq"]
        self._is_closing, self._open, self._free = False, 0, list[int]()
        # Requests without a known decision, and whether the tool runs regardless.
        self._undecided = list[tuple[dict[str, Any], bool]]()
        # The last `close` envelope, while its decision is not known.
        self._ending: dict[str, Any] | None = None
        self._lock = Lock()

    def send(self, envelope: Mapping[str, Any]) -> ReceiptT:
        """Submits an envelope with the next number. The next request reuses the number of a rejected request."""
        return self._start(self.number(envelope, self._client.submit))

    def close(self) -> ReceiptT:
        """Waits for the open requests, repeats the requests without a known decision, and closes the run.

        The package of the run then proves that the run has these requests and no others. After an error, call `close`
        again; after the problem `run_incomplete`, first send another request in the run, which gets the missing number.
        """
        return self._start(self._close())

    def require_owner(self, tenant_id: str, agent_id: str) -> None:
        """Raises `SvcError` (`invalid_input`) unless the run belongs to this tenant and agent."""
        if (tenant_id, agent_id) != (self._client.tenant_id, self._agent):
            message = f"/run: run {self.id} belongs to agent {self._agent} of {self._client.tenant_id}"
            raise SvcError("invalid_input", message, pointer="/run")

    async def number(
        self, envelope: Mapping[str, Any], send: Callable[[dict[str, Any]], Any], *, is_observed: bool = False
    ) -> Receipt:
        with self._lock:
            self._require_not_closing()
            self._open += 1
            seq = self._take()
        numbered = {**envelope, "run": {"id": self.id, "seq": seq}}
        try:
            return cast(Receipt, await settle(send(numbered)))
        except BaseException as error:
            is_free = isinstance(error, SvcError) and error.code in REJECTED and error.proof_id is None
            with self._lock:
                if not _has_number(error):
                    insort(self._free, seq) if is_free else self._undecided.append((numbered, is_observed))
            raise
        finally:
            with self._lock:
                self._open -= 1

    def _require_not_closing(self) -> None:
        if self._is_closing:
            raise SvcError("invalid_input", "the run is closed")

    def _take(self) -> int:
        if self._free:
            return self._free.pop(0)
        self._next += 1
        return self._next - 1

    def _start(self, call: Coroutine[Any, Any, Receipt]) -> ReceiptT:
        return cast(ReceiptT, run_blocking(call) if isinstance(self._client, Client) else call)

    async def _close(self) -> Receipt:
        client = self._client
        with self._lock:
            self._require_not_closing()
            self._is_closing = True
        try:
            while self._open:
                await settle(client._sleep(0.05))
            while self._undecided:
                (envelope, is_observed), receipt = self._undecided[0], None
                try:
                    receipt = await settle(client.submit(envelope))
                except SvcError as error:
                    if not _has_number(error):
                        if not _is_final(error) and _problem_code(error) != "key_restricted":
                            raise
                        insort(self._free, envelope["run"]["seq"])
                self._undecided.pop(0)
                if receipt is not None and envelope["kind"] == "admission" and not is_observed:
                    # Records a failure: the caller of the request got an error, so the tool did not run.
                    fields = {"agent": envelope["agent"], "parent_proof_id": receipt["registry_proof_id"]}
                    fields |= {"result": "failed", "run": {"id": self.id, "seq": self._take()}}
                    self._undecided.append((agent_envelope(client.tenant_id, "outcome", fields), False))
            while self._free and self._free[-1] == self._next - 1:
                self._next = self._free.pop()
            # Sends the same envelope again, because the engine may have closed the run although its response was lost.
            if self._ending is None or self._ending["run"]["seq"] != self._next:
                fields = {"agent": {"id": self._agent}, "run": {"id": self.id, "seq": self._next}}
                self._ending = agent_envelope(client.tenant_id, "close", fields)
            return await settle(client.submit(self._ending))
        except BaseException as error:
            if isinstance(error, SvcError) and _is_final(error):
                self._ending = None
            self._is_closing = False
            raise


@overload
def open_run(client: Client, agent: Agent, place: Run | None = None) -> AgentRun[Receipt]: ...
@overload
def open_run(client: AsyncClient, agent: Agent, place: Run | None = None) -> AgentRun[Coroutine[Any, Any, Receipt]]: ...
def open_run(client: Client | AsyncClient, agent: Agent, place: Run | None = None) -> AgentRun[Any]:
    """Opens a run. Return it as `run` from the option `fields` of every tool whose calls belong to the run.

    `place` has the id and the next number of a run that another process began.
    """
    id_ = f"{current_time():012x}7{secrets.token_hex(2)[1:]}b{secrets.token_hex(8)[1:]}"
    return AgentRun(client, agent, place or {"id": id_, "seq": 0})


def _problem_code(error: SvcError) -> str | None:
    return None if error.problem is None else error.problem["code"]


def _is_final(error: SvcError) -> bool:
    """Whether to give the envelope up instead of waiting for a later acceptance."""
    return error.code == "invalid_request" or _problem_code(error) in ("admission_failed", "run_incomplete")


def _has_number(error: BaseException) -> bool:
    """Whether the number is in use: by a denial or a required approval, or by another request."""
    if not isinstance(error, SvcError):
        return False
    return error.denial is not None or error.approval is not None or _problem_code(error) == "run_seq_taken"

"""The only public error of this package, `SvcError`. Branch on codes; messages may change."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from .models import Denial, RequiredApproval

Retryable = Literal["timeout", "network", "not_ready", "rate_limited", "unavailable"]
# Codes of requests that were not sent, or that the service rejected without an effect.
Rejected = Literal["invalid_input", "unauthenticated", "forbidden", "not_found", "invalid_request", "lane_locked"]
_Decided = Literal["policy_denied", "approval_required", "arguments_changed"]
_Failed = Literal["unusable_pin", "evidence_rejected", "evidence_outdated", "unexpected_response", "aborted"]
Code = Literal[Retryable, Rejected, _Decided, _Failed, "gone", "engine_failed"]
RETRYABLE = frozenset(get_args(Retryable))


class InvalidError(ValueError):
    """A document, signature or path that does not verify, and its code in spec/. Public functions raise `SvcError`."""

    def __init__(self, code: str, pointer: str = "") -> None:
        super().__init__(f"{code} at {pointer}" if pointer else code)
        self.code = code
        # RFC 6901 pointer into the document.
        self.pointer = pointer


def require(condition: object, code: str) -> None:
    if not condition:
        raise InvalidError(code)


@contextmanager
def coded(code: str) -> Generator[None]:
    """Gives each `InvalidError` this code."""
    try:
        yield
    except InvalidError as fault:
        raise InvalidError(code, fault.pointer) from fault


@dataclass(eq=False, repr=False)
class SvcError(Exception):
    """A failed call. The codes are those of the TypeScript SDK (docs/integrate.md, Errors).

    `status` and `problem` are those of the response. `denial` has the receipt and reasons of `policy_denied`,
    `approval` has the receipt, reasons and `expires_at` of `approval_required`. `proof_id` names the decision, or the
    accepted admission if its decision is unknown. `fault` is the failed check of a document or pin, `pointer` its place
    (RFC 6901), `retry_after` the requested delay in seconds. Only a gate sets `tool` and `action`, for a call that did
    not run.
    """

    code: Code
    message: str
    status: int | None = None
    # Identifies the request to the operator.
    request_id: str | None = None
    problem: dict[str, Any] | None = None
    retry_after: float | None = None
    denial: Denial | None = None
    approval: RequiredApproval | None = None
    proof_id: str | None = None
    fault: str | None = None
    pointer: str | None = None
    tool: str | None = None
    action: str | None = None

    def __post_init__(self) -> None:
        # Escapes lone surrogates, which cannot be printed: the message may quote input, such as the name of a tool.
        self.message = self.message.encode(errors="backslashreplace").decode()
        # Sets `args`, with which `pickle` and `copy` call the class, and which `dataclasses.replace` leaves empty.
        self.args = (self.code, self.message)

    def __str__(self) -> str:
        return self.message

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later. A retry is safe: admissions are idempotent."""
        return self.code in RETRYABLE


@contextmanager
def raising(code: Code, what: str) -> Generator[None]:
    """Turns an `InvalidError` into the error of a public function."""
    try:
        yield
    except InvalidError as fault:
        raise SvcError(code, f"{what}: {fault}", fault=fault.code, pointer=fault.pointer) from fault

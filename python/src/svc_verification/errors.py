"""The errors of this package: closed sets of codes. Branch on codes; messages may change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .models import Denial, RequiredApproval

RETRYABLE = frozenset({"timeout", "network", "not_ready", "rate_limited", "unavailable"})


class InvalidError(ValueError):
    """A document, signature or path that does not verify, with the code of spec/."""

    def __init__(self, code: str, pointer: str = "") -> None:
        super().__init__(f"{code} at {pointer}" if pointer else code)
        self.code = code
        # RFC 6901, into the document that was read.
        self.pointer = pointer


def require(condition: object, code: str) -> None:
    if not condition:
        raise InvalidError(code)


@dataclass(eq=False)
class SvcError(Exception):
    """A failed call. The codes are those of the TypeScript SDK (docs/integrate.md, Errors).

    `status` and `problem` are of the response; `denial` has the receipt and reasons of `policy_denied`, `approval`
    receipt and `expires_at` of `approval_required`. `proof_id` names an accepted admission without a known decision.
    `fault` is the failed check of evidence, `retry_after` the requested delay in seconds.
    """

    code: str
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

    def __str__(self) -> str:
        return self.message

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later. A retry is safe: admissions are idempotent."""
        return self.code in RETRYABLE


class NotAdmittedError(Exception):
    """Raised instead of a tool's result: the tool did not run.

    `code` is `denied`, `approval_required`, `undecided`, `invalid_call` or `arguments_changed`; `__cause__` is the
    `SvcError`, if any.
    """

    def __init__(
        self, code: str, tool: str, why: str, *, action: str | None = None, proof_id: str | None = None
    ) -> None:
        super().__init__(f"{tool} did not run: {why}" + (f" (proof {proof_id})" if proof_id else ""))
        self.code = code
        self.tool = tool
        self.action = action
        self.proof_id = proof_id

"""Types of requests and answers. Answers may have more members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NotRequired, Required, TypedDict

from .evidence import Proved

if TYPE_CHECKING:
    from .run import AgentRun


class Agent(TypedDict):
    id: str
    framework: NotRequired[str]


class Run(TypedDict):
    """A run and the number of a request in it; `id` is a UUIDv7 as 32 characters of hex, `seq` counts from 0."""

    id: str
    seq: int


class DecimalFact(TypedDict):
    """A decimal number as text, such as `480.00`."""

    decimal: str


# Values that a policy decides on, by name; a list is a set of strings.
Facts = Mapping[str, str | int | DecimalFact | list[str]]


class ToolFields(TypedDict, total=False):
    """Members of an envelope that are not about the call itself. An `AgentRun`, of `open_run`, numbers the requests."""

    run: Run | AgentRun[Any]
    tool_call_id: str
    traceparent: str
    idempotency_key: str
    parent_proof_id: str


class _Fields(TypedDict, total=False):
    agent: Required[Agent]
    run: Run
    tool_call_id: str
    traceparent: str
    idempotency_key: str
    # By default random, so that each call is a new admission.
    nonce: str
    # By default the present time.
    requested_at: str


class AdmissionFields(_Fields, total=False):
    action: Required[str]
    tool: str
    arguments_hash: str
    parent_proof_id: str
    facts: Facts


class OutcomeFields(_Fields, total=False):
    parent_proof_id: Required[str]
    result: Required[Literal["succeeded", "failed"]]
    result_hash: str


class ExecuteFields(TypedDict, total=False):
    intent_id: Required[str]
    action: Required[str]
    idempotency_key: str
    proof_chain_fixture_ref: str


class ProofFilter(TypedDict, total=False):
    """Conditions of the list of proofs, joined by "and"."""

    action: str
    status: str
    effect: str
    lane: str
    intent_id: str
    agent: str
    tool: str
    run: str
    parent: str
    batch: str
    bound: bool
    # RFC 3339 UTC with milliseconds; `since` is inclusive, `until` is not.
    since: str
    until: str


class Receipt(TypedDict):
    schema_version: str
    receipt_id: str
    status: Literal["ADMITTED", "DENIED", "APPROVAL_REQUIRED"]
    request_hash: str
    registry_proof_id: str
    response_hash: str
    vee_recorded: Literal[True]


class ReplayedReceipt(dict[str, Any]):
    """The receipt of a request that the engine had already accepted."""


class Denial(TypedDict):
    receipt: Receipt
    reasons: list[str]
    # Explanations, by reason.
    sentences: dict[str, str]


class RequiredApproval(Denial):
    expires_at: str


@dataclass(frozen=True)
class Exchange:
    """A request and its response, each with a hash that anyone can recompute.

    `canonical_request` is the RFC 8785 form of the sent body, or of `{"method", "path", "query"}` of a GET.
    """

    request_hash: str
    canonical_request: str
    response_hash: str
    request_id: str | None
    response: Any


@dataclass(frozen=True)
class Lookup:
    """A public verdict: as served, or, with pins, recomputed from evidence and equal to the served verdict."""

    record: dict[str, Any]
    verification_status: str
    can_assert_validity: bool
    generation: int
    tree_size: int
    issued_at: str
    evidence: Proved | None

"""Admissions: their bodies, receipts and approvals (spec/proof.md, 7)."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, cast

from .documents import (
    ADMISSION_STATUS,
    AGENT_ENVELOPE,
    AGENT_RECEIPT,
    EXECUTE_RECEIPT,
    EXECUTE_REQUEST,
    RECEIPT,
    RECEIPT_EVIDENCE,
)
from .encoding import canonical, current_time, document_hash, is_proof_id, milliseconds, sha256, time_text
from .errors import InvalidError, SvcError, raising
from .forms import MALFORMED, Form, matches, read
from .hashing import plain_hash
from .models import Denial, Receipt, ReplayedReceipt, RequiredApproval
from .offline import read_signed
from .transport import Deadline, Pause, Response, Retry, Service, Steps, http_error, read_document, unexpected

MIN_POLL, POLL = 0.05, 1.0
# An approval that arrived in time may lead to its second decision shortly after `expires_at`.
DECIDED_WITHIN = 30
APPROVAL_POLL = Retry(base_delay=1.0, max_delay=5.0)


def execute_request(tenant_id: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The complete body of `POST /v1/intents/execute`. Sending it again repeats the admission."""
    head = {"schema_version": "svc.runtime.intent_execute.request/1.0", "tenant_id": tenant_id}
    return valid_input(EXECUTE_REQUEST, {**head, **fields})


def agent_envelope(tenant_id: str, kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The complete body of `POST /v1/agent/admissions`. Keep it to repeat the admission."""
    head = {
        "schema_version": "svc.agent.admission.envelope/1.1",
        "tenant_id": tenant_id,
        "kind": kind,
        "nonce": secrets.token_hex(16),
        "requested_at": time_text(current_time()),
    }
    return valid_input(AGENT_ENVELOPE, {**head, **fields})


NAME, HASH = "1 to 512 characters", "64 lower-case hex characters, as canonical_hash returns"
EXPECTED = {
    "": "a complete body, as agent_envelope returns",
    "/action": "1 to 128 of A-Z 0-9 _ . : -",
    "/agent": 'a dictionary such as {"id": "agent-7"}',
    "/agent/framework": NAME,
    "/agent/id": NAME,
    "/arguments_hash": HASH,
    "/facts": "a dictionary",
    "/idempotency_key": "1 to 255 printable ASCII characters",
    "/intent_id": NAME,
    "/kind": "admission, outcome or close",
    "/nonce": "16 to 128 of A-Z a-z 0-9 _ -",
    "/parent_proof_id": "a proof id",
    "/proof_chain_fixture_ref": NAME,
    "/requested_at": "RFC 3339 UTC with milliseconds, as in 2026-11-20T17:29:00.123Z",
    "/result": "succeeded or failed",
    "/result_hash": HASH,
    "/run": 'a dictionary with "id" and "seq"',
    "/run/id": "a UUIDv7 as 32 lower-case hex characters",
    "/run/seq": "an integer from 0 to 10,000",
    "/schema_version": "that of agent_envelope or execute_request",
    "/tenant_id": "1 to 128 of A-Z a-z 0-9 _ . : -, beginning with a letter or digit",
    "/tool": NAME,
    "/tool_call_id": NAME,
    "/traceparent": "the W3C traceparent of the call, version 00",
}


def valid_input(form: Form, document: dict[str, Any]) -> dict[str, Any]:
    try:
        read(form, document, MALFORMED)
        canonical(document)
    except InvalidError as fault:
        pointer, code = fault.pointer, fault.code
        if pointer == "" and code != MALFORMED:
            # Raises an error that names the value.
            plain_hash(document)
        expected = EXPECTED.get(pointer) if code in (MALFORMED, "wrong_schema_version") else None
        reason = code if expected is None else f"expected {expected}"
        raise SvcError("invalid_input", f"{pointer or '/'}: {reason}", fault=code, pointer=pointer) from fault
    return document


def require_proof_id(text: str) -> str:
    """Rejects text that is not a proof id, because the text is put into a path."""
    if not is_proof_id(text):
        raise SvcError("invalid_input", "a proof id is a UUIDv7 as 32 lower-case hex characters")
    return text


# Receipts


@dataclass(frozen=True)
class Expected:
    """The values that bind a receipt to its request; None for values that only another process knows."""

    form: Form
    request_hash: str | None = None
    proof_id: str | None = None

    def accepts(self, receipt: Any, status: str) -> bool:
        if not matches(self.form, receipt):
            return False
        rest = {name: value for name, value in receipt.items() if name != "response_hash"}
        return (
            receipt["status"] == status
            and self.request_hash in (None, receipt["request_hash"])
            and self.proof_id in (None, receipt["registry_proof_id"])
            and receipt["receipt_id"].endswith(f"-{receipt['request_hash'][:16]}")
            and receipt["response_hash"] == document_hash(rest)
        )


def submit(service: Service, deadline: Deadline, body: dict[str, Any]) -> Steps[Receipt]:
    """Admits a complete body, and returns its `ADMITTED` receipt."""
    is_execute = str(body.get("schema_version")).startswith("svc.runtime.intent_execute.")
    form, path = (EXECUTE_REQUEST, "/v1/intents/execute") if is_execute else (AGENT_ENVELOPE, "/v1/agent/admissions")
    data = canonical(valid_input(form, body))
    request_hash = sha256(data).hex()
    response = yield from service.send(deadline, "POST", path, body=data, idempotency_key=request_hash)
    is_repeat = response.headers.get("idempotent-replayed") == "true"
    expected = Expected(EXECUTE_RECEIPT if is_execute else AGENT_RECEIPT, request_hash)
    try:
        receipt, proof_id = _read_admission(response, expected)
        if receipt is None:
            with _naming(proof_id):
                yield from _pause(response, deadline)
            receipt = yield from follow(service, deadline, Expected(expected.form, request_hash, proof_id))
    except SvcError as error:
        decision = error.denial or error.approval
        if decision is not None and is_repeat:
            decision["receipt"] = _replayed(decision["receipt"])
        raise
    return _replayed(receipt) if is_repeat else receipt


def _replayed(receipt: Receipt) -> Receipt:
    return cast(Receipt, ReplayedReceipt(receipt))


def is_replayed(receipt: Receipt) -> bool:
    """Whether the engine had already accepted the request of this receipt.

    An earlier call may have sent the request, or an attempt of this call whose response was lost. Pass the same
    object that `execute`, `admit`, `record_outcome`, `close_run` or `submit` returned, or that is in their
    `SvcError`: a copy yields False.
    """
    return isinstance(receipt, ReplayedReceipt)


def follow(service: Service, deadline: Deadline, expected: Expected) -> Steps[Receipt]:
    """Polls for the decision on an accepted admission.

    An approval leads to a second decision about the request, and this decision has a proof of its own.
    """
    proof_id = require_proof_id(expected.proof_id or "")
    while True:
        with _naming(proof_id):
            response = yield from service.send(deadline, "GET", f"/v1/admissions/{proof_id}")
        wanted = expected if response.status == 202 else replace(expected, proof_id=None)
        try:
            receipt, _ = _read_admission(response, wanted)
        except SvcError as error:
            error.proof_id = error.proof_id or proof_id
            if error.denial is not None:
                with _naming(proof_id):
                    yield from _require_second_decision(service, deadline, expected, error.denial["receipt"])
            raise
        with _naming(proof_id):
            if receipt is not None:
                yield from _require_second_decision(service, deadline, expected, receipt)
                return receipt
            yield from _pause(response, deadline)


def _require_second_decision(service: Service, deadline: Deadline, expected: Expected, receipt: Receipt) -> Steps[None]:
    """Without the request hash, only evidence shows that the second decision is about the pending proof."""
    if expected.request_hash is not None or receipt["registry_proof_id"] == expected.proof_id:
        return
    path = f"/v1/proofs/{receipt['registry_proof_id']}/receipt-evidence"
    response = yield from service.read(deadline, "GET", path)
    evidence = read_document(response, RECEIPT_EVIDENCE)
    with raising("evidence_rejected", "the evidence is rejected"):
        signed, _ = read_signed(evidence, receipt)
    approval = signed["evidence"]["approval"]
    if approval is None or approval["pending_proof_id"] != expected.proof_id:
        raise SvcError("unexpected_response", "the decision is about another proof")


def wait_for_approval(service: Service, deadline: Deadline, required: Receipt | str) -> Steps[Receipt]:
    """Waits for the second decision about a request that requires an approval."""
    proof_id = required if isinstance(required, str) else required["registry_proof_id"]
    request_hash = None if isinstance(required, str) else required["request_hash"]
    pending: SvcError | None = None
    # By a clock that always advances: a service may repeat the same `Date` in all its responses.
    end = math.inf
    for attempt in count(1):
        try:
            expected = Expected(RECEIPT, request_hash, proof_id)
            decided = yield from follow(service, deadline, expected)
            if request_hash is None or decided["registry_proof_id"] != proof_id:
                return decided
            message = "the engine reports ADMIT for a proof that requires an approval"
            raise SvcError("unexpected_response", message, proof_id=proof_id)
        except SvcError as error:
            if error.approval is not None:
                pending, request_hash = error, error.approval["receipt"]["request_hash"]
                remaining = milliseconds(error.approval["expires_at"]) / 1000 - service.answered_at + DECIDED_WITHIN
                end = min(end, time.monotonic() + remaining)
            elif not error.retryable or pending is None or deadline.remaining() <= 0:
                raise
        if pending is not None and time.monotonic() >= end:
            raise pending
        with _naming(proof_id):
            yield from _wait(APPROVAL_POLL.backoff(attempt), deadline)
    raise AssertionError("unreachable")


def _pause(response: Response, deadline: Deadline) -> Steps[None]:
    after = response.retry_after
    yield from _wait(max(POLL if after is None else after, MIN_POLL), deadline)


def _wait(seconds: float, deadline: Deadline) -> Steps[None]:
    yield Pause(max(0.0, min(seconds, deadline.remaining())))
    if deadline.remaining() <= 0:
        raise deadline.error()


@contextmanager
def _naming(proof_id: str) -> Generator[None]:
    """Adds the proof id to errors: without it the caller would lose an accepted admission."""
    try:
        yield
    except SvcError as error:
        error.proof_id = proof_id
        raise


def _read_admission(response: Response, expected: Expected) -> tuple[Receipt | None, str]:
    """The `ADMITTED` receipt of this request, or the id of a pending admission.

    Raises for a denial, a required approval and every other response.
    """
    if response.status == 200:
        receipt = read_document(response, expected.form)
        if not expected.accepts(receipt, "ADMITTED"):
            raise _mismatch(response)
        return cast(Receipt, receipt), receipt["registry_proof_id"]
    if response.status == 202:
        status = read_document(response, ADMISSION_STATUS)
        proof_id: str = status["proof_id"]
        location = response.headers.get("location", f"/v1/admissions/{proof_id}")
        # The location must name this admission; its host is ignored.
        if expected.proof_id not in (None, proof_id) or not location.endswith(f"/v1/admissions/{proof_id}"):
            raise _mismatch(response)
        if status["state"] == "pending":
            return None, proof_id
        if not Expected(expected.form, expected.request_hash, proof_id).accepts(status["receipt"], "APPROVAL_REQUIRED"):
            raise _mismatch(response)
        reasons, sentences = _explanation(status)
        approval: RequiredApproval = {
            "receipt": status["receipt"],
            "reasons": reasons,
            "sentences": sentences,
            "expires_at": status["expires_at"],
        }
        message = f"the action requires an approval before {approval['expires_at']}"
        if sentences:
            message += f": {' '.join(sentences.values())}"
        raise SvcError("approval_required", message, status=202, approval=approval, proof_id=proof_id)
    error = http_error(response)
    problem = error.problem
    if problem is None or problem["code"] != "policy_denied":
        raise error
    if response.status != 403 or not expected.accepts(problem.get("receipt"), "DENIED"):
        raise _mismatch(response)
    reasons, sentences = _explanation(problem)
    denial: Denial = {"receipt": problem["receipt"], "reasons": reasons, "sentences": sentences}
    proof_id = denial["receipt"]["registry_proof_id"]
    raise SvcError("policy_denied", problem["detail"], status=403, problem=problem, denial=denial, proof_id=proof_id)


def _explanation(document: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The reasons of a decision and their sentences, which an older engine may omit."""
    reasons, sentences = document.get("reasons"), document.get("sentences")
    return (
        [one for one in reasons if isinstance(one, str)] if isinstance(reasons, list) else [],
        {name: one for name, one in sentences.items() if isinstance(one, str)} if isinstance(sentences, dict) else {},
    )


def _mismatch(response: Response) -> SvcError:
    return unexpected(response, "the response does not belong to this request")

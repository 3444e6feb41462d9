"""Admissions: their bodies, receipts and approvals (spec/proof.md, 7)."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Coroutine, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Unpack, cast

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
from .models import (
    AdmissionFields,
    Agent,
    Denial,
    ExecuteFields,
    OutcomeFields,
    Receipt,
    ReplayedReceipt,
    RequiredApproval,
    Run,
)
from .offline import read_signed
from .settings import Call, Settings
from .transport import Response, Retry, Service, http_error, read_document, unexpected

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


_NAMES = "/agent/framework", "/agent/id", "/intent_id", "/proof_chain_fixture_ref", "/tool", "/tool_call_id"
EXPECTED = {
    **dict.fromkeys(_NAMES, "1 to 512 characters"),
    **dict.fromkeys(("/arguments_hash", "/result_hash"), "64 lower-case hex characters, as canonical_hash returns"),
    "": "a complete body, as agent_envelope returns",
    "/action": "1 to 128 of A-Z 0-9 _ . : -",
    "/agent": 'a dictionary such as {"id": "agent-7"}',
    "/facts": "a dictionary",
    "/idempotency_key": "1 to 255 printable ASCII characters",
    "/kind": "admission, outcome or close",
    "/nonce": "16 to 128 of A-Z a-z 0-9 _ -",
    "/parent_proof_id": "a proof id",
    "/requested_at": "RFC 3339 UTC with milliseconds, as in 2026-11-20T17:29:00.123Z",
    "/result": "succeeded or failed",
    "/run": 'a dictionary with "id" and "seq"',
    "/run/id": "a UUIDv7 as 32 lower-case hex characters",
    "/run/seq": "an integer from 0 to 10,000",
    "/schema_version": "that of agent_envelope or execute_request",
    "/tenant_id": "1 to 128 of A-Z a-z 0-9 _ . : -, beginning with a letter or digit",
    "/traceparent": "the W3C traceparent of the call, version 00",
}


def valid_input(form: Form, document: dict[str, Any]) -> dict[str, Any]:
    try:
        read(form, document, MALFORMED)
        canonical(document)
    except InvalidError as fault:
        pointer, code = fault.pointer, fault.code
        if pointer == "" and code != MALFORMED:
            # Raises a more specific error, which names the value that is not plain JSON.
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
    """The values that bind a receipt to its request; None for a value that the caller does not know."""

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


class AdmissionCalls(Settings):
    @Call
    async def execute(self, **fields: Unpack[ExecuteFields]) -> Receipt:
        """Admits an execution. Returns only an `ADMITTED` receipt with the hash of this request.

        Raises `SvcError`: `policy_denied` with its receipt in `denial`, `approval_required` with its receipt in
        `approval`, and another code when there is no decision. Repeating the call returns the first receipt.
        """
        return await _submit(self._engine, execute_request(self.tenant_id, fields))

    @Call
    async def admit(self, **fields: Unpack[AdmissionFields]) -> Receipt:
        """Admits an action of an agent. Returns and raises like `execute`."""
        return await _submit(self._engine, agent_envelope(self.tenant_id, "admission", fields))

    @Call
    async def record_outcome(self, **fields: Unpack[OutcomeFields]) -> Receipt:
        """Records how an admitted action ended."""
        return await _submit(self._engine, agent_envelope(self.tenant_id, "outcome", fields))

    @Call
    async def close_run(self, *, agent: Agent, run: Run) -> Receipt:
        """Ends a run; its `seq` is the number of requests before the close."""
        return await _submit(self._engine, agent_envelope(self.tenant_id, "close", {"agent": agent, "run": run}))

    @Call
    async def submit(self, body: Mapping[str, Any]) -> Receipt:
        """Admits a complete body, such as one from `agent_envelope`. Submitting it again repeats the admission."""
        return await _submit(self._engine, dict(body))

    @Call
    async def follow_admission(self, proof_id: str) -> Receipt:
        """Waits for the decision on an accepted admission; take `proof_id` from the error of the first call."""
        return await _follow(self._engine, Expected(RECEIPT, proof_id=proof_id))

    @Call
    def wait_for_approval(self, required: Receipt | str, timeout: float | None = None) -> Coroutine[Any, Any, Receipt]:
        """The receipt of the second decision about a request that requires an approval.

        `required` is `error.approval["receipt"]`, or the id of the pending proof, which the evidence of the second
        decision must name. Without a timeout the call waits until the approval expires.
        """
        limited = self.with_timeout(math.inf if timeout is None else timeout)
        return _wait_for_approval(limited._engine, required)


async def _submit(service: Service, body: dict[str, Any]) -> Receipt:
    is_execute = str(body.get("schema_version")).startswith("svc.runtime.intent_execute.")
    form, path = (EXECUTE_REQUEST, "/v1/intents/execute") if is_execute else (AGENT_ENVELOPE, "/v1/agent/admissions")
    data = canonical(valid_input(form, body))
    request_hash = sha256(data).hex()
    response = await service.send("POST", path, body=data, idempotency_key=request_hash)
    is_repeat = response.headers.get("idempotent-replayed") == "true"
    expected = Expected(EXECUTE_RECEIPT if is_execute else AGENT_RECEIPT, request_hash)
    try:
        receipt = _read_admission(response, expected)
        if isinstance(receipt, str):
            with _naming(receipt):
                await _pause(service, response)
            receipt = await _follow(service, replace(expected, proof_id=receipt))
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


async def _follow(service: Service, expected: Expected) -> Receipt:
    """Polls for the decision on an accepted admission.

    An approval leads to a second decision about the request, and this decision has a proof of its own.
    """
    proof_id = require_proof_id(expected.proof_id or "")
    with _naming(proof_id):
        while True:
            response = await service.send("GET", f"/v1/admissions/{proof_id}")
            wanted = expected if response.status == 202 else replace(expected, proof_id=None)
            try:
                decided = _read_admission(response, wanted)
            except SvcError as error:
                if error.denial is not None:
                    await _require_second_decision(service, expected, error.denial["receipt"])
                raise
            if not isinstance(decided, str):
                await _require_second_decision(service, expected, decided)
                return decided
            await _pause(service, response)


async def _require_second_decision(service: Service, expected: Expected, receipt: Receipt) -> None:
    """Requires evidence that the second decision is about the pending proof, unless the request hash shows it."""
    if expected.request_hash is not None or receipt["registry_proof_id"] == expected.proof_id:
        return
    evidence = await read_receipt_evidence(service, receipt)
    with raising("evidence_rejected", "the evidence is rejected"):
        signed, _ = read_signed(evidence, receipt)
    approval = signed["evidence"]["approval"]
    if approval is None or approval["pending_proof_id"] != expected.proof_id:
        raise SvcError("unexpected_response", "the decision is not about the requested proof")


async def read_receipt_evidence(service: Service, receipt: Receipt) -> dict[str, Any]:
    path = f"/v1/proofs/{require_proof_id(receipt['registry_proof_id'])}/receipt-evidence"
    return cast(dict[str, Any], read_document((await service.read(path)), RECEIPT_EVIDENCE))


async def _wait_for_approval(service: Service, required: Receipt | str) -> Receipt:
    proof_id = required if isinstance(required, str) else required["registry_proof_id"]
    request_hash = None if isinstance(required, str) else required["request_hash"]
    pending: SvcError | None = None
    # Measured by the local clock, which always advances: a service may repeat one `Date` in all its responses.
    end = math.inf
    for attempt in count(1):
        try:
            expected = Expected(RECEIPT, request_hash, proof_id)
            decided = await _follow(service, expected)
            if request_hash is None or decided["registry_proof_id"] != proof_id:
                return decided
            message = "the engine reports ADMIT for a proof that requires an approval"
            raise SvcError("unexpected_response", message, proof_id=proof_id)
        except SvcError as error:
            if error.approval is not None:
                pending, request_hash = error, error.approval["receipt"]["request_hash"]
                remaining = milliseconds(error.approval["expires_at"]) / 1000 - service.answered_at + DECIDED_WITHIN
                end = min(end, time.monotonic() + remaining)
            elif not error.retryable or pending is None or service.deadline.remaining() <= 0:
                raise
        if pending is not None and time.monotonic() >= end:
            raise pending
        with _naming(proof_id):
            await service.wait(APPROVAL_POLL.backoff(attempt))
    raise AssertionError("unreachable")


async def _pause(service: Service, response: Response) -> None:
    after = response.retry_after
    await service.wait(max(POLL if after is None else after, MIN_POLL))


@contextmanager
def _naming(proof_id: str) -> Generator[None]:
    """Adds the proof id to errors: without it the caller would lose an accepted admission."""
    try:
        yield
    except SvcError as error:
        error.proof_id = error.proof_id or proof_id
        raise


def _read_admission(response: Response, expected: Expected) -> Receipt | str:
    """The `ADMITTED` receipt of this request, or the id of a pending admission.

    Raises for a denial, a required approval and every other response.
    """
    if response.status == 200:
        receipt = read_document(response, expected.form)
        if not expected.accepts(receipt, "ADMITTED"):
            raise _mismatch(response)
        return cast(Receipt, receipt)
    if response.status == 202:
        status = read_document(response, ADMISSION_STATUS)
        proof_id: str = status["proof_id"]
        location = response.headers.get("location", f"/v1/admissions/{proof_id}")
        # The location must name this admission; its host is ignored.
        if expected.proof_id not in (None, proof_id) or not location.endswith(f"/v1/admissions/{proof_id}"):
            raise _mismatch(response)
        if status["state"] == "pending":
            return proof_id
        if not replace(expected, proof_id=proof_id).accepts(status["receipt"], "APPROVAL_REQUIRED"):
            raise _mismatch(response)
        approval: RequiredApproval = {**_explained(status), "expires_at": status["expires_at"]}
        message = f"the action requires an approval before {approval['expires_at']}"
        if approval["sentences"]:
            message += f": {' '.join(approval['sentences'].values())}"
        raise SvcError("approval_required", message, status=202, approval=approval, proof_id=proof_id)
    error = http_error(response)
    problem = error.problem
    if problem is None or problem["code"] != "policy_denied":
        raise error
    if response.status != 403 or not expected.accepts(problem.get("receipt"), "DENIED"):
        raise _mismatch(response)
    denial = _explained(problem)
    proof_id = denial["receipt"]["registry_proof_id"]
    raise SvcError("policy_denied", problem["detail"], status=403, problem=problem, denial=denial, proof_id=proof_id)


def _explained(document: Mapping[str, Any]) -> Denial:
    """A decision with its reasons and their sentences, which an older engine may omit."""
    reasons, sentences = document.get("reasons"), document.get("sentences")
    return {
        "receipt": document["receipt"],
        "reasons": [one for one in reasons if isinstance(one, str)] if isinstance(reasons, list) else [],
        "sentences": {name: one for name, one in sentences.items() if isinstance(one, str)}
        if isinstance(sentences, dict)
        else {},
    }


def _mismatch(response: Response) -> SvcError:
    return unexpected(response, "the response does not belong to this request")

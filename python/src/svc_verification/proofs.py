"""Calls of the engine about proofs and runs (spec/answers.md, 17)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import forms
from .admissions import require_proof_id
from .documents import AEP, ANSWERED_EXPORT, ANSWERED_VERDICT, PROOF_ENTRY, RECEIPT_EVIDENCE, RUN_PACKAGE
from .encoding import canonical_json, is_proof_id
from .errors import InvalidError, SvcError
from .forms import having
from .models import Exchange, ProofFilter, Receipt
from .offline import OfflineResult, read_signed, verify_receipt_evidence
from .pins import Pins
from .transport import Deadline, Service, Steps, read_document, unexpected

PAGE = 200
FORMATS = {"json": "application/json", "aep-json": "application/json", "pdf": "application/pdf"}
VERIFY_REQUEST = "svc.verification.verify_request/1.0"
LISTED = having(
    forms.asserts_by_status,
    proof_id=is_proof_id,
    leaf_index=forms.is_index,
    effect=forms.is_effect,
    verification_status=forms.is_status,
    can_assert_validity=forms.is_boolean,
)
PROOF_LIST = having(
    schema_version=forms.version("svc.registry.proof_list/1.0"),
    proofs=forms.items(LISTED, PAGE),
    next_cursor=forms.either(forms.is_text, forms.is_null),
)


def read_proof(service: Service, deadline: Deadline, proof_id: str) -> Steps[Exchange]:
    form = having(
        schema_version=forms.version("svc.registry.proof_view/1.0"),
        proof_id=forms.just(proof_id),
        effect=forms.is_effect,
        leaf_index=forms.is_index,
        log_entry=PROOF_ENTRY,
        aep=forms.or_null(AEP),
        verdict=ANSWERED_VERDICT,
    )
    return service.exchange(deadline, f"/v1/proofs/{require_proof_id(proof_id)}", form)


def list_page(
    service: Service, deadline: Deadline, conditions: ProofFilter, cursor: str | None
) -> Steps[tuple[list[dict[str, Any]], str | None]]:
    names = {"since": "from", "until": "to"}
    query = {names.get(name, name): _query_text(value) for name, value in conditions.items()}
    query |= {"limit": str(PAGE)} | ({} if cursor is None else {"cursor": cursor})
    response = yield from service.read(deadline, "GET", "/v1/proofs", query=query)
    page = read_document(response, PROOF_LIST)
    if page["next_cursor"] is not None and page["next_cursor"] == cursor:
        raise unexpected(response, "the cursor of the next page is the cursor of this page")
    return page["proofs"], page["next_cursor"]


def _query_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def export_proof(
    service: Service, deadline: Deadline, proof_id: str, format_: str, disclose: Sequence[str] | None
) -> Steps[Exchange]:
    if format_ not in FORMATS:
        raise SvcError("invalid_input", f"/format: the format must be one of {', '.join(FORMATS)}")
    form = {"json": ANSWERED_EXPORT, "aep-json": AEP}.get(format_)
    query = {"format": format_} | ({} if disclose is None else {"disclose": ",".join(disclose)})
    path = f"/v1/proofs/{require_proof_id(proof_id)}/export"
    exchange = yield from service.exchange(deadline, path, form, query=query, accept=FORMATS[format_])
    if form is not None and exchange.response["proof_id"] != proof_id:
        raise SvcError("unexpected_response", "the response is about another proof")
    return exchange


def verify_proof(service: Service, deadline: Deadline, proof: str | dict[str, Any]) -> Steps[Exchange]:
    """The verdict of the registry on a proof id, or on an export."""
    document = {"schema_version": VERIFY_REQUEST, "proof_id": proof} if isinstance(proof, str) else proof
    form = having(
        schema_version=forms.version("svc.verification.verdict/1.0"),
        proof_id=forms.just(require_proof_id(str(document.get("proof_id")))),
        status=forms.one_of(*forms.STATUSES, "INVALID"),
        can_assert_validity=forms.is_boolean,
        checks=forms.items(having(name=forms.is_text, result=forms.one_of("pass", "fail", "not_applicable"))),
    )
    body = canonical_json(document).encode()
    exchange = yield from service.exchange(deadline, "/v1/proofs/verify", form, body=body)
    if exchange.response["can_assert_validity"] != (exchange.response["status"] in forms.ASSERTING):
        raise SvcError("unexpected_response", "can_assert_validity does not follow from the status")
    return exchange


def receipt_evidence(
    service: Service, deadline: Deadline, receipt: Receipt, pins: Pins
) -> Steps[tuple[dict[str, Any], OfflineResult]]:
    """The signed proof behind a receipt, verified under pinned keys."""
    path = f"/v1/proofs/{require_proof_id(receipt['registry_proof_id'])}/receipt-evidence"
    response = yield from service.read(deadline, "GET", path)
    evidence: dict[str, Any] = read_document(response, RECEIPT_EVIDENCE)
    result = verify_receipt_evidence(evidence, receipt, pins)
    if not result.ok:
        fault = result.fault or result.undecidable
        raise SvcError("evidence_rejected", f"the evidence of the receipt is rejected: {fault}", fault=fault)
    return evidence, result


def read_run(service: Service, deadline: Deadline, run: str, agent: str) -> Steps[Exchange]:
    form = having(
        schema_version=forms.version("svc.registry.run_state/1.0"),
        run=forms.just(run),
        agent=forms.just(agent),
        state=forms.one_of("open", "closing", "closed"),
        members=forms.items(having(seq=forms.is_index, proof_id=is_proof_id)),
        missing=forms.items(forms.is_index),
    )
    return service.exchange(deadline, f"/v1/runs/{require_proof_id(run)}", form, query={"agent": agent})


def export_run(service: Service, deadline: Deadline, run: str, agent: str) -> Steps[Exchange]:
    path = f"/v1/runs/{require_proof_id(run)}/package"
    exchange = yield from service.exchange(deadline, path, RUN_PACKAGE, query={"agent": agent})
    try:
        subject = read_signed(exchange.response["close"], None)[0]["subject"]
    except InvalidError as fault:
        raise SvcError("unexpected_response", f"the close of the run is rejected: {fault.code}") from fault
    if (subject["kind"], subject.get("run", {}).get("id"), subject.get("agent", {}).get("id")) != ("close", run, agent):
        raise SvcError("unexpected_response", "the response is about another run")
    return exchange

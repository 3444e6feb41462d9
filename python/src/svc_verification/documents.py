"""Documents of the engine (spec/proof.md, 7 to 10; spec/answers.md, 17): requests, receipts, exports and evidence."""

from __future__ import annotations

from typing import Any

from .encoding import KINDS, is_proof_id, is_time, read_base64url
from .entries import APPROVER_ENTRY, key_entry, proof_entry
from .forms import (
    KEY_BYTES,
    RUN,
    SIGNATURE_BYTES,
    VALID_UNTIL,
    Form,
    asserts_by_status,
    by,
    bytes_form,
    constant,
    either,
    having,
    is_action,
    is_boolean,
    is_effect,
    is_environment,
    is_hash,
    is_hashes,
    is_index,
    is_name,
    is_names,
    is_nonce,
    is_null,
    is_status,
    is_tenant_id,
    is_text,
    is_traceparent,
    items,
    just,
    members,
    one_of,
    or_null,
    pattern,
    version,
)

AEP_TYPE = "application/vnd.svc.aep+json"
EVIDENCE = "svc.runtime.receipt_evidence/1.1"
DISCLOSURE = "svc.registry.disclosure/1.0"
TEXT_OR_NULL = either(is_text, is_null)

# Requests and receipts

_COMMON: dict[str, Form] = {
    "schema_version": version("svc.agent.admission.envelope/1.1"),
    "tenant_id": is_tenant_id,
    "agent": members(id=is_name, framework_=is_name),
    "requested_at": is_time,
    "nonce": is_nonce,
    "idempotency_key_": pattern("[ -~]{1,255}"),
    "traceparent_": is_traceparent,
}
_CALL: dict[str, Form] = {**_COMMON, "tool_call_id_": is_name, "run_": RUN}
AGENT_ENVELOPE = by(
    "kind",
    admission=members(
        kind=is_text,
        action=is_action,
        tool_=is_name,
        arguments_hash_=is_hash,
        parent_proof_id_=is_proof_id,
        facts_=lambda value: isinstance(value, dict),
        **_CALL,
    ),
    outcome=members(
        kind=is_text, parent_proof_id=is_proof_id, result=one_of("succeeded", "failed"), result_hash_=is_hash, **_CALL
    ),
    close=members(kind=is_text, run=RUN, **_COMMON),
)
EXECUTE_REQUEST = members(
    schema_version=version("svc.runtime.intent_execute.request/1.0"),
    intent_id=is_name,
    tenant_id=is_tenant_id,
    action=is_action,
    idempotency_key_=pattern("[ -~]{1,255}"),
    proof_chain_fixture_ref_=is_name,
)


def _receipt(schema: str, prefix: str) -> Form:
    return members(
        schema_version=version(schema),
        receipt_id=pattern(f"{prefix}-[0-9a-f]{{16}}"),
        status=one_of("ADMITTED", "DENIED", "APPROVAL_REQUIRED"),
        request_hash=is_hash,
        registry_proof_id=is_proof_id,
        response_hash=is_hash,
        vee_recorded=just(True),
    )


EXECUTE_RECEIPT = _receipt("svc.runtime.intent_execute.response/1.0", "svc-runtime-execute")
AGENT_RECEIPT = _receipt("svc.agent.admission.response/1.0", "svc-agent-admission")
RECEIPT = either(EXECUTE_RECEIPT, AGENT_RECEIPT)
_STATUS: dict[str, Form] = {"schema_version": version("svc.runtime.admission_status/1.0"), "proof_id": is_proof_id}
ADMISSION_STATUS = by(
    "state", pending=having(**_STATUS), approval_required=having(**_STATUS, receipt=RECEIPT, expires_at=is_time)
)

# AEP, envelope and proof record

_AGENT = members(id=is_name, framework_=is_name, bound=is_boolean)
_OF_CALL: dict[str, Form] = {"run_": RUN, "tool_call_id_": is_name, "traceparent_": is_traceparent}
SUBJECT = by(
    "kind",
    execute=members(kind=is_name, intent_id=is_name, action=is_action),
    admission=members(
        kind=is_name, agent=_AGENT, action=is_action, tool_=is_name, parent_proof_id_=is_proof_id, **_OF_CALL
    ),
    outcome=members(
        kind=is_name, agent=_AGENT, parent_proof_id=is_proof_id, result=one_of("succeeded", "failed"), **_OF_CALL
    ),
    close=members(
        kind=is_name, agent=_AGENT, run=RUN, count=is_index, members_hash=is_hash, traceparent_=is_traceparent
    ),
)


def _fits_aep(aep: Any) -> bool:
    has_artifacts = aep["subject"]["kind"] not in ("outcome", "close") and aep["decision"]["effect"] == "ADMIT"
    fits_effect = aep["valid_until"].keys() == {*KINDS} if has_artifacts else len(aep["valid_until"]) == 1
    return bool(fits_effect and aep["execution_id"] == f"exec_{aep['proof_id']}")


AEP = members(
    _fits_aep,
    schema_version=version("svc.aep/1.1"),
    execution_id=lambda value: isinstance(value, str) and value.startswith("exec_"),
    proof_id=is_proof_id,
    environment=is_environment,
    tenant_id=is_tenant_id,
    subject=SUBJECT,
    request_commitment=is_hash,
    commitments=is_hashes,
    decision=members(effect=is_effect, reasons=is_names),
    policy=members(digest=is_hash, input_hash=is_hash, engine=one_of("cedar"), engine_version=is_name),
    evidence=members(
        fixture_ref=either(is_name, is_null),
        fixture_hash=either(is_hash, is_null),
        approval=or_null(members(pending_proof_id=is_proof_id, approval_hash=is_hash, registration_hash=is_hash)),
    ),
    valid_until=VALID_UNTIL,
    accepted_at=is_time,
    salt=is_hash,
    key_id=KEY_BYTES,
)
ENVELOPE = members(
    payloadType=constant(AEP_TYPE, "wrong_payload_type"),
    payload=bytes_form(),
    signatures=items(members(keyid=KEY_BYTES, sig=SIGNATURE_BYTES), 1, 1, "not_one_signature"),
)
PROOF_RECORD = members(
    schema_version=version("svc.registry.proof_record/1.1"), proof_id=is_proof_id, aep_hash=is_hash, envelope=ENVELOPE
)

# Approvals


def _is_base64url(value: Any) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= 4096 and read_base64url(value) is not None


def _is_coordinate(value: Any) -> bool:
    return read_base64url(value, 32) is not None


def _fits_registration(value: Any) -> bool:
    return value["public_key"]["kty"] == "OKP" or value["webauthn"] is not None


SIGNATURE = by(
    "type",
    ed25519=members(type=is_name, sig=_is_base64url),
    webauthn=members(type=is_name, authenticator_data=_is_base64url, client_data_json=_is_base64url, sig=_is_base64url),
)
STATEMENT = members(
    schema_version=version("svc.agent.approval/1.0"),
    tenant_id=is_tenant_id,
    proof_id=is_proof_id,
    aep_hash=is_hash,
    decision=one_of("approve", "reject"),
    registration_hash=is_hash,
    expires_at=is_time,
    nonce=is_nonce,
)
REGISTRATION = members(
    _fits_registration,
    schema_version=version("svc.registry.approver/1.0"),
    tenant_id=is_tenant_id,
    approver=is_name,
    public_key=by(
        "kty",
        OKP=members(kty=is_name, crv=one_of("Ed25519"), x=_is_coordinate),
        EC=members(kty=is_name, crv=one_of("P-256"), x=_is_coordinate, y=_is_coordinate),
    ),
    webauthn=or_null(members(rp_id=is_name, origins=items(is_name, 16, 1), credential_id=_is_base64url)),
    salt=is_hash,
    signature=SIGNATURE,
)
APPROVAL_ENVELOPE = members(
    schema_version=version("svc.agent.approval.envelope/1.0"), statement=STATEMENT, signature=SIGNATURE
)

# Exports and evidence

PROOF_ENTRY, KEY_ENTRY = proof_entry(is_time), key_entry(is_time, KEY_BYTES)
APPROVAL = or_null(
    members(envelope=APPROVAL_ENVELOPE, registration=REGISTRATION, entry=APPROVER_ENTRY, tlog_proof=TEXT_OR_NULL)
)
VERDICT = members(
    asserts_by_status,
    verification_status=is_status,
    can_assert_validity=is_boolean,
    artifacts=members(**dict.fromkeys(KINDS, is_status)),
    verified_at=either(is_time, is_null),
    log_size=is_index,
)


def _is_disclosure(one: Any) -> bool:
    return isinstance(one, list) and len(one) == 3 and is_hash(one[0]) and is_text(one[1]) and one[1] != ""


_EVIDENCE: dict[str, Form] = {
    "proof_record": PROOF_RECORD,
    "entry": PROOF_ENTRY,
    "key": members(entry=KEY_ENTRY, tlog_proof=TEXT_OR_NULL),
    "approval": APPROVAL,
    "disclosures": items(_is_disclosure),
    "tlog_proof": TEXT_OR_NULL,
}
EXPORT = members(
    schema_version=version("svc.registry.proof_export/1.1"),
    proof_id=is_proof_id,
    aep=AEP,
    envelope=ENVELOPE,
    proof_record=PROOF_RECORD,
    entry=PROOF_ENTRY,
    inclusion=members(leaf_index=is_index, tree_size=is_index, path=items(bytes_form(32), 64), checkpoint=is_text),
    key=_EVIDENCE["key"],
    approval=APPROVAL,
    disclosures=_EVIDENCE["disclosures"],
    verdict=VERDICT,
    log_vkey=lambda value: value is None or (is_text(value) and value != ""),
)
RECEIPT_EVIDENCE = members(schema_version=version(EVIDENCE), **_EVIDENCE)
DISCLOSED = members(schema_version=version(DISCLOSURE), **_EVIDENCE)
_ERASED = members(
    schema_version=version(DISCLOSURE),
    proof_record=is_null,
    entry=PROOF_ENTRY,
    key=is_null,
    approval=is_null,
    disclosures=lambda value: value == [],
    tlog_proof=is_text,
)


def _is_run_member(value: Any) -> bool:
    is_erased = isinstance(value, dict) and "proof_record" in value and value["proof_record"] is None
    return (_ERASED if is_erased else DISCLOSED)(value)


RUN_PACKAGE = members(schema_version=version("svc.registry.run/1.0"), close=DISCLOSED, members=items(_is_run_member))

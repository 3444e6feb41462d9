"""Documents of the engine (spec/proof.md, 7 to 10; spec/answers.md, 17): requests, receipts, exports and evidence."""

from __future__ import annotations

from typing import Any

from . import forms as f
from .encoding import KINDS, is_proof_id, is_time, read_base64url
from .entries import APPROVER_ENTRY, key_entry, proof_entry

AEP_TYPE = "application/vnd.svc.aep+json"
EVIDENCE = "svc.runtime.receipt_evidence/1.1"
DISCLOSURE = "svc.registry.disclosure/1.0"
TEXT_OR_NULL = f.either(f.is_text, f.is_null)

# Requests and receipts

_COMMON: dict[str, f.Form] = {
    "schema_version": f.version("svc.agent.admission.envelope/1.1"),
    "tenant_id": f.is_tenant_id,
    "agent": f.members(id=f.is_name, framework_=f.is_name),
    "requested_at": is_time,
    "nonce": f.is_nonce,
    "idempotency_key_": f.pattern("[ -~]{1,255}"),
    "traceparent_": f.is_traceparent,
}
_CALL: dict[str, f.Form] = {**_COMMON, "tool_call_id_": f.is_name, "run_": f.RUN}
AGENT_ENVELOPE = f.by(
    "kind",
    admission=f.members(
        kind=f.is_text,
        action=f.is_action,
        tool_=f.is_name,
        arguments_hash_=f.is_hash,
        parent_proof_id_=is_proof_id,
        facts_=lambda value: isinstance(value, dict),
        **_CALL,
    ),
    outcome=f.members(
        kind=f.is_text,
        parent_proof_id=is_proof_id,
        result=f.one_of("succeeded", "failed"),
        result_hash_=f.is_hash,
        **_CALL,
    ),
    close=f.members(kind=f.is_text, run=f.RUN, **_COMMON),
)
EXECUTE_REQUEST = f.members(
    schema_version=f.version("svc.runtime.intent_execute.request/1.0"),
    intent_id=f.is_name,
    tenant_id=f.is_tenant_id,
    action=f.is_action,
    idempotency_key_=f.pattern("[ -~]{1,255}"),
    proof_chain_fixture_ref_=f.is_name,
)


def _receipt(schema: str, prefix: str) -> f.Form:
    return f.members(
        schema_version=f.version(schema),
        receipt_id=f.pattern(f"{prefix}-[0-9a-f]{{16}}"),
        status=f.one_of("ADMITTED", "DENIED", "APPROVAL_REQUIRED"),
        request_hash=f.is_hash,
        registry_proof_id=is_proof_id,
        response_hash=f.is_hash,
        vee_recorded=f.just(True),
    )


EXECUTE_RECEIPT = _receipt("svc.runtime.intent_execute.response/1.0", "svc-runtime-execute")
AGENT_RECEIPT = _receipt("svc.agent.admission.response/1.0", "svc-agent-admission")
RECEIPT = f.either(EXECUTE_RECEIPT, AGENT_RECEIPT)
_STATUS: dict[str, f.Form] = {"schema_version": f.version("svc.runtime.admission_status/1.0"), "proof_id": is_proof_id}
ADMISSION_STATUS = f.by(
    "state", pending=f.having(**_STATUS), approval_required=f.having(**_STATUS, receipt=RECEIPT, expires_at=is_time)
)

# AEP, envelope and proof record

_AGENT = f.members(id=f.is_name, framework_=f.is_name, bound=f.is_boolean)
_OF_CALL: dict[str, f.Form] = {"run_": f.RUN, "tool_call_id_": f.is_name, "traceparent_": f.is_traceparent}
SUBJECT = f.by(
    "kind",
    execute=f.members(kind=f.is_name, intent_id=f.is_name, action=f.is_action),
    admission=f.members(
        kind=f.is_name, agent=_AGENT, action=f.is_action, tool_=f.is_name, parent_proof_id_=is_proof_id, **_OF_CALL
    ),
    outcome=f.members(
        kind=f.is_name, agent=_AGENT, parent_proof_id=is_proof_id, result=f.one_of("succeeded", "failed"), **_OF_CALL
    ),
    close=f.members(
        kind=f.is_name, agent=_AGENT, run=f.RUN, count=f.is_index, members_hash=f.is_hash, traceparent_=f.is_traceparent
    ),
)


def _fits_aep(aep: Any) -> bool:
    has_artifacts = aep["subject"]["kind"] not in ("outcome", "close") and aep["decision"]["effect"] == "ADMIT"
    fits_effect = aep["valid_until"].keys() == {*KINDS} if has_artifacts else len(aep["valid_until"]) == 1
    return bool(fits_effect and aep["execution_id"] == f"exec_{aep['proof_id']}")


AEP = f.members(
    _fits_aep,
    schema_version=f.version("svc.aep/1.1"),
    execution_id=lambda value: isinstance(value, str) and value.startswith("exec_"),
    proof_id=is_proof_id,
    environment=f.is_environment,
    tenant_id=f.is_tenant_id,
    subject=SUBJECT,
    request_commitment=f.is_hash,
    commitments=f.is_hashes,
    decision=f.members(effect=f.is_effect, reasons=f.is_names),
    policy=f.members(digest=f.is_hash, input_hash=f.is_hash, engine=f.one_of("cedar"), engine_version=f.is_name),
    evidence=f.members(
        fixture_ref=f.either(f.is_name, f.is_null),
        fixture_hash=f.either(f.is_hash, f.is_null),
        approval=f.or_null(
            f.members(pending_proof_id=is_proof_id, approval_hash=f.is_hash, registration_hash=f.is_hash)
        ),
    ),
    valid_until=f.VALID_UNTIL,
    accepted_at=is_time,
    salt=f.is_hash,
    key_id=f.KEY_BYTES,
)
ENVELOPE = f.members(
    payloadType=f.constant(AEP_TYPE, "wrong_payload_type"),
    payload=f.bytes_form(),
    signatures=f.items(f.members(keyid=f.KEY_BYTES, sig=f.SIGNATURE_BYTES), 1, 1, "not_one_signature"),
)
PROOF_RECORD = f.members(
    schema_version=f.version("svc.registry.proof_record/1.1"),
    proof_id=is_proof_id,
    aep_hash=f.is_hash,
    envelope=ENVELOPE,
)

# Approvals


def _is_base64url(value: Any) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= 4096 and read_base64url(value) is not None


SIGNATURE = f.by(
    "type",
    ed25519=f.members(type=f.is_name, sig=_is_base64url),
    webauthn=f.members(
        type=f.is_name, authenticator_data=_is_base64url, client_data_json=_is_base64url, sig=_is_base64url
    ),
)
STATEMENT = f.members(
    schema_version=f.version("svc.agent.approval/1.0"),
    tenant_id=f.is_tenant_id,
    proof_id=is_proof_id,
    aep_hash=f.is_hash,
    decision=f.one_of("approve", "reject"),
    registration_hash=f.is_hash,
    expires_at=is_time,
    nonce=f.is_nonce,
)
REGISTRATION = f.members(
    lambda value: value["public_key"]["kty"] == "OKP" or value["webauthn"] is not None,
    schema_version=f.version("svc.registry.approver/1.0"),
    tenant_id=f.is_tenant_id,
    approver=f.is_name,
    public_key=f.by(
        "kty",
        OKP=f.members(kty=f.is_name, crv=f.one_of("Ed25519"), x=f.is_key_id),
        EC=f.members(kty=f.is_name, crv=f.one_of("P-256"), x=f.is_key_id, y=f.is_key_id),
    ),
    webauthn=f.or_null(f.members(rp_id=f.is_name, origins=f.items(f.is_name, 16, 1), credential_id=_is_base64url)),
    salt=f.is_hash,
    signature=SIGNATURE,
)
APPROVAL_ENVELOPE = f.members(
    schema_version=f.version("svc.agent.approval.envelope/1.0"), statement=STATEMENT, signature=SIGNATURE
)

# Exports and evidence

PROOF_ENTRY, KEY_ENTRY = proof_entry(is_time), key_entry(is_time, f.KEY_BYTES)
APPROVAL = f.or_null(
    f.members(envelope=APPROVAL_ENVELOPE, registration=REGISTRATION, entry=APPROVER_ENTRY, tlog_proof=TEXT_OR_NULL)
)
_STATUSES: dict[str, f.Form] = dict.fromkeys(KINDS, f.is_status)
_VERDICT: dict[str, f.Form] = {
    "verification_status": f.is_status,
    "can_assert_validity": f.is_boolean,
    "artifacts": f.members(**_STATUSES),
    "verified_at": f.either(is_time, f.is_null),
    "log_size": f.is_index,
}


def _is_disclosure(one: Any) -> bool:
    return isinstance(one, list) and len(one) == 3 and f.is_hash(one[0]) and f.is_text(one[1]) and one[1] != ""


_KEY: dict[str, f.Form] = {"entry": KEY_ENTRY, "tlog_proof": TEXT_OR_NULL}
_EVIDENCE: dict[str, f.Form] = {
    "proof_record": PROOF_RECORD,
    "entry": PROOF_ENTRY,
    "key": f.members(**_KEY),
    "approval": APPROVAL,
    "disclosures": f.items(_is_disclosure),
    "tlog_proof": TEXT_OR_NULL,
}
_INCLUSION: dict[str, f.Form] = {
    "leaf_index": f.is_index,
    "tree_size": f.is_index,
    "path": f.items(f.bytes_form(32), 64),
    "checkpoint": f.is_text,
}
_EXPORT: dict[str, f.Form] = {
    "schema_version": f.version("svc.registry.proof_export/1.1"),
    "proof_id": is_proof_id,
    "aep": AEP,
    "envelope": ENVELOPE,
    "proof_record": PROOF_RECORD,
    "entry": PROOF_ENTRY,
    "inclusion": f.members(**_INCLUSION),
    "key": _EVIDENCE["key"],
    "approval": APPROVAL,
    "disclosures": _EVIDENCE["disclosures"],
    "verdict": f.members(f.asserts_by_status, **_VERDICT),
    "log_vkey": lambda value: value is None or (f.is_text(value) and value != ""),
}
EXPORT = f.members(**_EXPORT)
# An engine of a later version may add members to its answers, but not to signed documents in them.
ANSWERED_VERDICT = f.having(f.asserts_by_status, **_VERDICT | {"artifacts": f.having(**_STATUSES)})
ANSWERED_EXPORT = f.having(
    **_EXPORT | {"inclusion": f.having(**_INCLUSION), "key": f.having(**_KEY), "verdict": ANSWERED_VERDICT}
)
RECEIPT_EVIDENCE = f.members(schema_version=f.version(EVIDENCE), **_EVIDENCE)
DISCLOSED = f.members(schema_version=f.version(DISCLOSURE), **_EVIDENCE)
_ERASED = f.members(
    schema_version=f.version(DISCLOSURE),
    proof_record=f.is_null,
    entry=PROOF_ENTRY,
    key=f.is_null,
    approval=f.is_null,
    disclosures=lambda value: value == [],
    tlog_proof=f.is_text,
)


def _is_run_member(value: Any) -> bool:
    is_erased = isinstance(value, dict) and "proof_record" in value and value["proof_record"] is None
    return (_ERASED if is_erased else DISCLOSED)(value)


RUN_PACKAGE = f.members(
    schema_version=f.version("svc.registry.run/1.0"), close=DISCLOSED, members=f.items(_is_run_member)
)

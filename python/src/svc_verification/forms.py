"""Validators of exports and of the evidence of receipts (spec/answers.md, 17; spec/log.md, 18, step 3).

A form is a validator: a function that raises the code of the first fault of a value.
"""

from .encoding import *
from .entries import is_ascending, is_consistent, is_list_of, is_thumbprint

MALFORMED = "malformed_export"
ABSENT = object()
AEP_TYPE = "application/vnd.svc.aep+json"
ASSERTING = ("VALID", "PASS", "VERIFIED", "TRUST_ESTABLISHED")
STATUSES = (*ASSERTING, "REVOKED", "EXPIRED", "NOT_FOUND", "BACKEND_LOOKUP_REQUIRED")
EVIDENCE = "svc.runtime.receipt_evidence/1.1"
DISCLOSURE = "svc.registry.disclosure/1.0"


that = lambda is_form: lambda value: require(is_form(value), MALFORMED)


def constant(expected, code):
    def check(value):
        require(isinstance(value, str), MALFORMED)
        require(value == expected, code)

    return check


def bytes_in(length, *alphabet):
    def check(value):
        require(isinstance(value, str), MALFORMED)
        data = from_base64(value, None, *alphabet)
        require(data is not None, "malformed_base64")
        require(length in (None, len(data)), MALFORMED)

    return check


def members(relation=lambda value: True, **forms):
    """Objects with these members, read in this order; members whose name ends in `_` are optional."""

    def check(value):
        require(isinstance(value, dict), MALFORMED)
        for name, check_member in forms.items():
            if name.rstrip("_") in value or not name.endswith("_"):
                check_member(value.get(name.rstrip("_"), ABSENT))
        require(all(name in forms or f"{name}_" in forms for name in value), "unknown_member")
        require(relation(value), MALFORMED)

    return check


def by(member, **forms):
    def check(value):
        require(isinstance(value, dict) and one_of(*forms)(value.get(member)), MALFORMED)
        forms[value[member]](value)

    return check


def items(check_item, most=2**53, least=0, code=MALFORMED):
    def check(value):
        require(isinstance(value, list) and least <= len(value) <= most, code)
        for one in value:
            check_item(one)

    return check


def or_null(check_value):
    return lambda value: None if value is None else check_value(value)


version = lambda text: constant(text, "wrong_schema_version")
word = lambda *words: that(one_of(*words))
is_text = lambda value: isinstance(value, str)
is_name = lambda value: is_text(value) and 1 <= len(value) <= 512
is_names = lambda value: is_list_of(is_name)(value) and is_ascending([code_units(one) for one in value])
is_hashes = lambda value: is_list_of(is_hash)(value) and is_ascending(value)
has_ends = lambda *kinds: exactly(**dict.fromkeys(kinds, either(is_any_time, is_null)))
NULL, HASH, TIME, NAME, INDEX, PROOF_ID = map(
    that, (is_null, is_hash, is_any_time, is_name, is_index, is_proof_id)
)
BOOLEAN = that(lambda value: isinstance(value, bool))
TEXT_OR_NULL = that(either(is_text, is_null))
KEY_BYTES = bytes_in(32, b"-_", False)
ENVIRONMENT = word("sandbox", "live")
VALID_UNTIL = that(either(has_ends("proof"), has_ends(*KINDS)))

# spec/proof.md, 8 to 10

TENANT_ID = "[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}"
ACTION = that(form("[A-Z0-9_.:-]{1,128}"))
AGENT = members(id=NAME, framework_=NAME, bound=BOOLEAN)
RUN = members(id=PROOF_ID, seq=that(lambda value: is_index(value) and value <= 10_000))
TRACE = that(form("00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"))
CALL = {"run_": RUN, "tool_call_id_": NAME, "traceparent_": TRACE}
SUBJECT = by(
    "kind",
    execute=members(kind=NAME, intent_id=NAME, action=ACTION),
    admission=members(kind=NAME, agent=AGENT, action=ACTION, tool_=NAME, parent_proof_id_=PROOF_ID, **CALL),
    outcome=members(
        kind=NAME, agent=AGENT, parent_proof_id=PROOF_ID, result=word("succeeded", "failed"), **CALL
    ),
    close=members(kind=NAME, agent=AGENT, run=RUN, count=INDEX, members_hash=HASH, traceparent_=TRACE),
)


def fits_aep(aep):
    has_artifacts = aep["subject"]["kind"] not in ("outcome", "close") and aep["decision"]["effect"] == "ADMIT"
    fits_effect = aep["valid_until"].keys() == {*KINDS} if has_artifacts else len(aep["valid_until"]) == 1
    return fits_effect and aep["execution_id"] == f"exec_{aep['proof_id']}"


AEP = members(
    fits_aep,
    schema_version=version("svc.aep/1.1"),
    execution_id=that(lambda value: is_text(value) and value.startswith("exec_")),
    proof_id=PROOF_ID,
    environment=ENVIRONMENT,
    tenant_id=that(form(TENANT_ID)),
    subject=SUBJECT,
    request_commitment=HASH,
    commitments=that(is_hashes),
    decision=members(effect=word("ADMIT", "DENY", "REQUIRE_APPROVAL"), reasons=that(is_names)),
    policy=members(digest=HASH, input_hash=HASH, engine=word("cedar"), engine_version=NAME),
    evidence=members(
        fixture_ref=that(either(is_name, is_null)),
        fixture_hash=that(either(is_hash, is_null)),
        approval=or_null(
            members(pending_proof_id=PROOF_ID, approval_hash=HASH, registration_hash=HASH),
        ),
    ),
    valid_until=VALID_UNTIL,
    accepted_at=TIME,
    salt=HASH,
    key_id=KEY_BYTES,
)
ENVELOPE = members(
    payloadType=constant(AEP_TYPE, "wrong_payload_type"),
    payload=bytes_in(None),
    signatures=items(members(keyid=KEY_BYTES, sig=bytes_in(64)), 1, 1, "not_one_signature"),
)
RECORD = members(
    schema_version=version("svc.registry.proof_record/1.1"),
    proof_id=PROOF_ID,
    aep_hash=HASH,
    envelope=ENVELOPE,
)

# spec/log.md, 11


entry_members = lambda kind, relation=lambda entry: True, **forms: members(
    relation, schema_version=version("svc.registry.entry/1.1"), type=word(kind), time=TIME, **forms
)


def fits_key_entry(entry):
    has_delegation = "delegation" in entry
    may_delegate = (entry["use"], entry["change"]) == ("aep", "activate")
    return ("from_index" in entry) == (entry["change"] == "compromise") and has_delegation <= may_delegate


PROOF_ENTRY = entry_members(
    "proof",
    is_consistent,
    proof_id=PROOF_ID,
    aep_hash=HASH,
    proof_record_hash=HASH,
    effect=word("ADMIT", "DENY", "REQUIRE_APPROVAL"),
    environment=ENVIRONMENT,
    key_id=KEY_BYTES,
    valid_until=VALID_UNTIL,
)
KEY_ENTRY = entry_members(
    "key",
    fits_key_entry,
    use=word("aep", "aep_root"),
    key_id=KEY_BYTES,
    public_key=KEY_BYTES,
    change=word("activate", "retire", "compromise"),
    from_index_=INDEX,
    delegation_=members(
        root_key_id=that(is_thumbprint), until_index=INDEX, max_proofs=INDEX, sig=bytes_in(64)
    ),
)

APPROVER_ENTRY = entry_members(
    "key", use=word("approver"), registration_hash=HASH, change=word("activate", "retire")
)

# spec/proof.md, Approvals

is_base64url = lambda value: is_text(value) and 1 <= len(value) <= 4096 and from_base64url(value, None) is not None
is_coordinate = lambda value: from_base64url(value, 32) is not None
BYTES, COORDINATE, TENANT = map(that, (is_base64url, is_coordinate, form(TENANT_ID)))
SIGNATURE = by(
    "type",
    ed25519=members(type=NAME, sig=BYTES),
    webauthn=members(type=NAME, authenticator_data=BYTES, client_data_json=BYTES, sig=BYTES),
)
STATEMENT = members(
    schema_version=version("svc.agent.approval/1.0"),
    tenant_id=TENANT,
    proof_id=PROOF_ID,
    aep_hash=HASH,
    decision=word("approve", "reject"),
    registration_hash=HASH,
    expires_at=TIME,
    nonce=that(form("[A-Za-z0-9_-]{16,128}")),
)
REGISTRATION = members(
    lambda value: value["public_key"]["kty"] == "OKP" or value["webauthn"] is not None,
    schema_version=version("svc.registry.approver/1.0"),
    tenant_id=TENANT,
    approver=NAME,
    public_key=by(
        "kty",
        OKP=members(kty=NAME, crv=word("Ed25519"), x=COORDINATE),
        EC=members(kty=NAME, crv=word("P-256"), x=COORDINATE, y=COORDINATE),
    ),
    webauthn=or_null(members(rp_id=NAME, origins=items(NAME, 16, 1), credential_id=BYTES)),
    salt=HASH,
    signature=SIGNATURE,
)
APPROVAL_ENVELOPE = members(
    schema_version=version("svc.agent.approval.envelope/1.0"), statement=STATEMENT, signature=SIGNATURE
)

# spec/answers.md, 17

APPROVAL = or_null(
    members(
        envelope=APPROVAL_ENVELOPE,
        registration=REGISTRATION,
        entry=APPROVER_ENTRY,
        tlog_proof=TEXT_OR_NULL,
    )
)
INCLUSION = members(leaf_index=INDEX, tree_size=INDEX, path=items(bytes_in(32), 64), checkpoint=that(is_text))
KEY = members(entry=KEY_ENTRY, tlog_proof=TEXT_OR_NULL)
DISCLOSURES = items(
    that(
        lambda one: isinstance(one, list) and len(one) == 3 and is_hash(one[0]) and is_text(one[1]) and one[1]
    )
)
VERDICT = members(
    lambda verdict: verdict["can_assert_validity"] == (verdict["verification_status"] in ASSERTING),
    verification_status=word(*STATUSES),
    can_assert_validity=BOOLEAN,
    artifacts=members(**dict.fromkeys(KINDS, word(*STATUSES))),
    verified_at=that(either(is_any_time, is_null)),
    log_size=INDEX,
)
EXPORT = members(
    schema_version=version("svc.registry.proof_export/1.1"),
    proof_id=PROOF_ID,
    aep=AEP,
    envelope=ENVELOPE,
    proof_record=RECORD,
    entry=PROOF_ENTRY,
    inclusion=INCLUSION,
    key=KEY,
    approval=APPROVAL,
    disclosures=DISCLOSURES,
    verdict=VERDICT,
    log_vkey=that(lambda value: value is None or is_text(value) and value != ""),
)
EVIDENCE_MEMBERS = {
    "proof_record": RECORD,
    "entry": PROOF_ENTRY,
    "key": KEY,
    "approval": APPROVAL,
    "disclosures": DISCLOSURES,
    "tlog_proof": TEXT_OR_NULL,
}
RECEIPT_EVIDENCE = members(schema_version=version(EVIDENCE), **EVIDENCE_MEMBERS)
DISCLOSED = members(schema_version=version(DISCLOSURE), **EVIDENCE_MEMBERS)

# spec/log.md, 18, a run

GONE = {"proof_record": NULL, "key": NULL, "approval": NULL, "disclosures": that(lambda value: value == []), "tlog_proof": that(is_text)}
ERASED = members(schema_version=version(DISCLOSURE), **EVIDENCE_MEMBERS | GONE)


def RUN_MEMBER(value):
    is_erased = isinstance(value, dict) and value.get("proof_record", ABSENT) is None
    (ERASED if is_erased else DISCLOSED)(value)


PACKAGE = members(schema_version=version("svc.registry.run/1.0"), close=DISCLOSED, members=items(RUN_MEMBER))

"""Registrations and approvals of approvers (spec/proof.md, Approvals)."""

from .encoding import *


def check_named(document, signed):
    """Whether the approval of an export fits the signed AEP (spec/log.md, 18, step 4)."""
    named, shown = signed["evidence"]["approval"], document["approval"]
    if named is None or shown is None:
        return named == shown
    envelope, registration, entry = shown["envelope"], shown["registration"], shown["entry"]
    statement = envelope["statement"]
    rejects, denies = statement["decision"] == "reject", signed["decision"]["effect"] == "DENY"
    return (
        document_hash(envelope) == named["approval_hash"]
        and document_hash(registration) == named["registration_hash"] == statement["registration_hash"]
        and statement["proof_id"] == named["pending_proof_id"]
        and statement["tenant_id"] == registration["tenant_id"] == signed["tenant_id"]
        and signed["accepted_at"] < statement["expires_at"]
        and denies >= rejects
        and (entry["change"], entry["registration_hash"]) == ("activate", named["registration_hash"])
    )


def is_signed(shown):
    """Whether the registered key signed registration and approval."""
    registration, envelope = shown["registration"], shown["envelope"]
    unsigned = {name: value for name, value in registration.items() if name != "signature"}
    return is_signed_by(
        registration, "svc.registry.approver", unsigned, registration["signature"]
    ) and is_signed_by(registration, "svc.agent.approval", envelope["statement"], envelope["signature"])


def is_signed_by(registration, name, document, signature):
    key, passkey = registration["public_key"], registration["webauthn"]
    if (signature["type"] == "webauthn") != (passkey is not None):
        return False
    message = pae(name, canonical(document))
    if passkey is not None:
        data, client = (bytes_of(signature[one]) for one in ("authenticator_data", "client_data_json"))
        if not is_assertion(passkey, sha256(message), data, client):
            return False
        message = data + sha256(client)
    if key["kty"] == "OKP":
        return verifies(bytes_of(key["x"]), message, bytes_of(signature["sig"]))
    point = tuple(int.from_bytes(bytes_of(key[name]), "big") for name in "xy")
    return verifies_es256(point, message, bytes_of(signature["sig"]))


def is_assertion(passkey, challenge, data, client):
    """WebAuthn 2, 7.2."""
    try:
        stated = parse_json(client)
    except Invalid:
        return False
    return (
        isinstance(stated, dict)
        and stated.get("type") == "webauthn.get"
        and stated.get("challenge") == base64url(challenge)
        and stated.get("crossOrigin") is not True
        and stated.get("origin") in passkey["origins"]
        and len(data) >= 37
        and data[:32] == sha256(passkey["rp_id"].encode())
        and data[32] & 5 == 5
    )


def bytes_of(text):
    return from_base64url(text, None)

"""Approvals and registrations of approvers (spec/proof.md, Approvals), in documents whose form was checked."""

from __future__ import annotations

from typing import Any

from .crypto import pae, verify_ed25519, verify_es256
from .encoding import base64url, canonical, document_hash, parse_json, read_base64url, sha256
from .errors import InvalidError

USER_PRESENT_AND_VERIFIED = 5


def fits_aep(shown: Any, signed: Any) -> bool:
    """Whether the approval of an export is the one that the signed AEP names (spec/log.md, 18, step 4)."""
    named = signed["evidence"]["approval"]
    if named is None or shown is None:
        return bool(named == shown)
    envelope, registration, entry = shown["envelope"], shown["registration"], shown["entry"]
    statement = envelope["statement"]
    return (
        document_hash(envelope) == named["approval_hash"]
        and document_hash(registration) == named["registration_hash"] == statement["registration_hash"]
        and statement["proof_id"] == named["pending_proof_id"]
        and statement["tenant_id"] == registration["tenant_id"] == signed["tenant_id"]
        and signed["accepted_at"] < statement["expires_at"]
        and (statement["decision"] != "reject" or signed["decision"]["effect"] == "DENY")
        and (entry["change"], entry["registration_hash"]) == ("activate", named["registration_hash"])
    )


def is_signed(shown: Any) -> bool:
    """Whether the registered key signed registration and approval."""
    registration, envelope = shown["registration"], shown["envelope"]
    unsigned = {name: value for name, value in registration.items() if name != "signature"}
    return _is_signed_by(registration, "svc.registry.approver", unsigned, registration["signature"]) and _is_signed_by(
        registration, "svc.agent.approval", envelope["statement"], envelope["signature"]
    )


def _is_signed_by(registration: Any, name: str, document: Any, signature: Any) -> bool:
    key, passkey = registration["public_key"], registration["webauthn"]
    if (signature["type"] == "webauthn") != (passkey is not None):
        return False
    message = pae(name, canonical(document))
    if passkey is not None:
        data, client = _bytes(signature["authenticator_data"]), _bytes(signature["client_data_json"])
        if not _is_assertion(passkey, sha256(message), data, client):
            return False
        message = data + sha256(client)
    if key["kty"] == "OKP":
        return verify_ed25519(_bytes(key["x"]), message, _bytes(signature["sig"]))
    return verify_es256(_bytes(key["x"]), _bytes(key["y"]), message, _bytes(signature["sig"]))


def _is_assertion(passkey: Any, challenge: bytes, data: bytes, client: bytes) -> bool:
    """Whether a WebAuthn assertion answers the challenge (WebAuthn 2, 7.2)."""
    try:
        stated = parse_json(client)
    except InvalidError:
        return False
    return (
        isinstance(stated, dict)
        and stated.get("type") == "webauthn.get"
        and stated.get("challenge") == base64url(challenge)
        and stated.get("crossOrigin") is not True
        and stated.get("origin") in passkey["origins"]
        and len(data) >= 37
        and data[:32] == sha256(passkey["rp_id"].encode())
        and data[32] & USER_PRESENT_AND_VERIFIED == USER_PRESENT_AND_VERIFIED
    )


def _bytes(text: str) -> bytes:
    return read_base64url(text) or b""

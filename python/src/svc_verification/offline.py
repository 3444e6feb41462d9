"""Verifies exports, the evidence of receipts, and tlog-proofs offline (spec/log.md, 18)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import approvals
from .crypto import pae, thumbprint, verify_ed25519
from .documents import AEP, AEP_TYPE, DISCLOSED, DISCLOSURE, EVIDENCE, EXPORT, RECEIPT_EVIDENCE
from .encoding import (
    base64_bytes,
    base64text,
    canonical,
    code_units,
    current_time,
    document_hash,
    parse_json,
    read_base64url,
    require_time,
    sha256,
    time_text,
)
from .entries import read_entry
from .errors import InvalidError, coded, require
from .forms import ASSERTING, is_ascending, is_hash, read
from .notes import Checkpoint, TlogProof, parse_tlog_proof
from .pins import AepKey, PinnedLog, Pins

MALFORMED_EXPORT = "malformed_export"
Document = str | bytes | dict[str, Any]
RECEIPT_STATUS = {"ADMIT": "ADMITTED", "DENY": "DENIED", "REQUIRE_APPROVAL": "APPROVAL_REQUIRED"}


class Undecidable(Exception):  # noqa: N818
    """The pins do not suffice to verify the document."""


@dataclass
class OfflineResult:
    """`undecidable` is why the pins do not suffice, `fault` the first failed check; both are None for a valid document.

    `included` is None without a pinned log. A status `unknown since checkpoint <size>` cannot exclude a later
    revocation. `key_state` is `unknown` when a pinned root delegated the key: the document does not show whether the
    key signed more than its `max_proofs`, or was compromised.
    """

    authentic: bool | None = None
    included: bool | None = None
    status: str = "unknown"
    fault: str | None = None
    pointer: str = ""
    undecidable: str | None = None
    aep: dict[str, Any] | None = None
    disclosed: dict[str, Any] | None = None
    withheld: int | None = None
    leaf_index: int | None = None
    checkpoint: Checkpoint | None = None
    key_state: str | None = None

    @property
    def ok(self) -> bool:
        """Whether every check that the pins allow has passed."""
        return self.fault is None and self.undecidable is None

    def summary(self) -> dict[str, Any]:
        """The result as JSON, in the form of the test vectors."""
        shown = ("authentic", "included", "status", "key_state", "fault", "disclosed", "withheld")
        return summary_of(self, () if self.undecidable else shown)


def summary_of(result: object, names: tuple[str, ...]) -> dict[str, Any]:
    values = {name: getattr(result, name) for name in (*names, "undecidable")}
    return {name: value for name, value in values.items() if value is not None}


def verify_export(
    document: Document,
    pins: Pins,
    *,
    receipt: Mapping[str, object] | None = None,
    tlog_proof: str | None = None,
    now: str | None = None,
) -> OfflineResult:
    """Verifies an export, or the evidence of a receipt.

    With `receipt`, the document must be about it. A `tlog_proof` replaces the inclusion proof of the document.
    `now` replaces the clock of the reader.
    """
    require_time(now)
    result = OfflineResult(authentic=False, included=None if pins.log is None else False)
    try:
        verify_document(result, document, pins, receipt, tlog_proof, now)
    except Undecidable as cause:
        return OfflineResult(undecidable=str(cause))
    except InvalidError as fault:
        result.fault, result.pointer = fault.code, fault.pointer
    return result


def verify_receipt_evidence(
    document: Document, receipt: Mapping[str, object], pins: Pins, *, now: str | None = None
) -> OfflineResult:
    """Verifies that evidence of a receipt binds the operator to this receipt."""
    return verify_export(document, pins, receipt=receipt, now=now)


def verify_tlog_proof(tlog_proof: str, entry: str | bytes, pins: Pins) -> OfflineResult:
    """Verifies that a log entry, given as its canonical bytes, is in the pinned log."""
    if pins.log is None:
        return OfflineResult(undecidable="no_pinned_log")
    result = OfflineResult(included=False)
    try:
        read_in = read_entry(entry.encode("utf-8", "surrogatepass") if isinstance(entry, str) else entry)
        proof = parse_tlog_proof(tlog_proof)
        result.checkpoint = pins.log.check_inclusion(read_in, proof)
    except InvalidError as fault:
        result.fault = fault.code
        return result
    result.included, result.leaf_index = True, proof.index
    result.status = f"unknown since checkpoint {result.checkpoint.size}"
    return result


def parse_document(document: Document) -> Any:
    return document if isinstance(document, dict) else parse_json(document)


# An export or evidence


def verify_document(
    result: OfflineResult,
    given: Document,
    pins: Pins,
    receipt: Mapping[str, object] | None = None,
    tlog_proof: str | None = None,
    now: str | None = None,
) -> None:
    if not pins.aep_keys:
        raise Undecidable("no_pinned_key")
    document = parse_document(given)
    signed, disclosed = read_signed(document, receipt)
    is_export = document["schema_version"] not in (EVIDENCE, DISCLOSURE)
    pinned = [key for key in pins.aep_keys if key.key_id == signed["key_id"]]
    roots = [] if pinned else _roots_of(document["key"]["entry"], pins)
    if not pinned and not roots:
        raise Undecidable("signing_key_not_pinned")
    public = pinned[0].public if pinned else read_base64url(document["key"]["entry"]["public_key"], 32) or b""
    signature = base64_bytes(document["proof_record"]["envelope"]["signatures"][0]["sig"])
    require(verify_ed25519(public, pae("svc.aep", canonical(signed)), signature), "bad_signature")
    if roots and pins.log is not None:
        _check_delegation(document["key"]["entry"], roots[0].public, pins.log.origin)
    shown = document["approval"]
    require(shown is None or approvals.is_signed(shown), "bad_approval_signature")

    def accept(status: str) -> None:
        result.authentic, result.aep, result.disclosed = True, signed, disclosed
        result.withheld = 1 + len(signed["commitments"]) - len(disclosed)
        result.key_state = "unknown" if roots else None
        result.status = status

    ends = [key.before for key in pinned if key.before is not None]
    proof_text = document.get("tlog_proof") if tlog_proof is None else tlog_proof
    if pins.log is None or (not is_export and proof_text is None):
        if ends or roots:
            raise Undecidable("no_pinned_log")
        result.included = None
        accept(_status_of(document, signed, now, "unknown"))
        return
    try:
        index, checkpoint = _find_entry(document, proof_text, pins.log)
        activated = _check_activation(document["key"], pins.log, index, "key_not_activated")
        require(not roots or activated is not None, "key_not_activated")
        if shown is not None:
            _check_activation(shown, pins.log, index, "approver_not_activated")
    except InvalidError:
        # Without a log index, signatures from before the end of the key cannot be distinguished from later ones.
        if not ends and not roots:
            accept("unknown")
        raise
    if roots:
        is_covered = _may_sign(document["key"]["entry"]["delegation"], roots, activated or 0, index)
        require(is_covered, "key_not_in_force")
    starts = [key.after for key in pinned if key.after is not None]
    require(max(starts, default=-1) < index < min(ends, default=index + 1), "key_not_in_force")
    accept(_status_of(document, signed, now, f"unknown since checkpoint {checkpoint.size}"))
    result.included, result.leaf_index, result.checkpoint = True, index, checkpoint


def _roots_of(activation: dict[str, Any], pins: Pins) -> list[AepKey]:
    """The pins of the root that a delegation names."""
    delegation = activation.get("delegation")
    return [] if delegation is None else [key for key in pins.aep_keys if key.key_id == delegation["root_key_id"]]


def _check_delegation(activation: dict[str, Any], root: bytes, origin: str) -> None:
    delegation = activation["delegation"]
    limits = {name: delegation[name] for name in ("root_key_id", "until_index", "max_proofs")}
    signed = canonical({"origin": origin, "key_id": activation["key_id"]} | limits)
    is_signed = verify_ed25519(root, pae("svc.registry.delegation", signed), base64_bytes(delegation["sig"]))
    if not is_signed:
        raise InvalidError("bad_signature", "/key/entry/delegation/sig")


def _may_sign(delegation: dict[str, Any], roots: list[AepKey], activated: int, index: int) -> bool:
    """Whether the root was allowed to delegate at `activated`, and the key to sign at `index`."""
    return (
        delegation["max_proofs"] > 0
        and index < delegation["until_index"]
        and all(root.after is None or root.after < activated for root in roots)
        and all(root.before is None or activated < root.before for root in roots)
        and all(root.compromised is None or index < root.compromised for root in roots)
    )


def read_signed(document: Any, receipt: Mapping[str, object] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The AEP and the disclosed values of a document. Checks that the parts agree with the AEP (steps 3 and 4)."""
    kind = document.get("schema_version") if isinstance(document, dict) else None
    form = {EVIDENCE: RECEIPT_EVIDENCE, DISCLOSURE: DISCLOSED}.get(str(kind), EXPORT)
    read(form, document, MALFORMED_EXPORT)
    signed = _check_parts(document, is_evidence=form is not EXPORT)
    disclosed = {name: value for _, name, value in document["disclosures"]}
    if receipt is not None:
        request_hash = disclosed.get("request_hash")
        is_stated = is_hash(request_hash) and canonical(receipt) == canonical(receipt_of(signed, str(request_hash)))
        require(is_stated, "receipt_mismatch")
    return signed, disclosed


def receipt_of(aep: dict[str, Any], request_hash: str) -> dict[str, Any]:
    """The receipt that follows from an AEP."""
    is_execute = aep["subject"]["kind"] == "execute"
    receipt = {
        "schema_version": f"svc.{'runtime.intent_execute' if is_execute else 'agent.admission'}.response/1.0",
        "receipt_id": f"svc-{'runtime-execute' if is_execute else 'agent-admission'}-{request_hash[:16]}",
        "status": RECEIPT_STATUS[aep["decision"]["effect"]],
        "request_hash": request_hash,
        "registry_proof_id": aep["proof_id"],
        "vee_recorded": True,
    }
    return receipt | {"response_hash": document_hash(receipt)}


def _read_aep(payload: bytes, *, is_evidence: bool) -> Any:
    try:
        signed = parse_json(payload)
        require(canonical(signed) == payload, "not canonical")
        if is_evidence:
            read(AEP, signed, MALFORMED_EXPORT)
    except InvalidError as fault:
        raise InvalidError(MALFORMED_EXPORT if is_evidence else "payload_not_canonical") from fault
    return signed


def _check_parts(document: dict[str, Any], *, is_evidence: bool) -> dict[str, Any]:
    """Step 4: the signed AEP, from which every other part follows."""
    record, entry = document["proof_record"], document["entry"]
    signed_in = record["envelope"] if is_evidence else document["envelope"]
    payload, signature = base64_bytes(signed_in["payload"]), signed_in["signatures"][0]
    signed: dict[str, Any] = _read_aep(payload, is_evidence=is_evidence)
    require(is_evidence or canonical(document["aep"]) == payload, "payload_mismatch")
    own_id = signed["proof_id"]
    require(entry["proof_id"] == own_id and document.get("proof_id", own_id) == own_id, "proof_id_mismatch")
    activation, key_id = document["key"]["entry"], signed["key_id"]
    require(signature["keyid"] == key_id and activation["key_id"] == key_id, "key_id_mismatch")
    require((activation["use"], activation["change"]) == ("aep", "activate"), "key_id_mismatch")
    require(thumbprint(read_base64url(activation["public_key"], 32) or b"") == key_id, "key_id_mismatch")
    rebuilt = {
        "schema_version": "svc.registry.proof_record/1.1",
        "proof_id": own_id,
        "aep_hash": sha256(payload).hex(),
        "envelope": {
            "payloadType": AEP_TYPE,
            "payload": base64text(payload),
            "signatures": [{"keyid": key_id, "sig": signature["sig"]}],
        },
    }
    require(record == rebuilt, "proof_record_mismatch")
    repeated = {name: signed[name] for name in ("environment", "key_id", "valid_until")}
    repeated |= {"effect": signed["decision"]["effect"], "time": signed["accepted_at"]}
    require(all(entry[name] == value for name, value in repeated.items()), "entry_mismatch")
    require(entry["aep_hash"] == rebuilt["aep_hash"], "aep_hash_mismatch")
    require(entry["proof_record_hash"] == document_hash(rebuilt), "proof_record_hash_mismatch")
    for one in document["disclosures"]:
        named = [signed["request_commitment"]] if one[1] == "request_hash" else signed["commitments"]
        require(document_hash(one) in named, "disclosure_mismatch")
    require(is_ascending([code_units(one[1]) for one in document["disclosures"]]), "disclosure_mismatch")
    require(approvals.fits_aep(document["approval"], signed), "approval_mismatch")
    return signed


def _find_entry(document: dict[str, Any], tlog_proof: str | None, log: PinnedLog) -> tuple[int, Checkpoint]:
    if tlog_proof is not None:
        proof, tree_size = parse_tlog_proof(tlog_proof), None
    else:
        own = document["inclusion"]
        path = [base64_bytes(one) for one in own["path"]]
        proof, tree_size = TlogProof(own["leaf_index"], path, own["checkpoint"]), own["tree_size"]
    return proof.index, log.check_inclusion(document["entry"], proof, tree_size=tree_size)


def _check_activation(activated: dict[str, Any], log: PinnedLog, below: int, code: str) -> int | None:
    """The index of the activation; None when the document does not prove it."""
    if activated["tlog_proof"] is None:
        return None
    with coded(code):
        proof = parse_tlog_proof(activated["tlog_proof"])
        log.check_inclusion(activated["entry"], proof, needs_quorum=False)
        require(proof.index < below, code)
    return proof.index


def _status_of(document: dict[str, Any], signed: dict[str, Any], now: str | None, otherwise: str) -> str:
    """The verdict in an export is unsigned: it can withdraw validity, but not assert it."""
    stated: str = document.get("verdict", {}).get("verification_status", ASSERTING[0])
    if stated not in ASSERTING:
        return stated
    end = signed["valid_until"]["proof"]
    return "EXPIRED" if end is not None and end <= (now or time_text(current_time())) else otherwise

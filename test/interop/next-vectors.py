"""Computes protocol/vectors/next.json from spec/, with the package in python/.

Prints the document. The keys are public test keys.
"""

import hashlib
import hmac
import json

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from reducer import PublicLog
from svc_verification.crypto import pae
from svc_verification.encoding import base64text, base64url, canonical, document_hash, sha256
from svc_verification.entries import aep_key_key
from trees import inclusion_path, lookup, map_root, tree_root

ORIGIN = "log.example/svc"

# Signatures


class Ed25519Key:
    """An Ed25519 key whose seed repeats the byte `number` 32 times."""

    algorithm = "ed25519"

    def __init__(self, number):
        self.key = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
        self.public = self.key.public_key().public_bytes_raw()
        self.jwk = {"crv": "Ed25519", "kty": "OKP", "x": base64url(self.public)}
        self.id = base64url(sha256(canonical(self.jwk)))

    def sign_bytes(self, message):
        return self.key.sign(message)

    def sign(self, name, payload):
        return base64text(self.sign_bytes(pae(name, payload)))


ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def multiple_of_base(scalar):
    numbers = ec.derive_private_key(scalar, ec.SECP256R1()).public_key().public_numbers()
    return numbers.x, numbers.y


class EcdsaKey:
    """An ES256 key with the private scalar `number`. Its signatures reveal the scalar: nonces are message hashes."""

    def __init__(self, number):
        self.scalar = number
        x, y = (base64url(part.to_bytes(32, "big")) for part in multiple_of_base(number))
        self.jwk = {"crv": "P-256", "kty": "EC", "x": x, "y": y}
        self.id = base64url(sha256(canonical(self.jwk)))

    def sign_bytes(self, message):
        digest = int.from_bytes(sha256(message), "big")
        r = multiple_of_base(digest % ORDER)[0] % ORDER
        s = pow(digest, -1, ORDER) * (digest + r * self.scalar) % ORDER
        return encode_dss_signature(r, s)


root_key, worker_key, verifier_key, log_key = (Ed25519Key(n) for n in (1, 2, 3, 4))


# Documents of a proof


def subject_of(request, close):
    kept = ("action", "tool", "parent_proof_id", "result", "run", "tool_call_id", "traceparent")
    agent = request["agent"] | {"bound": True}
    members = {"kind": request["kind"], "agent": agent} | (close or {})
    return members | {name: request[name] for name in kept if name in request}


class Proof:
    """The documents of one decision about one request, signed with the worker's key."""

    def __init__(
        self, number, request, effect, accepted_at, reasons=(), approval=None, budget=None, close=None
    ):
        self.id = f"019aa2c1e07b70008a3e5d6b7c8d9e{number:02x}"
        self.effect, self.accepted_at = effect, accepted_at
        self.seed = sha256(self.id.encode())
        self.request_hash = document_hash(request)
        named = {"request_hash": self.request_hash}
        named |= {f"fact.{name}": value for name, value in request.get("facts", {}).items()}
        named |= {name: request[name] for name in ("arguments_hash", "result_hash") if name in request}
        budgets = {} if budget is None else {"daily_refunds": budget}
        named |= {
            f"budget.{name}": {"window": {"day": "2026-11-22"}} | value for name, value in budgets.items()
        }
        self.disclosures = [[self.salt(name), name, named[name]] for name in sorted(named)]
        agent = request["agent"]
        self.policy_input = {
            "schema_version": "svc.policy.input/1.1",
            "salt": self.salt("input"),
            "tenant": {"tenant_id": request["tenant_id"], "environment": "sandbox"},
            "environment": "sandbox",
            "lane": "agent",
            "action": request.get("action"),
            "agent": {"id": agent["id"], "framework": agent.get("framework"), "bound": True},
            "tool": request.get("tool"),
            "fixture": None,
            "facts": request.get("facts", {}),
            "approval": approval
            and {"approver": "ops-lead", "registration_hash": approval["registration_hash"]},
            "budgets": budgets,
        }
        has_artifacts = effect == "ADMIT" and request["kind"] == "admission"
        self.ends = ALL_ENDS if has_artifacts else {"proof": None}
        self.aep = {
            "schema_version": "svc.aep/1.1",
            "execution_id": f"exec_{self.id}",
            "proof_id": self.id,
            "environment": "sandbox",
            "tenant_id": request["tenant_id"],
            "subject": subject_of(request, close),
            "request_commitment": self.commitment("request_hash"),
            "commitments": sorted(self.commitment(name) for name in named if name != "request_hash"),
            "decision": {"effect": effect, "reasons": list(reasons)},
            "policy": {
                "digest": document_hash(manifest),
                "input_hash": document_hash(self.policy_input),
                "engine": "cedar",
                "engine_version": "4.13.0",
            },
            "evidence": {"fixture_ref": None, "fixture_hash": None, "approval": approval},
            "valid_until": self.ends,
            "accepted_at": accepted_at,
            "salt": self.salt("aep"),
            "key_id": worker_key.id,
        }
        payload = canonical(self.aep)
        self.aep_hash = sha256(payload).hex()
        signature = {"keyid": worker_key.id, "sig": worker_key.sign("svc.aep", payload)}
        statuses = {"ADMIT": "ADMITTED", "DENY": "DENIED", "REQUIRE_APPROVAL": "APPROVAL_REQUIRED"}
        receipt = {
            "schema_version": "svc.agent.admission.response/1.0",
            "receipt_id": f"svc-agent-admission-{self.request_hash[:16]}",
            "status": statuses[effect],
            "request_hash": self.request_hash,
            "registry_proof_id": self.id,
            "vee_recorded": True,
        }
        self.receipt = receipt | {"response_hash": document_hash(receipt)}
        self.proof_record = {
            "schema_version": "svc.registry.proof_record/1.1",
            "proof_id": self.id,
            "aep_hash": self.aep_hash,
            "envelope": {
                "payloadType": "application/vnd.svc.aep+json",
                "payload": base64text(payload),
                "signatures": [signature],
            },
        }
        self.proof_record_hash = document_hash(self.proof_record)
        self.entry = entry(
            "proof",
            accepted_at,
            proof_id=self.id,
            aep_hash=self.aep_hash,
            proof_record_hash=self.proof_record_hash,
            effect=effect,
            environment="sandbox",
            key_id=worker_key.id,
            valid_until=self.ends,
        )

    def commitment(self, name):
        return document_hash(next(one for one in self.disclosures if one[1] == name))

    def salt(self, name):
        return hmac.new(self.seed, name.encode(), hashlib.sha256).hexdigest()


def entry(kind, time, **members):
    return {"schema_version": "svc.registry.entry/1.1", "type": kind, "time": time} | members


def verdict(time, previous, to, expired_through, failed=(), restored=()):
    unsigned = entry(
        "verdict",
        time,
        previous=previous,
        to=to,
        root=base64text(tree_root([canonical(one) for one in log[:to]])),
        failed=list(failed),
        restored=list(restored),
        expired_through=expired_through,
        key_id=verifier_key.id,
    )
    signed = canonical({"origin": ORIGIN} | unsigned)
    return unsigned | {"sig": verifier_key.sign("svc.registry.verdict", signed)}


# The worked log


def time(minute, second=0):
    return f"2026-11-22T08:{minute:02}:{second:02}.000Z"


ALL_ENDS = {"proof": None, "passport": time(30), "certificate": time(40), "trust": time(30)}
WORKER_KEY_INDEX = 2

manifest = {
    "schema_version": "svc.policy.manifest/1.1",
    "engine": "cedar",
    "engine_version": "4.13.0",
    "engine_sha256": "00" * 32,
    "schema_sha256": "00" * 32,
    "policies_sha256": {"allow-refunds": "00" * 32, "approve-above-500": "00" * 32},
    "counters": {
        "daily_refunds": {"actions": ["ISSUE_REFUND"], "sum": "amount", "per": "agent", "window": "day"}
    },
}
delegation = {
    "origin": ORIGIN,
    "key_id": worker_key.id,
    "root_key_id": root_key.id,
    "until_index": 1000000,
    "max_proofs": 500000,
}
signed_delegation = {name: delegation[name] for name in ("root_key_id", "until_index", "max_proofs")} | {
    "sig": root_key.sign("svc.registry.delegation", canonical(delegation))
}

key_hash = sha256(f"{ORIGIN}\n".encode() + b"\x01" + log_key.public)[:4]
vkey = f"{ORIGIN}+{key_hash.hex()}+" + base64text(b"\x01" + log_key.public)


def assertion(key, name, document):
    """Returns a WebAuthn assertion with the flags UP and UV and the signature counter 0."""
    client_data = {
        "type": "webauthn.get",
        "challenge": base64url(sha256(pae(name, canonical(document)))),
        "origin": "https://approve.example",
        "crossOrigin": False,
    }
    client_data_json = json.dumps(client_data, separators=(",", ":")).encode()
    authenticator_data = sha256(b"approve.example") + b"\x05" + bytes(4)
    return {
        "type": "webauthn",
        "authenticator_data": base64url(authenticator_data),
        "client_data_json": base64url(client_data_json),
        "sig": base64url(key.sign_bytes(authenticator_data + sha256(client_data_json))),
    }


def approver_signature(key, name, document):
    if isinstance(key, EcdsaKey):
        return assertion(key, name, document)
    return {"type": "ed25519", "sig": base64url(key.sign_bytes(pae(name, canonical(document))))}


def registration_of(approver, key, webauthn):
    unsigned = {
        "schema_version": "svc.registry.approver/1.0",
        "tenant_id": "acme",
        "approver": approver,
        "public_key": key.jwk,
        "webauthn": webauthn,
        "salt": "11" * 32,
    }
    return unsigned | {"signature": approver_signature(key, "svc.registry.approver", unsigned)}


def approval_of(key, registration, pending, decision, nonce):
    statement = {
        "schema_version": "svc.agent.approval/1.0",
        "tenant_id": "acme",
        "proof_id": pending.id,
        "aep_hash": pending.aep_hash,
        "decision": decision,
        "registration_hash": document_hash(registration),
        "expires_at": time(20),
        "nonce": nonce,
    }
    return {
        "schema_version": "svc.agent.approval.envelope/1.0",
        "statement": statement,
        "signature": approver_signature(key, "svc.agent.approval", statement),
    }


def caused_by(approval):
    """Returns the member `evidence.approval` of the second decision that an approval causes."""
    statement = approval["statement"]
    return {
        "pending_proof_id": statement["proof_id"],
        "approval_hash": document_hash(approval),
        "registration_hash": statement["registration_hash"],
    }


passkey, plain_key = EcdsaKey(5), Ed25519Key(6)
relying_party = {
    "rp_id": "approve.example",
    "origins": ["https://approve.example"],
    "credential_id": base64url(b"\x07" * 16),
}
registrations = [
    registration_of("ops-lead", passkey, relying_party),
    registration_of("ops-deputy", plain_key, None),
]


def key_entry(second, use, **members):
    return entry("key", time(0, second), use=use, change="activate", **members)


log = [
    key_entry(0, "log", vkey=vkey),
    key_entry(1, "aep_root", key_id=root_key.id, public_key=base64url(root_key.public)),
    key_entry(
        2,
        "aep",
        key_id=worker_key.id,
        public_key=base64url(worker_key.public),
        delegation=signed_delegation,
    ),
    key_entry(3, "verifier", key_id=verifier_key.id, public_key=base64url(verifier_key.public)),
    key_entry(4, "approver", registration_hash=document_hash(registrations[0])),
    key_entry(5, "approver", registration_hash=document_hash(registrations[1])),
]

RUN_ID = "019aa2c1d0007000b1b2b3b4b5b6b7b8"
facts = {
    "amount": {"decimal": "480.00"},
    "currency": "EUR",
    "items": 3,
    "express": False,
    "categories": ["books", "music"],
}
common = {
    "schema_version": "svc.agent.admission.envelope/1.1",
    "tenant_id": "acme",
    "agent": {"id": "support-1", "framework": "langchain"},
    "requested_at": time(1),
}
admission = common | {
    "kind": "admission",
    "nonce": "AAECAwQFBgcICQoLDA0ODw",
    "action": "ISSUE_REFUND",
    "tool": "refunds.create",
    "arguments_hash": document_hash({"amount": "480.00"}),
    "facts": facts,
    "run": {"id": RUN_ID, "seq": 0},
    "tool_call_id": "call_1",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}
larger = admission | {
    "nonce": "EBESExQVFhcYGRobHB0eHw",
    "facts": facts | {"amount": {"decimal": "900.00"}},
    "run": {"id": RUN_ID, "seq": 1},
    "tool_call_id": "call_2",
}
largest = admission | {
    "nonce": "ICEiIyQlJicoKSorLC0uLw",
    "facts": facts | {"amount": {"decimal": "9000.00"}},
    "run": {"id": RUN_ID, "seq": 2},
    "tool_call_id": "call_3",
}
held_by = ["approve-above-500"]
admitted = Proof(0x0F, admission, "ADMIT", time(1), ["allow-refunds"], budget={"before": 0, "after": 4800000})
held = Proof(
    0x10, larger, "REQUIRE_APPROVAL", time(2), held_by, budget={"before": 4800000, "after": 13800000}
)
approval = approval_of(passkey, registrations[0], held, "approve", "MDEyMzQ1Njc4OTo7PD0-Pw")
approved = Proof(
    0x11,
    larger,
    "ADMIT",
    time(3),
    ["allow-refunds"],
    approval=caused_by(approval),
    budget={"before": 4800000, "after": 13800000},
)
too_much = {"before": 13800000, "after": 103800000}
held_too = Proof(0x12, largest, "REQUIRE_APPROVAL", time(4), held_by, budget=too_much)
rejection = approval_of(plain_key, registrations[1], held_too, "reject", "QEFCQ0RFRkdISUpLTE1OTw")
denied = Proof(0x13, largest, "DENY", time(5), held_by, approval=caused_by(rejection), budget=too_much)
outcome_report = common | {
    "kind": "outcome",
    "nonce": "UFFSU1RVVldYWVpbXF1eXw",
    "parent_proof_id": admitted.id,
    "result": "succeeded",
    "result_hash": document_hash({"refunded": True}),
    "run": {"id": RUN_ID, "seq": 3},
}
outcome = Proof(0x14, outcome_report, "ADMIT", time(6))
run = [admitted, held, approved, held_too, denied, outcome]
close_request = common | {
    "kind": "close",
    "nonce": "YGFiY2RlZmdoaWprbG1ubw",
    "run": {"id": RUN_ID, "seq": 4},
}
members_hash = document_hash([[proof.id, proof.aep_hash] for proof in run])
closed = Proof(0x15, close_request, "ADMIT", time(7), close={"count": len(run), "members_hash": members_hash})
proofs = [*run, closed]

FIRST_PROOF = len(log)
reason_hash = "22" * 32
log += [proof.entry for proof in proofs]  # leaves 6 to 12
log.append(verdict(time(8), None, 13, time(8), failed=[11]))  # leaf 13
log.append(
    entry(
        "status",
        time(9),
        proof_id=admitted.id,
        artifact_kind="certificate",
        status="REVOKED",
        reason_hash=reason_hash,
    )
)  # leaf 14
log.append(entry("erasure", time(10), ranges=[[7, 8], [9, 11]], cause="erased"))  # leaf 15
log.append(verdict(time(31), 13, 16, time(31), restored=[11]))  # leaf 16
covered = len(log)

erased = (held, held_too, denied)


def proof_key(proof):
    return b"\x01" + bytes.fromhex(proof.id)


public_log = PublicLog(ORIGIN)
for one in log:
    public_log.append(canonical(one))
values = public_log.map()
key_of_worker_key = aep_key_key(0, WORKER_KEY_INDEX)

token = f"share_{base64url(bytes(range(32)))}"
token_hash = sha256(token.encode())
share = {
    "schema_version": "svc.registry.share/1.0",
    "token_hash": token_hash.hex(),
    "artifact_kind": "passport",
    "id": admitted.id,
}
package_id = "019aa2c1e07b70008a3e5d6b7c8d9e20"
package = {
    "schema_version": "svc.registry.package/1.0",
    "package_id": f"pkg_{package_id}",
    "members": [admitted.id, approved.id],
}
key_of_token, key_of_package = b"\x04" + token_hash[:16], b"\x03" + bytes.fromhex(package_id)
shares = {key_of_token: (canonical(share), b""), key_of_package: (canonical(package), b"")}

snapshot = entry(
    "snapshot",
    time(31, 2),
    logs=[
        {
            "shard": 0,
            "origin": ORIGIN,
            "size": covered,
            "root": base64text(tree_root([canonical(one) for one in log])),
            "expired_through": time(31),
            "lookup_from": 0,
        }
    ],
    map_root=base64text(map_root(values)),
    shares_root=base64text(map_root(shares)),
    valid_until=time(46),
    max_merge_delay=60,
)
log.append(snapshot)  # leaf 17
leaves = [canonical(one) for one in log]
note = f"{ORIGIN}\n{len(leaves)}\n{base64text(tree_root(leaves))}\n"
signature_line = base64text(key_hash + log_key.sign_bytes(note.encode()))
checkpoint = f"{note}\n— {ORIGIN} {signature_line}\n"


def tlog_proof(index):
    path = "".join(base64text(node) + "\n" for node in inclusion_path(index, leaves))
    return f"c2sp.org/tlog-proof@v1\nindex {index}\n{path}\n{checkpoint}"


def evidence(identifier, *lookups):
    return {
        "schema_version": "svc.public_verification.evidence/1.0",
        "identifier": identifier,
        "lookups": list(lookups),
        "snapshot": snapshot,
        "tlog_proof": tlog_proof(covered),
    }


def approval_behind(proof):
    if proof.aep["evidence"]["approval"] is None:
        return None
    number = [approved, denied].index(proof)
    index = log.index(
        key_entry(4 + number, "approver", registration_hash=document_hash(registrations[number]))
    )
    return {
        "envelope": [approval, rejection][number],
        "registration": registrations[number],
        "entry": log[index],
        "tlog_proof": tlog_proof(index),
    }


def disclosing(version, proof, *names):
    index = FIRST_PROOF + proofs.index(proof)
    return {
        "schema_version": version,
        "proof_record": proof.proof_record,
        "entry": proof.entry,
        "key": {"entry": log[WORKER_KEY_INDEX], "tlog_proof": tlog_proof(WORKER_KEY_INDEX)},
        "approval": approval_behind(proof),
        "disclosures": [one for one in proof.disclosures if one[1] in names],
        "tlog_proof": tlog_proof(index),
    }


def member(proof):
    disclosed = disclosing("svc.registry.disclosure/1.0", proof)
    gone = {"proof_record": None, "key": None, "approval": None} if proof in erased else {}
    return disclosed | gone


worker_lookup = lookup(values, key_of_worker_key)
admitted_lookup, approved_lookup = (lookup(values, proof_key(one)) for one in (admitted, approved))
absent_id = "019aa2c1e07b70008a3e5d6b7c8d9e30"

vectors = {
    "about": "Computed by test/interop/next-vectors.py. All keys are public; never use them.",
    "log_vkey": vkey,
    "requests": [admission, larger, largest, outcome_report, close_request],
    "manifest": manifest,
    "proofs": [
        {
            "leaf_index": index,
            "seed": proof.seed.hex(),
            "disclosures": proof.disclosures,
            "policy_input": proof.policy_input,
            "aep": proof.aep,
            "aep_hash": proof.aep_hash,
            "receipt": proof.receipt,
            "proof_record": proof.proof_record,
            "proof_record_hash": proof.proof_record_hash,
        }
        for index, proof in enumerate(proofs, FIRST_PROOF)
    ],
    "registrations": registrations,
    "approvals": [{"envelope": one, "approval_hash": document_hash(one)} for one in (approval, rejection)],
    "entries": [{"canonical": leaf.decode(), "leaf_hash": sha256(b"\x00" + leaf).hex()} for leaf in leaves],
    "map": [
        {"key": key.hex(), "record": record.hex(), "history": history.hex()}
        for key, (record, history) in sorted((values | shares).items())
    ],
    "map_root": map_root(values).hex(),
    "shares_root": map_root(shares).hex(),
    "empty_root": map_root({}).hex(),
    "checkpoint": checkpoint,
    "token": token,
    "evidence": [
        evidence(admitted.id, admitted_lookup, worker_lookup),
        evidence(absent_id, lookup(values, b"\x01" + bytes.fromhex(absent_id))),
        evidence(token_hash.hex(), lookup(shares, key_of_token), admitted_lookup, worker_lookup),
        evidence(
            f"pkg_{package_id}",
            lookup(shares, key_of_package),
            admitted_lookup,
            approved_lookup,
            worker_lookup,
        ),
        evidence("no such identifier"),
    ],
    "receipt_evidence": disclosing("svc.runtime.receipt_evidence/1.1", admitted, "request_hash"),
    "disclosed_export": disclosing("svc.registry.disclosure/1.0", admitted, "fact.amount", "fact.currency"),
    "run": {
        "schema_version": "svc.registry.run/1.0",
        "close": disclosing("svc.registry.disclosure/1.0", closed),
        "members": [member(proof) for proof in run],
    },
}


def lines_of(value):
    """Formats a value as JSON; an array has one line for each item."""
    if not isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    return "[\n" + ",\n".join(f"  {json.dumps(one, ensure_ascii=False)}" for one in value) + "\n]"


print("{\n" + ",\n".join(f'"{name}": {lines_of(value)}' for name, value in vectors.items()) + "\n}")

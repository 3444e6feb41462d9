"""Public answers from records, from spec/snapshot.md (records) and spec/answers.md (16)."""

from .encoding import *

# The ids of a proof (section 5): of fields with one prefix the first is the one that matches.
PREFIXES = {
    "proof_id": "",
    "registry_proof_id": "",
    "registry_entry_id": "reg_",
    "execution_id": "exec_",
    "certificate_id": "cert_",
    "cert_id": "cert_",
    "certificate_ref": "certref_",
    "passport_id": "pass_",
    "passport_ref": "passref_",
    "execution_passport_id": "execpass_",
    "trust_id": "trust_",
    "trust_ref": "trustref_",
    "trust_asset_id": "asset_",
}
GENERIC = {
    "proof": ("proof_id", "registry_entry_id", "execution_id"),
    "certificate": ("certificate_id",),
    "passport": ("passport_id",),
    "trust": ("trust_id", "trust_asset_id", "package_id"),
}
# The ids that each route resolves, by the kind of the answer.
ROUTES = {
    "proof": {"proof": ("proof_id",)},
    "certificate": {"certificate": ("certificate_id", "certificate_ref", "trust_asset_id")},
    "passport": {"passport": ("passport_id", "passport_ref", "execution_passport_id")},
    "trust": {"trust": ("trust_id", "trust_ref", "trust_asset_id")},
    "trust-asset": {"trust": ("trust_asset_id",)},
    "share": {None: ("share_token",)},
    "package": {"trust": ("package_id",)},
    "generic": {**GENERIC, None: ("share_token",)},
}
UNRESOLVED_KIND = {name: name for name in KINDS} | {"trust-asset": "trust", "package": "trust"}
POSITIVE = dict(zip(KINDS, ("VALID", "PASS", "VERIFIED", "TRUST_ESTABLISHED")))
STAGES = ["execution", "evidence", "verification", "passport", "certificate", "trust_established"]
LINKS = ("execution_id", "registry_entry_id", "proof_id", "passport_id", "certificate_id", "trust_id")


def identify(identifier):
    """The field that an identifier has the form of, and its proof id, package id or token."""
    if is_token(identifier):
        return "share_token", identifier
    if is_package_id(identifier):
        return "package_id", identifier
    proof_id = identifier[-32:]
    if is_proof_id(proof_id):
        for field, prefix in PREFIXES.items():
            if prefix == identifier[:-32]:
                return field, proof_id
    return None, None


def numbers_of(data):
    return [int.from_bytes(data[at : at + 6], "big") for at in range(0, len(data), 6)]


class Recorded:
    """A proof as its record, its history and the record of its key have it."""

    def __init__(self, proof_id, record, history):
        require(len(record) == 122 and record[0] == 1 and record[3] == 0, "record of a proof")
        flags, self.revoked = record[1:3]
        self.id, self.key_id, self.compromised_from = proof_id, None, NONE
        effect, self.is_live, self.has_artifacts, self.verdict = (
            flags & 3,
            flags >> 2 & 1,
            flags >> 3 & 1,
            flags >> 4 & 3,
        )
        self.is_gone = flags >> 6 & 1
        require(effect < 3 and self.verdict < 3 and flags < 128 and self.revoked < 16, "flags of a proof")
        require(effect == 0 or not self.has_artifacts, "artifacts of a denial")
        self.effect = ("ADMIT", "DENY", "REQUIRE_APPROVAL")[effect]
        numbers = numbers_of(record[4:58])
        self.index, accepted, self.covered_to, verified, self.activation, *ends = numbers
        self.ends = dict(zip(KINDS, ends))
        require(self.has_artifacts or set(ends[1:]) == {NONE}, "ends without artifacts")
        require(self.index != NONE and (self.activation == NONE or self.activation < self.index), "indexes")
        require({self.verdict == 0, self.covered_to == NONE, verified == NONE} != {True, False}, "no verdict")
        require(self.covered_to > self.index, "a verdict that does not cover the leaf")
        self.accepted_at = time_text(accepted)
        self.verified_at = time_text(verified) if verified != NONE else None
        self.aep_hash, self.proof_record_hash = record[58:90].hex(), record[90:].hex()
        self.history = list(self.read_history(history))
        indexes = [index for _, index, *_ in self.history]
        require(indexes == sorted({*indexes}), "events not in log order")

    @staticmethod
    def read_history(data):
        while data:
            length = 46 if data[0] == 6 else 13
            require(1 <= data[0] <= 6 and len(data) >= length, "history")
            index, at = numbers_of(data[1:13])
            kind, reason = (data[13], data[14:46].hex()) if data[0] == 6 else (None, None)
            require(kind is None or kind < 4, "history")
            yield data[0], index, time_text(at), kind, reason
            data = data[length:]

    def add_key(self, record):
        require(len(record) == 52 and record[:2] == b"\2\0", "record of a key")
        first, retired_from, self.compromised_from = numbers_of(record[34:])
        require(first == NONE or first < min(retired_from, self.compromised_from), "record of a key")
        self.key_id = base64url(record[2:34])

    @property
    def is_voided(self):
        return self.index >= self.compromised_from

    @property
    def is_confirmed(self):
        return self.verdict == 1 and not self.is_gone and not self.is_voided

    def ids(self):
        count = len(PREFIXES) if self.has_artifacts else 4
        return {field: prefix + self.id for field, prefix in list(PREFIXES.items())[:count]}

    def status(self, kind, expired_through):
        own = KINDS[: KINDS.index(kind) + 1]
        is_open = self.verdict == 0 or self.verdict == 2 and not self.is_voided
        if is_open and not self.is_gone or kind != "proof" and not self.has_artifacts:
            return "BACKEND_LOOKUP_REQUIRED"
        if self.revoked & (1 << len(own)) - 1:
            return "REVOKED"
        if not self.is_confirmed:
            return "BACKEND_LOOKUP_REQUIRED"
        if any(self.ends[one] <= milliseconds(expired_through) for one in own):
            return "EXPIRED"
        return POSITIVE[kind]

    def sequence(self):
        return [] if not self.is_confirmed else STAGES if self.has_artifacts else STAGES[:3]

    def events(self, kind, expired_through):
        own = KINDS[: KINDS.index(kind) + 1]
        yield {"event": "accepted", "at": self.accepted_at}
        yield {"event": "appended", "leaf_index": self.index}
        events, is_first = [], True
        for type_, index, at, number, reason in self.history:
            if type_ == 6:
                if KINDS[number] in own:
                    revoked = {"artifact": KINDS[number], "leaf_index": index, "reason_hash": reason}
                    events.append({"event": "revoked", "at": at} | revoked)
                continue
            name = {1: "verified", 2: "failed", 3: "verified", 4: "erased", 5: "lost"}[type_]
            size = self.covered_to if is_first and type_ < 3 else index
            is_first &= type_ >= 3
            events.append({"event": name, "at": at, "log_size": size})
        ends = {kind: self.ends[kind] for kind in ("proof", "certificate", "passport", "trust") if kind in own}
        for end in sorted({end for end in ends.values() if end <= milliseconds(expired_through)}):
            over = [kind for kind in ends if ends[kind] == end]
            events.append({"event": "expired", "at": time_text(end), "artifacts": over})
        yield from events


class State:
    """What a snapshot entry and records give."""

    def __init__(self, snapshot, proofs, packages, shares):
        self.logs = {one["shard"]: one for one in snapshot["logs"]}
        # By id; None for one that is absent.
        self.proofs, self.packages, self.shares = proofs, packages, shares

    def proof_of(self, proof_id):
        return self.proofs.get(proof_id)

    def log_of(self, proof):
        return self.logs[shard_of(proof.id)]

    def status(self, proof, kind):
        return proof.status(kind, self.log_of(proof)["expired_through"])

    def members(self, package_id):
        """The proofs of a package, or None unless all are found."""
        members = self.packages.get(package_id) or [None]
        proofs = [self.proof_of(one) for one in members]
        return proofs if all(proofs) else None

    def resolve(self, route, identifier):
        """The kind and proof or (package id, members) of a lookup, and the field that matched."""
        field, target = identify(identifier)
        kind = next((kind for kind, fields in ROUTES[route].items() if field in fields), "none")
        if kind == "none":
            return None
        if field == "share_token":
            kind, target = self.shares.get(target) or (None, None)
        if kind == "package" or field == "package_id":
            kind, found = "trust", self.members(target)
            subject = (target, found)
        else:
            found = subject = self.proof_of(target)
            if found and kind != "proof" and not found.has_artifacts:
                return None
        if not found:
            return None
        proofs = found if isinstance(found, list) else [found]
        is_recent = any(proof.index >= self.log_of(proof)["lookup_from"] for proof in proofs)
        return (kind, subject, field) if route != "generic" or is_recent else None

    def lookup(self, route, identifier):
        resolved = self.resolve(route, identifier)
        if resolved is None:
            return self.unresolved(route, identifier)
        kind, subject, field = resolved
        of_subject = self.of_package if isinstance(subject, tuple) else self.of_proof
        return self.body(kind, identifier, field) | of_subject(kind, subject)

    def answer(self, route, identifier, view=None):
        if view == "history":
            return self.history(route, identifier)
        if view == "chain":
            return self.chain(route, identifier)
        return self.lookup(route, identifier)

    @staticmethod
    def body(kind, identifier, field):
        return {
            "schema_version": "svc.public_verification.facade/1.0",
            "artifact_kind": kind,
            "identifier": identifier,
            "lookup": {"requested": identifier, "matched_on": field},
            "mutation_allowed": False,
            "serves_authoritative_truth": False,
        }

    def unresolved(self, route, identifier):
        if route == "proof":
            return {
                "schema_version": "svc.public_verification.not_found/1.0",
                "result": "NOT_FOUND",
                "verification_status": "NOT_FOUND",
                "can_assert_validity": False,
                "honest_states": ["VERIFIED", "NOT_FOUND", "REVOKED", "EXPIRED"],
                "verdict_fabricated": False,
            }
        return self.body(UNRESOLVED_KIND.get(route, "proof"), identifier, None) | {
            "verification": verification("BACKEND_LOOKUP_REQUIRED", None),
            "artifact": {},
            "trust_chain": {"available": False, "sequence": []},
            "references": {},
            "downloads": {},
            "integrity": {},
        }

    def of_proof(self, kind, proof):
        log = self.log_of(proof)
        tile, last = proof.index // 256, log["size"] // 256
        partial = f".p/{log['size'] % 256}" if tile == last else ""
        hashes = {"aep_hash": proof.aep_hash, "proof_record_hash": proof.proof_record_hash}
        sequence = proof.sequence()
        voided = proof.verdict == 0 or proof.is_voided
        key = {} if proof.key_id is None else {"key_id": proof.key_id}
        return {
            "verification": verification(self.status(proof, kind), None if voided else proof.verified_at),
            "artifact": {
                "artifact_level": f"{kind.upper()}_BACKED_PUBLIC_PROJECTION",
                "execution_id": f"exec_{proof.id}",
                "effect": proof.effect,
                "environment": "live" if proof.is_live else "sandbox",
            }
            | hashes,
            "trust_chain": {"available": len(sequence) == 6, "sequence": sequence},
            "references": proof.ids(),
            "downloads": {
                "log_entry": f"/log/entry/{proof.index}",
                "entry_bundle": tile_path("/log/tile/entries", tile) + partial,
                "tile": tile_path("/log/tile/0", tile) + partial,
                "inclusion_proof": f"/log/proof/{proof.index}",
            }
            | downloads(proof.ids()[f"{kind}_id"]),
            "integrity": {
                "log_origin": log["origin"],
                "leaf_index": proof.index,
                "accepted_at": proof.accepted_at,
            }
            | hashes
            | key,
        }

    def of_package(self, _, subject):
        package_id, proofs = subject
        statuses = [self.status(proof, "trust") for proof in proofs]
        if "REVOKED" in statuses:
            status = "REVOKED"
        elif not {*statuses} <= {"EXPIRED", "TRUST_ESTABLISHED"}:
            status = "BACKEND_LOOKUP_REQUIRED"
        else:
            status = "EXPIRED" if "EXPIRED" in statuses else "TRUST_ESTABLISHED"
        times = [one.verified_at for one in proofs if one.verified_at and not one.is_voided]
        is_available = all(len(proof.sequence()) == 6 for proof in proofs)
        return {
            "verification": verification(status, max(times, default=None)),
            "artifact": {
                "artifact_level": "PACKAGE_BACKED_PUBLIC_PROJECTION",
                "package_id": package_id,
                "members": len(proofs),
                "effect": "ADMIT",
                "environment": "live" if proofs[0].is_live else "sandbox",
            },
            "trust_chain": {"available": is_available, "sequence": STAGES if is_available else []},
            "references": {
                "package_id": package_id,
                "members": [
                    {"proof_id": proof.id, "trust_id": f"trust_{proof.id}"} | verdict(one)
                    for proof, one in zip(proofs, statuses)
                ],
            },
            "downloads": downloads(package_id),
            "integrity": {
                "members_hash": document_hash([proof.id for proof in proofs]),
                "log_origin": self.log_of(proofs[0])["origin"],
            },
        }

    def view(self, name, route, identifier):
        resolved = self.resolve(route, identifier)
        kind, proof, field = resolved or (route, None, None)
        status = self.status(proof, kind) if proof else "BACKEND_LOOKUP_REQUIRED"
        lookup = {"requested": identifier, "matched_on": field}
        head = {"artifact_kind": kind, "identifier": identifier, "lookup": lookup} | verdict(status)
        return {"schema_version": f"svc.public_verification.{name}/1.0"} | head, kind, proof

    def history(self, route, identifier):
        document, kind, proof = self.view("history", route, identifier)
        events = list(proof.events(kind, self.log_of(proof)["expired_through"])) if proof else []
        return document | {"events": events}

    def chain(self, route, identifier):
        document, _, proof = self.view("trust_chain", route, identifier)
        sequence = proof.sequence() if proof else []
        links = []
        for stage, field in zip(sequence, LINKS):
            kind = field.removesuffix("_id")
            status = self.status(proof, kind) if kind in KINDS else None
            links.append({"stage": stage, "identifier": PREFIXES[field] + proof.id} | verdict(status))
        return document | {"available": len(sequence) == 6, "sequence": sequence, "links": links}


def verdict(status):
    return {"verification_status": status, "can_assert_validity": status in POSITIVE.values()}


def verification(status, verified_at):
    at = {} if verified_at is None else {"verified_at": verified_at}
    return verdict(status) | {"frontend_recomputed": False} | at


def downloads(artifact_id):
    return {
        "checkpoint": "/log/checkpoint",
        "keys": "/api/public/keys",
        "evidence": f"/api/public/evidence/{artifact_id}",
    }

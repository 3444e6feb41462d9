"""Public answers that follow from a snapshot entry and records (spec/answers.md, 16)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .encoding import KINDS, document_hash, is_package_id, is_proof_id, is_share_token, shard_of
from .forms import ASSERTING
from .records import PREFIXES, STAGES, Recorded

Answer = dict[str, Any]
# The fields that a route resolves, by the kind of the answer. None means any kind: a share token may lead to each.
ROUTES: dict[str, dict[str | None, tuple[str, ...]]] = {
    "proof": {"proof": ("proof_id",)},
    "certificate": {"certificate": ("certificate_id", "certificate_ref", "trust_asset_id")},
    "passport": {"passport": ("passport_id", "passport_ref", "execution_passport_id")},
    "trust": {"trust": ("trust_id", "trust_ref", "trust_asset_id")},
    "trust-asset": {"trust": ("trust_asset_id",)},
    "share": {None: ("share_token",)},
    "package": {"trust": ("package_id",)},
    "generic": {
        "proof": ("proof_id", "registry_entry_id", "execution_id"),
        "certificate": ("certificate_id",),
        "passport": ("passport_id",),
        "trust": ("trust_id", "trust_asset_id", "package_id"),
        None: ("share_token",),
    },
}
UNRESOLVED_KIND = {name: name for name in KINDS} | {"trust-asset": "trust", "package": "trust"}
LINKS = ("execution_id", "registry_entry_id", "proof_id", "passport_id", "certificate_id", "trust_id")


def identify(identifier: str) -> tuple[str | None, str]:
    """The kind of identifier, as the name of a field, and the proof id, package id or token in the identifier."""
    if is_share_token(identifier):
        return "share_token", identifier
    if is_package_id(identifier):
        return "package_id", identifier
    proof_id = identifier[-32:]
    if is_proof_id(proof_id):
        for field, prefix in PREFIXES.items():
            if prefix == identifier[:-32]:
                return field, proof_id
    return None, ""


def route_of(identifier: str) -> str:
    """The default route for an identifier, by its form."""
    field, _ = identify(identifier)
    own = {None: "proof", "share_token": "share", "package_id": "package", "trust_asset_id": "trust-asset"}
    kinds = [kind for kind in KINDS if field in ROUTES[kind][kind]]
    return own.get(field) or next(iter(kinds), "generic")


@dataclass
class Resolved:
    """The artifact of a lookup: a proof, or the proofs of a package."""

    kind: str
    field: str
    proofs: list[Recorded]
    package_id: str | None


class State:
    """A snapshot entry, and records by id; None means that the map has no record."""

    def __init__(
        self,
        snapshot: dict[str, Any],
        proofs: dict[str, Recorded | None],
        packages: dict[str, list[str]],
        shares: dict[str, tuple[str, str]],
    ) -> None:
        self.logs: dict[int, dict[str, Any]] = {one["shard"]: one for one in snapshot["logs"]}
        self.proofs, self.packages, self.shares = proofs, packages, shares

    def log_of(self, proof: Recorded) -> dict[str, Any]:
        return self.logs[shard_of(proof.id)]

    def status(self, proof: Recorded, kind: str) -> str:
        return proof.status(kind, self.log_of(proof)["expired_through"])

    def resolve(self, route: str, identifier: str) -> Resolved | None:
        field, target = identify(identifier)
        kinds = [kind for kind, fields in ROUTES[route].items() if field in fields]
        if not kinds:
            return None
        kind = kinds[0]
        if kind is None:
            if target not in self.shares:
                return None
            kind, target = self.shares[target]
        is_package = kind == "package" or field == "package_id"
        members = self.packages.get(target, []) if is_package else [target]
        found = [proof for one in members if (proof := self.proofs.get(one)) is not None]
        proofs = [proof for proof in found if not proof.awaits_verdict]
        # A package resolves only if all of its members resolve.
        if not proofs or len(proofs) < len(members):
            return None
        kind = "trust" if is_package else kind
        if kind != "proof" and not is_package and not proofs[0].has_artifacts:
            return None
        is_recent = any(proof.index >= self.log_of(proof)["lookup_from"] for proof in proofs)
        if route == "generic" and not is_recent:
            return None
        return Resolved(kind, str(field), proofs, target if is_package else None)

    def answer(self, route: str, identifier: str, view: str | None = None) -> Answer:
        """The answer of the public API; `view` is `history` or `chain`."""
        resolved = self.resolve(route, identifier)
        if view is not None:
            return self._view(view, route, identifier, resolved)
        if resolved is None:
            return _unresolved(route, identifier)
        package_id = resolved.package_id
        about = self._of_proof(resolved) if package_id is None else self._of_package(package_id, resolved.proofs)
        return _head(resolved.kind, identifier, resolved.field) | about

    def _of_proof(self, resolved: Resolved) -> Answer:
        kind, (proof,) = resolved.kind, resolved.proofs
        log = self.log_of(proof)
        tile, last = proof.index // 256, log["size"] // 256
        partial = f".p/{log['size'] % 256}" if tile == last else ""
        hashes = {"aep_hash": proof.aep_hash, "proof_record_hash": proof.proof_record_hash}
        sequence = proof.sequence()
        is_unverified = proof.verdict == 0 or proof.is_voided
        key = {} if proof.key_id is None else {"key_id": proof.key_id}
        return {
            "verification": _verification(self.status(proof, kind), None if is_unverified else proof.verified_at),
            "artifact": {
                "artifact_level": f"{kind.upper()}_BACKED_PUBLIC_PROJECTION",
                "execution_id": f"exec_{proof.id}",
                "effect": proof.effect,
                "environment": "live" if proof.is_live else "sandbox",
            }
            | hashes,
            "trust_chain": {"available": sequence == STAGES, "sequence": sequence},
            "references": proof.ids(),
            "downloads": {
                "log_entry": f"/log/entry/{proof.index}",
                "entry_bundle": tile_path("/log/tile/entries", tile) + partial,
                "tile": tile_path("/log/tile/0", tile) + partial,
                "inclusion_proof": f"/log/proof/{proof.index}",
            }
            | _downloads(proof.ids()[f"{kind}_id"]),
            "integrity": {"log_origin": log["origin"], "leaf_index": proof.index, "accepted_at": proof.accepted_at}
            | hashes
            | key,
        }

    def _of_package(self, package_id: str, proofs: list[Recorded]) -> Answer:
        statuses = [self.status(proof, "trust") for proof in proofs]
        if "REVOKED" in statuses:
            status = "REVOKED"
        elif not {*statuses} <= {"EXPIRED", "TRUST_ESTABLISHED"}:
            status = "BACKEND_LOOKUP_REQUIRED"
        else:
            status = "EXPIRED" if "EXPIRED" in statuses else "TRUST_ESTABLISHED"
        times = [one.verified_at for one in proofs if one.verified_at and not one.is_voided]
        is_available = all(proof.sequence() == STAGES for proof in proofs)
        return {
            "verification": _verification(status, max(times, default=None)),
            "artifact": {
                "artifact_level": "PACKAGE_BACKED_PUBLIC_PROJECTION",
                "package_id": package_id,
                "members": len(proofs),
                "effect": "ADMIT",
                "environment": "live" if all(proof.is_live for proof in proofs) else "sandbox",
            },
            "trust_chain": {"available": is_available, "sequence": STAGES if is_available else []},
            "references": {
                "package_id": package_id,
                "members": [
                    {"proof_id": proof.id, "trust_id": f"trust_{proof.id}"} | _verdict(one)
                    for proof, one in zip(proofs, statuses, strict=True)
                ],
            },
            "downloads": _downloads(package_id),
            "integrity": {
                "members_hash": document_hash([proof.id for proof in proofs]),
                "log_origin": self.log_of(proofs[0])["origin"],
            },
        }

    def _view(self, view: str, route: str, identifier: str, resolved: Resolved | None) -> Answer:
        kind, field = (resolved.kind, resolved.field) if resolved else (route, None)
        proof = resolved.proofs[0] if resolved else None
        status = self.status(proof, kind) if proof else "BACKEND_LOOKUP_REQUIRED"
        head = {
            "schema_version": f"svc.public_verification.{'history' if view == 'history' else 'trust_chain'}/1.0",
            "artifact_kind": kind,
            "identifier": identifier,
            "lookup": {"requested": identifier, "matched_on": field},
        } | _verdict(status)
        if view == "history":
            events = proof.events(kind, self.log_of(proof)["expired_through"]) if proof else ()
            return head | {"events": list(events)}
        sequence = proof.sequence() if proof else []
        links = [self._link(proof, stage, name) for stage, name in zip(sequence, LINKS, strict=False) if proof]
        return head | {"available": sequence == STAGES, "sequence": sequence, "links": links}

    def _link(self, proof: Recorded, stage: str, field: str) -> Answer:
        kind = field.removesuffix("_id")
        status = self.status(proof, kind) if kind in KINDS else None
        return {"stage": stage, "identifier": PREFIXES[field] + proof.id} | _verdict(status)


def status_in(answer: Answer) -> str:
    return str(answer.get("verification", answer)["verification_status"])


def asserts_validity(document: Any) -> bool:
    """Whether a document asserts the validity of any artifact."""
    if isinstance(document, list):
        return any(map(asserts_validity, document))
    if not isinstance(document, dict):
        return False
    return document.get("can_assert_validity") is True or any(map(asserts_validity, document.values()))


def tile_path(folder: str, number: int) -> str:
    groups = [f"{number % 1000:03}"]
    while number >= 1000:
        number //= 1000
        groups.insert(0, f"x{number % 1000:03}")
    return "/".join([folder, *groups])


def _head(kind: str, identifier: str, field: str | None) -> Answer:
    return {
        "schema_version": "svc.public_verification.facade/1.0",
        "artifact_kind": kind,
        "identifier": identifier,
        "lookup": {"requested": identifier, "matched_on": field},
        "mutation_allowed": False,
        "serves_authoritative_truth": False,
    }


def _unresolved(route: str, identifier: str) -> Answer:
    if route == "proof":
        return {
            "schema_version": "svc.public_verification.not_found/1.0",
            "result": "NOT_FOUND",
            "verification_status": "NOT_FOUND",
            "can_assert_validity": False,
            "honest_states": ["VERIFIED", "NOT_FOUND", "REVOKED", "EXPIRED"],
            "verdict_fabricated": False,
        }
    return _head(UNRESOLVED_KIND.get(route, "proof"), identifier, None) | {
        "verification": _verification("BACKEND_LOOKUP_REQUIRED", None),
        "artifact": {},
        "trust_chain": {"available": False, "sequence": []},
        "references": {},
        "downloads": {},
        "integrity": {},
    }


def _verdict(status: str | None) -> Answer:
    return {"verification_status": status, "can_assert_validity": status in ASSERTING}


def _verification(status: str, verified_at: str | None) -> Answer:
    at = {} if verified_at is None else {"verified_at": verified_at}
    return _verdict(status) | {"frontend_recomputed": False} | at


def _downloads(artifact_id: str) -> Answer:
    return {
        "checkpoint": "/log/checkpoint",
        "keys": "/api/public/keys",
        "evidence": f"/api/public/evidence/{artifact_id}",
    }

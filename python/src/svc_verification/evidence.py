"""Verifies evidence of public answers under a pinned log (spec/snapshot.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import forms as f
from .answers import ROUTES, Answer, State, asserts_validity, identify, route_of, status_in
from .encoding import (
    KINDS,
    base64_bytes,
    canonical,
    current_time,
    is_package_id,
    is_proof_id,
    is_share_token,
    milliseconds,
    parse_json,
    read_base64,
    require_time,
    sha256,
    shard_of,
)
from .entries import DAY, SNAPSHOT, aep_key_key, check_snapshot, read_entry
from .errors import InvalidError, SvcError, coded, raising, require
from .merkle import find_value
from .notes import Checkpoint, parse_tlog_proof
from .pins import PinnedLog, Pins, require_included
from .records import NONE, Recorded

MAX_AHEAD = 60_000
is_bytes = f.encoded(read_base64)
EVIDENCE = f.members(
    schema_version=f.just("svc.public_verification.evidence/1.0"),
    identifier=f.is_text,
    lookups=f.items(
        f.either(
            f.members(path=is_bytes, record=is_bytes, history=is_bytes),
            f.members(path=is_bytes, leaf=f.or_null(f.members(key=f.pattern("[0-9a-f]{34}"), value_hash=f.is_hash))),
        )
    ),
    snapshot=f.having(),
    tlog_proof=f.is_text,
)
SHARE = f.members(
    schema_version=f.just("svc.registry.share/1.0"),
    token_hash=f.is_hash,
    artifact_kind=f.one_of("proof", "passport", "certificate", "trust", "package"),
    id=f.either(is_proof_id, is_package_id),
)
PACKAGE = f.members(
    lambda value: 0 < len(value["members"]) == len({*value["members"]}) <= 100,
    schema_version=f.just("svc.registry.package/1.0"),
    package_id=is_package_id,
    members=f.items(is_proof_id),
)


@dataclass(frozen=True)
class Proved:
    """An answer that evidence proves, as of the `time` of its snapshot; ages are in seconds."""

    answer: Answer
    time: str
    valid_until: str
    age: float
    log_index: int
    tree_size: int
    checkpoint: Checkpoint


def verify_evidence(
    evidence: str | bytes,
    pins: Pins,
    *,
    identifier: str | None = None,
    route: str | None = None,
    view: str | None = None,
    now: str | None = None,
    max_age: float | None = None,
) -> Proved:
    """The answer that evidence proves.

    `identifier` is the identifier that the reader looks up; for a share, it is the token, which the evidence does not
    contain. `route` is a kind of lookup. `view` is `history` of a proof, passport, certificate or trust artifact, or
    `chain` of the last three; a view of a `trust_asset_id` needs the route `trust`. `max_age` is in seconds.

    Raises `SvcError`: `evidence_outdated` for an answer that no longer holds, else `evidence_rejected`. A revocation
    holds at any age.
    """
    require_time(now)
    route = "generic" if route == "identifier" else route
    if pins.log is None:
        raise SvcError("unusable_pin", "evidence needs pins of a log")
    with raising("evidence_rejected", "the evidence is rejected"):
        with coded("malformed_evidence"):
            document: dict[str, Any] = f.read(EVIDENCE, parse_json(evidence), "malformed_evidence")
        identifier = document["identifier"] if identifier is None else identifier
        named = sha256(identifier.encode()).hex() if is_share_token(identifier) else identifier
        require(document["identifier"] == named, "wrong_identifier")
        route = route or route_of(identifier)
        if route not in {None: ROUTES, "history": KINDS, "chain": KINDS[1:]}.get(view, ()):
            raise SvcError("invalid_input", f"/route or /view: there is no lookup {route} with the view {view}")
        snapshot = document["snapshot"]
        index, checkpoint = _open_snapshot(document, pins.log)
        state, shards = _check_lookups(document, identifier)
        moment = current_time() if now is None else milliseconds(now)
        times = [snapshot["time"]] + [one["expired_through"] for one in snapshot["logs"] if one["shard"] in shards]
        age = max(0, moment - min(map(milliseconds, times)))
        require(milliseconds(snapshot["time"]) <= moment + MAX_AHEAD, "evidence_ahead")
        answer = state.answer(route, identifier, view)
        # Even old evidence proves a revocation, which is irreversible. If the answer also reports other artifacts as
        # valid, such as members of a package, the evidence must be current.
        if status_in(answer) != "REVOKED" or asserts_validity(answer):
            with raising("evidence_outdated", "the evidence is too old by the clock of this reader"):
                require(moment < milliseconds(snapshot["valid_until"]), "evidence_expired")
                require(age < DAY and (max_age is None or age <= 1000 * max_age), "evidence_too_old")
        size = snapshot["logs"][0]["size"]
        return Proved(answer, snapshot["time"], snapshot["valid_until"], age / 1000, index, size, checkpoint)


def _open_snapshot(document: dict[str, Any], log: PinnedLog) -> tuple[int, Checkpoint]:
    proof = parse_tlog_proof(document["tlog_proof"])
    checkpoint, snapshot = log.open(proof.note), document["snapshot"]
    require(f.matches(SNAPSHOT, read_entry(canonical(snapshot))), "malformed_entry")
    require_included(snapshot, proof, checkpoint)
    check_snapshot(proof.index, snapshot, log.origin)
    return proof.index, checkpoint


class _Lookups:
    """The lookups of evidence, in order. The reader derives the key of each lookup."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.left: Iterator[Any] = iter(document["lookups"])
        self.roots = [base64_bytes(document["snapshot"][name]) for name in ("map_root", "shares_root")]

    def find(self, key: bytes) -> tuple[bytes, bytes] | None:
        lookup = next(self.left, None)
        if lookup is None:
            raise InvalidError("malformed_evidence")
        return find_value(lookup, key, self.roots[key[0] > 2])

    def find_document(self, key: bytes, form: f.Form) -> Any:
        value = self.find(key)
        if value is None:
            return None
        parsed = parse_json(value[0])
        require(f.matches(form, parsed) and canonical(parsed) == value[0] and value[1] == b"", "malformed_record")
        return parsed

    def end(self) -> None:
        require(next(self.left, None) is None, "malformed_evidence")


def _check_lookups(document: dict[str, Any], identifier: str) -> tuple[State, set[int]]:
    """The state that the lookups prove, and the shards of the proofs that were looked up."""
    lookups, snapshot = _Lookups(document), document["snapshot"]
    proofs: dict[str, Recorded | None] = {}
    packages: dict[str, list[str]] = {}
    shares: dict[str, tuple[str, str]] = {}
    field, target = identify(identifier)
    if field == "share_token":
        share = lookups.find_document(b"\4" + bytes.fromhex(document["identifier"])[:16], SHARE)
        field = None
        if share is not None:
            is_of_package = share["artifact_kind"] == "package"
            require(share["token_hash"] == document["identifier"], "malformed_record")
            require(is_package_id(share["id"]) == is_of_package, "malformed_record")
            shares[identifier] = (share["artifact_kind"], share["id"])
            field, target = ("package_id" if is_of_package else "proof_id"), share["id"]
    wanted = [] if field is None else [target]
    if field == "package_id":
        package = lookups.find_document(b"\3" + bytes.fromhex(target[4:]), PACKAGE)
        wanted = []
        if package is not None:
            require(package["package_id"] == target, "malformed_record")
            packages[target] = wanted = package["members"]
    sizes = {one["shard"]: one["size"] for one in snapshot["logs"]}
    for proof_id in wanted:
        value = lookups.find(b"\1" + bytes.fromhex(proof_id))
        proofs[proof_id] = proof = value and Recorded(proof_id, *value)
        require(proof is None or proof.index < sizes.get(shard_of(proof_id), 0), "uncovered_record")
    _add_keys(lookups, [proof for proof in proofs.values() if proof and proof.activation != NONE])
    lookups.end()
    return State(snapshot, proofs, packages, shares), {shard_of(one) for one in wanted}


def _add_keys(lookups: _Lookups, proofs: list[Recorded]) -> None:
    keys = {proof.id: aep_key_key(shard_of(proof.id), proof.activation) for proof in proofs}
    for key in sorted({*keys.values()}):
        value = lookups.find(key)
        if value is None or value[1] != b"":
            raise InvalidError("malformed_record")
        for proof in proofs:
            if keys[proof.id] == key:
                proof.add_key(value[0])

"""Verifies evidence of public answers (spec/snapshot.md)."""

from datetime import timezone

from .answers import *
from .entries import DAY, check_snapshot, is_list_of, is_snapshot, key_key

is_bytes = lambda text: from_base64(text) is not None
is_evidence = exactly(
    schema_version=one_of("svc.public_verification.evidence/1.0"),
    identifier=lambda value: isinstance(value, str),
    lookups=is_list_of(
        either(
            exactly(path=is_bytes, record=is_bytes, history=is_bytes),
            exactly(
                path=is_bytes, leaf=either(is_null, exactly(key=form("[0-9a-f]{34}"), value_hash=is_hash))
            ),
        )
    ),
    snapshot=is_snapshot,
    tlog_proof=lambda value: isinstance(value, str),
)
is_share = exactly(
    schema_version=one_of("svc.registry.share/1.0"),
    token_hash=is_hash,
    artifact_kind=one_of(*KINDS, "package"),
    id=either(is_proof_id, is_package_id),
)
is_package = exactly(
    schema_version=one_of("svc.registry.package/1.0"),
    package_id=is_package_id,
    members=lambda value: is_list_of(is_proof_id)(value) and 0 < len(value) == len({*value}) <= 100,
)


def find(lookup, key, root):
    """The record and history of a key, or None when the path proves that the key is absent."""
    path, node = from_base64(lookup["path"]), sha256(b"")
    leaf_key = key
    if "record" in lookup:
        value = from_base64(lookup["record"]), from_base64(lookup["history"])
        node = sha256(b"\3" + key + value_hash(*value))
    else:
        value = None
        if lookup["leaf"]:
            leaf_key = bytes.fromhex(lookup["leaf"]["key"])
            require(leaf_key != key, "the leaf of an absent key has this key")
            node = sha256(b"\3" + leaf_key + bytes.fromhex(lookup["leaf"]["value_hash"]))
        else:
            require(path == b"", "the path of an empty map is not empty")
    steps = [path[at : at + 33] for at in range(0, len(path), 33)]
    bits = [step[0] for step in steps]
    require(len(path) % 33 == 0 and all(number < 136 for number in bits), "path")
    require(all(one < next for one, next in zip(bits, bits[1:])), "bits do not increase")
    require(all(bit(leaf_key, number) == bit(key, number) for number in bits), "bits of the leaf's key")
    for step in reversed(steps):
        pair = step[1:] + node if bit(key, step[0]) else node + step[1:]
        node = sha256(b"\4" + step[:1] + pair)
    require(node == root, "the path does not lead to the root")
    return value


def document(value, is_form):
    parsed = parse_json(value[0])
    require(is_form(parsed) and canonical(parsed) == value[0] and value[1] == b"", "value of the map of shares")
    return parsed


def verify(text, vkey, identifier=None, from_size=None):
    """The state that evidence proves, the answered identifier, the checked snapshot entry and the shards asked."""
    evidence = parse_json(text)
    require(is_evidence(evidence), "malformed_evidence")
    identifier = evidence["identifier"] if identifier is None else identifier
    is_secret = is_token(identifier)
    named = sha256(identifier.encode()).hex() if is_secret else identifier
    require(evidence["identifier"] == named, "evidence of another identifier")

    snapshot = evidence["snapshot"]
    index, size = open_tlog_proof(evidence["tlog_proof"], vkey, snapshot)
    require(from_size is None or size <= from_size, "checkpoint above from_size")
    check_snapshot(index, snapshot, parse_vkey(vkey)[0])
    roots = [from_base64(snapshot[name]) for name in ("map_root", "shares_root")]
    sizes = {one["shard"]: one["size"] for one in snapshot["logs"]}

    lookups = iter(evidence["lookups"])

    def search(key):
        lookup = next(lookups, None)
        require(lookup, "a lookup is missing")
        return find(lookup, key, roots[key[0] > 2])

    field, target = identify(identifier)
    proofs, packages, shares, asked = {}, {}, {}, []
    if field == "share_token":
        value = search(b"\4" + bytes.fromhex(named)[:16])
        share = value and document(value, is_share)
        field, target = None, None
        if share:
            is_of_package = share["artifact_kind"] == "package"
            require(share["token_hash"] == named, "another token")
            require(is_package_id(share["id"]) == is_of_package, "id of a share")
            shares[identifier] = (share["artifact_kind"], share["id"])
            field, target = ("package_id" if is_of_package else "proof_id"), share["id"]
    if field == "package_id":
        value = search(b"\3" + bytes.fromhex(target[4:]))
        package = value and document(value, is_package)
        if package:
            require(package["package_id"] == target, "another package")
            packages[target] = asked = package["members"]
    elif field is not None:
        asked = [target]
    for proof_id in asked:
        value = search(b"\1" + bytes.fromhex(proof_id))
        proofs[proof_id] = value and Recorded(proof_id, *value)
        if value:
            require(proofs[proof_id].index < sizes.get(shard_of(proof_id), 0), "a leaf outside of the logs")
    found = [proof for proof in proofs.values() if proof and proof.activation != NONE]
    for key in sorted({key_key(shard_of(proof.id), proof.activation) for proof in found}):
        value = search(key)
        require(value and value[1] == b"", "no record of a key")
        for proof in found:
            if key_key(shard_of(proof.id), proof.activation) == key:
                proof.add_key(value[0])
    require(next(lookups, None) is None, "too many lookups")
    state = State(snapshot, proofs, packages, shares)
    return state, identifier, snapshot, {shard_of(one) for one in asked}


def route_of(identifier):
    """The route of an answer about an identifier, when the reader names none."""
    field, _ = identify(identifier)
    if field == "proof_id" or field is None:
        return "proof"
    own = {"share_token": "share", "package_id": "package", "trust_asset_id": "trust-asset"}
    kinds = [kind for kind in KINDS if field in ROUTES[kind].get(kind, ())]
    return own.get(field) or (kinds[0] if kinds else "generic")


def run(text, vkey, identifier=None, route=None, view=None, now=None, max_age=None, from_size=None):
    state, identifier, snapshot, shards = verify(text, vkey, identifier, from_size)
    answer = state.answer(route or route_of(identifier), identifier, view)
    status = answer.get("verification", answer)["verification_status"]
    now = milliseconds(now) if now else round(datetime.now(timezone.utc).timestamp() * 1000)
    times = [snapshot["time"]] + [one["expired_through"] for one in snapshot["logs"] if one["shard"] in shards]
    age = now - min(map(milliseconds, times))
    require(milliseconds(snapshot["time"]) <= now + 60_000, "evidence from the future")
    is_current = (
        now < milliseconds(snapshot["valid_until"])
        and age < DAY
        and (max_age is None or age <= 1000 * max_age)
    )
    return {"answer" if is_current or status == "REVOKED" else "outdated": answer}

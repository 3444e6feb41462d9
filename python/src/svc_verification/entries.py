"""Entries of a log (spec/log.md, 11; spec/next.md, 7; spec/snapshot.md)."""

from .encoding import *

DAY = 24 * 60 * 60 * 1000
is_thumbprint = lambda text: from_base64url(text, 32) is not None
is_public_key = lambda text: is_thumbprint(text) and public_point(from_base64url(text, 32)) is not None
ends = lambda *kinds: exactly(**dict.fromkeys(kinds, either(is_time, is_null)))


def is_ascending(numbers):
    return all(one < next for one, next in zip(numbers, numbers[1:]))


def is_list_of(is_item):
    return lambda value: isinstance(value, list) and all(map(is_item, value))


def is_ranges(value):
    is_range = lambda one: is_list_of(is_index)(one) and len(one) == 2 and one[0] < one[1]
    return is_list_of(is_range)(value) and 1 <= len(value) <= 1000 and all(
        one[1] <= next[0] for one, next in zip(value, value[1:])
    )


def is_vkey(value):
    try:
        return isinstance(value, str) and parse_vkey(value) is not None
    except Invalid:
        return False


def entry_form(kind, **forms):
    return exactly(schema_version=one_of("svc.registry.entry/1.1"), type=one_of(kind), time=is_time, **forms)


def key_form(use, change, **forms):
    if use not in ("log", "approver"):
        forms |= {"key_id": is_thumbprint, "public_key": is_public_key}
    return entry_form("key", use=one_of(use), change=one_of(*change.split()), **forms)


is_snapshot = entry_form(
    "snapshot",
    logs=is_list_of(
        exactly(
            shard=lambda value: is_index(value) and value < 4096,
            origin=lambda value: isinstance(value, str) and value != "",
            size=is_index,
            root=is_root,
            expired_through=is_time,
            lookup_from=is_index,
        )
    ),
    map_root=is_root,
    shares_root=is_root,
    valid_until=is_time,
    max_merge_delay=lambda value: is_index(value) and value > 0,
)
is_delegation = exactly(
    root_key_id=is_thumbprint,
    until_index=is_index,
    max_proofs=is_index,
    sig=lambda text: from_base64(text, 64) is not None,
)
is_entry = either(
    entry_form(
        "proof",
        proof_id=is_proof_id,
        aep_hash=is_hash,
        proof_record_hash=is_hash,
        effect=one_of("ADMIT", "DENY", "REQUIRE_APPROVAL"),
        environment=one_of("sandbox", "live"),
        key_id=is_thumbprint,
        valid_until=either(ends("proof"), ends(*KINDS)),
    ),
    entry_form(
        "status", proof_id=is_proof_id, artifact_kind=is_kind, status=one_of("REVOKED"), reason_hash=is_hash
    ),
    key_form("aep", "activate", delegation_=is_delegation),
    key_form("aep_root", "activate"),
    key_form("aep", "retire"),
    key_form("aep_root", "retire"),
    key_form("aep", "compromise", from_index=is_index),
    key_form("aep_root", "compromise", from_index=is_index),
    key_form("verifier", "activate retire"),
    key_form("log", "activate", vkey=is_vkey),
    key_form("log", "retire", vkey=is_vkey, from_size=is_index),
    key_form("approver", "activate retire", registration_hash=is_hash),
    entry_form("erasure", ranges=is_ranges, cause=one_of("erased", "lost")),
    entry_form(
        "verdict",
        previous=either(is_index, is_null),
        to=is_index,
        root=is_root,
        failed=is_list_of(is_index),
        restored=is_list_of(is_index),
        expired_through=is_time,
        key_id=is_thumbprint,
        sig=lambda text: from_base64(text, 64) is not None,
    ),
    is_snapshot,
)


def is_consistent(entry):
    """Whether the members of an entry are consistent."""
    if entry["type"] == "proof":
        return entry["effect"] == "ADMIT" or len(entry["valid_until"]) == 1
    if entry["type"] == "verdict":
        failed, restored = entry["failed"], entry["restored"]
        listed = {*failed, *restored}
        return (
            is_ascending(failed)
            and is_ascending(restored)
            and len(listed) == len(failed) + len(restored) <= 1000
            and max(listed, default=-1) < entry["to"]
            and entry["expired_through"] <= entry["time"]
        )
    if entry["type"] == "snapshot":
        lasts = milliseconds(entry["valid_until"]) - milliseconds(entry["time"])
        return (
            entry["logs"]
            and is_ascending([one["shard"] for one in entry["logs"]])
            and all(one["lookup_from"] <= one["size"] for one in entry["logs"])
            and 0 < lasts <= DAY
        )
    return True


def read_entry(data):
    entry = parse_json(data)
    is_canonical = is_entry(entry) and canonical(entry) == data and len(data) < 2**16
    require(is_canonical and is_consistent(entry), "malformed_entry")
    return entry


def key_key(shard, index):
    """The key of the map for an AEP key."""
    return b"\2" + shard.to_bytes(2, "big") + index.to_bytes(14, "big")


def check_snapshot(index, entry, origin):
    """The rules of a snapshot entry that need no other entry."""
    require(is_snapshot(entry) and is_consistent(entry), "snapshot entry")
    first = entry["logs"][0]
    require(first["shard"] == 0 and first["origin"] == origin, "no log of shard 0 and this origin")
    require(first["size"] <= index, "size")

"""Entries of a log (spec/log.md, 11; spec/next.md, 7; spec/snapshot.md)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from .crypto import is_usable_key
from .encoding import canonical, is_proof_id, is_time, milliseconds, parse_json, read_base64url, sha256
from .errors import InvalidError, require
from .forms import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    Form,
    by,
    either,
    ends_of,
    is_ascending,
    is_count,
    is_effect,
    is_environment,
    is_hash,
    is_index,
    is_key_id,
    is_kind,
    is_null,
    is_root,
    is_text,
    items,
    matches,
    members,
    one_of,
    version,
)
from .notes import parse_vkey

DAY = 24 * 60 * 60 * 1000
MAX_LISTED = 1000


def _entry(kind: str, *rules: Form, time: Form = is_time, **forms: Form) -> Form:
    return members(*rules, schema_version=version("svc.registry.entry/1.1"), type=one_of(kind), time=time, **forms)


def _fits_effect(entry: Any) -> bool:
    return entry["effect"] == "ADMIT" or len(entry["valid_until"]) == 1


def _fits_change(entry: Any) -> bool:
    may_delegate = (entry["use"], entry["change"]) == ("aep", "activate")
    return ("from_index" in entry) == (entry["change"] == "compromise") and ("delegation" in entry) <= may_delegate


def proof_entry(is_end: Form) -> Form:
    return _entry(
        "proof",
        _fits_effect,
        time=is_end,
        proof_id=is_proof_id,
        aep_hash=is_hash,
        proof_record_hash=is_hash,
        effect=is_effect,
        environment=is_environment,
        key_id=KEY_BYTES,
        valid_until=ends_of(is_end),
    )


def key_entry(is_start: Form, is_public_key: Form) -> Form:
    return _entry(
        "key",
        _fits_change,
        time=is_start,
        use=one_of("aep", "aep_root"),
        key_id=KEY_BYTES,
        public_key=is_public_key,
        change=one_of("activate", "retire", "compromise"),
        from_index_=is_index,
        delegation_=members(root_key_id=is_key_id, until_index=is_index, max_proofs=is_index, sig=SIGNATURE_BYTES),
    )


APPROVER_ENTRY = _entry("key", use=one_of("approver"), registration_hash=is_hash, change=one_of("activate", "retire"))

# Entries in a log: besides, no time before 1970, and only keys that can verify.


def _is_since_1970(value: Any) -> bool:
    return is_time(value) and value >= "1970"


def _is_usable(value: Any) -> bool:
    key = read_base64url(value, 32)
    return key is not None and is_usable_key(key)


def _is_vkey(value: Any) -> bool:
    return isinstance(value, str) and matches(lambda text: parse_vkey(text) is not None, value)


def _is_range(value: Any) -> bool:
    return matches(items(is_index, 2, 2), value) and bool(value[0] < value[1])


def _is_disjoint(entry: Any) -> bool:
    ranges = entry["ranges"]
    return all(one[1] <= other[0] for one, other in pairwise(ranges))


def _lists_once(entry: Any) -> bool:
    failed, restored = entry["failed"], entry["restored"]
    listed = {*failed, *restored}
    return (
        is_ascending(failed)
        and is_ascending(restored)
        and len(listed) == len(failed) + len(restored) <= MAX_LISTED
        and max(listed, default=-1) < entry["to"]
        and entry["expired_through"] <= entry["time"]
    )


def _fits_snapshot(entry: Any) -> bool:
    lasts = milliseconds(entry["valid_until"]) - milliseconds(entry["time"])
    shards = [one["shard"] for one in entry["logs"]]
    return is_ascending(shards) and all(one["lookup_from"] <= one["size"] for one in entry["logs"]) and 0 < lasts <= DAY


def _logged(kind: str, *rules: Form, **forms: Form) -> Form:
    return _entry(kind, *rules, time=_is_since_1970, **forms)


SNAPSHOT = _logged(
    "snapshot",
    _fits_snapshot,
    logs=items(
        members(
            shard=lambda value: is_index(value) and value < 4096,
            origin=lambda value: is_text(value) and value != "",
            size=is_index,
            root=is_root,
            expired_through=_is_since_1970,
            lookup_from=is_index,
        ),
        least=1,
    ),
    map_root=is_root,
    shares_root=is_root,
    valid_until=_is_since_1970,
    max_merge_delay=is_count,
)
_AEP_KEY = key_entry(_is_since_1970, _is_usable)
_LOG_KEY = {"use": one_of("log"), "vkey": _is_vkey}
ENTRY = by(
    "type",
    proof=proof_entry(_is_since_1970),
    status=_logged(
        "status", proof_id=is_proof_id, artifact_kind=is_kind, status=one_of("REVOKED"), reason_hash=is_hash
    ),
    key=by(
        "use",
        aep=_AEP_KEY,
        aep_root=_AEP_KEY,
        verifier=_logged(
            "key", use=one_of("verifier"), change=one_of("activate", "retire"), key_id=is_key_id, public_key=_is_usable
        ),
        log=either(
            _logged("key", change=one_of("activate"), **_LOG_KEY),
            _logged("key", change=one_of("retire"), from_size=is_index, **_LOG_KEY),
        ),
        approver=lambda value: APPROVER_ENTRY(value) and _is_since_1970(value["time"]),
    ),
    erasure=_logged("erasure", _is_disjoint, ranges=items(_is_range, MAX_LISTED, 1), cause=one_of("erased", "lost")),
    verdict=_logged(
        "verdict",
        _lists_once,
        previous=either(is_index, is_null),
        to=is_index,
        root=is_root,
        failed=items(is_index),
        restored=items(is_index),
        expired_through=_is_since_1970,
        key_id=is_key_id,
        sig=SIGNATURE_BYTES,
    ),
    snapshot=SNAPSHOT,
)


def read_entry(data: bytes) -> dict[str, Any]:
    """An entry of any type, from its canonical bytes."""
    try:
        entry: dict[str, Any] = parse_json(data)
        require(ENTRY(entry) and canonical(entry) == data and len(data) < 2**16, "malformed_entry")
    except InvalidError as fault:
        raise InvalidError("malformed_entry", fault.pointer) from fault
    return entry


def leaf_hash(entry: Any) -> bytes:
    return sha256(b"\0" + canonical(entry))


def check_snapshot(index: int, entry: dict[str, Any], origin: str) -> None:
    """The rules of a snapshot entry that need no other entry."""
    require(matches(SNAPSHOT, entry), "malformed_entry")
    first = entry["logs"][0]
    require(first["shard"] == 0 and first["origin"] == origin, "wrong_origin")
    require(first["size"] <= index, "malformed_entry")


def aep_key_key(shard: int, index: int) -> bytes:
    """The key of the map for an AEP key."""
    return b"\2" + shard.to_bytes(2, "big") + index.to_bytes(14, "big")

"""Entries of a log (spec/log.md, 11)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from . import forms as f
from .crypto import is_usable_key
from .encoding import canonical, is_proof_id, is_time, milliseconds, parse_json, read_base64url, sha256
from .errors import coded, require
from .notes import parse_vkey

DAY = 24 * 60 * 60 * 1000
MAX_LISTED = 1000


def _entry(kind: str, *rules: f.Form, time: f.Form = is_time, **forms: f.Form) -> f.Form:
    return f.members(
        *rules, schema_version=f.version("svc.registry.entry/1.1"), type=f.one_of(kind), time=time, **forms
    )


def _fits_change(entry: Any) -> bool:
    may_delegate = (entry["use"], entry["change"]) == ("aep", "activate")
    return ("from_index" in entry) == (entry["change"] == "compromise") and ("delegation" in entry) <= may_delegate


def proof_entry(is_end: f.Form) -> f.Form:
    return _entry(
        "proof",
        lambda entry: entry["effect"] == "ADMIT" or len(entry["valid_until"]) == 1,
        time=is_end,
        proof_id=is_proof_id,
        aep_hash=f.is_hash,
        proof_record_hash=f.is_hash,
        effect=f.is_effect,
        environment=f.is_environment,
        key_id=f.KEY_BYTES,
        valid_until=f.ends_of(is_end),
    )


def key_entry(is_start: f.Form, is_public_key: f.Form) -> f.Form:
    return _entry(
        "key",
        _fits_change,
        time=is_start,
        use=f.one_of("aep", "aep_root"),
        key_id=f.KEY_BYTES,
        public_key=is_public_key,
        change=f.one_of("activate", "retire", "compromise"),
        from_index_=f.is_index,
        delegation_=f.members(
            root_key_id=f.is_key_id, until_index=f.is_index, max_proofs=f.is_index, sig=f.SIGNATURE_BYTES
        ),
    )


APPROVER_ENTRY = _entry(
    "key", use=f.one_of("approver"), registration_hash=f.is_hash, change=f.one_of("activate", "retire")
)

# Further rules for entries in a log: times are not before 1970, and keys can verify signatures.


def _is_since_1970(value: Any) -> bool:
    return is_time(value) and value >= "1970"


def _is_usable(value: Any) -> bool:
    return f.is_key_id(value) and is_usable_key(read_base64url(value) or b"")


def _lists_once(entry: Any) -> bool:
    failed, restored = entry["failed"], entry["restored"]
    listed = {*failed, *restored}
    return (
        f.is_ascending(failed)
        and f.is_ascending(restored)
        and len(listed) == len(failed) + len(restored) <= MAX_LISTED
        and max(listed, default=-1) < entry["to"]
        and entry["expired_through"] <= entry["time"]
    )


def _fits_snapshot(entry: Any) -> bool:
    lasts = milliseconds(entry["valid_until"]) - milliseconds(entry["time"])
    shards = [one["shard"] for one in entry["logs"]]
    return (
        f.is_ascending(shards) and all(one["lookup_from"] <= one["size"] for one in entry["logs"]) and 0 < lasts <= DAY
    )


def _logged(kind: str, *rules: f.Form, **forms: f.Form) -> f.Form:
    return _entry(kind, *rules, time=_is_since_1970, **forms)


SNAPSHOT = _logged(
    "snapshot",
    _fits_snapshot,
    logs=f.items(
        f.members(
            shard=lambda value: f.is_index(value) and value < 4096,
            origin=f.is_name,
            size=f.is_index,
            root=f.is_root,
            expired_through=_is_since_1970,
            lookup_from=f.is_index,
        ),
        least=1,
    ),
    map_root=f.is_root,
    shares_root=f.is_root,
    valid_until=_is_since_1970,
    max_merge_delay=f.is_count,
)
_AEP_KEY = key_entry(_is_since_1970, _is_usable)
_LOG_KEY = {
    "use": f.one_of("log"),
    "vkey": lambda value: f.is_name(value) and f.matches(lambda text: is_usable_key(parse_vkey(text).public), value),
}
ENTRY = f.by(
    "type",
    proof=proof_entry(_is_since_1970),
    status=_logged(
        "status", proof_id=is_proof_id, artifact_kind=f.is_kind, status=f.one_of("REVOKED"), reason_hash=f.is_hash
    ),
    key=f.by(
        "use",
        aep=_AEP_KEY,
        aep_root=_AEP_KEY,
        verifier=_logged(
            "key",
            use=f.one_of("verifier"),
            change=f.one_of("activate", "retire"),
            key_id=f.is_key_id,
            public_key=_is_usable,
        ),
        log=f.either(
            _logged("key", change=f.one_of("activate"), **_LOG_KEY),
            _logged("key", change=f.one_of("retire"), from_size=f.is_index, **_LOG_KEY),
        ),
        approver=lambda value: APPROVER_ENTRY(value) and _is_since_1970(value["time"]),
    ),
    erasure=_logged(
        "erasure",
        lambda entry: all(one[1] <= other[0] for one, other in pairwise(entry["ranges"])),
        ranges=f.items(lambda one: f.matches(f.items(f.is_index, 2, 2), one) and one[0] < one[1], MAX_LISTED, 1),
        cause=f.one_of("erased", "lost"),
    ),
    verdict=_logged(
        "verdict",
        _lists_once,
        previous=f.either(f.is_index, f.is_null),
        to=f.is_index,
        root=f.is_root,
        failed=f.items(f.is_index),
        restored=f.items(f.is_index),
        expired_through=_is_since_1970,
        key_id=f.is_key_id,
        sig=f.SIGNATURE_BYTES,
    ),
    snapshot=SNAPSHOT,
)


@coded("malformed_entry")
def read_entry(data: bytes) -> dict[str, Any]:
    """An entry of any type, from its canonical bytes."""
    entry: dict[str, Any] = parse_json(data)
    require(ENTRY(entry) and canonical(entry) == data and len(data) < 2**16, "malformed_entry")
    return entry


def leaf_hash(entry: Any) -> bytes:
    return sha256(b"\0" + canonical(entry))


def check_snapshot(index: int, entry: dict[str, Any], origin: str) -> None:
    """Checks that a snapshot entry covers the pinned log, up to a leaf before the entry."""
    first = entry["logs"][0]
    require(first["shard"] == 0 and first["origin"] == origin, "wrong_origin")
    require(first["size"] <= index, "malformed_entry")


def aep_key_key(shard: int, index: int) -> bytes:
    """The key in the map for the record of an AEP key."""
    return b"\2" + shard.to_bytes(2, "big") + index.to_bytes(14, "big")

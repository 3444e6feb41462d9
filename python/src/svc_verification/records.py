"""Records of proofs and AEP keys in the map of a snapshot (spec/snapshot.md, Records)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from .encoding import KINDS, base64url, milliseconds, time_text
from .errors import require
from .forms import ASSERTING, is_ascending

NONE = 2**48 - 1
LAST_TIME = milliseconds("9999-12-31T23:59:59.999Z")
# The ids of a proof (spec/encoding.md, 5). An identifier matches the first field with its prefix.
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
POSITIVE = dict(zip(KINDS, ASSERTING, strict=True))
STAGES = ["execution", "evidence", "verification", "passport", "certificate", "trust_established"]
_require = partial(require, code="malformed_record")
EVENTS = {1: "verified", 2: "failed", 3: "verified", 4: "erased", 5: "lost"}
REVOKED = 6


@dataclass(frozen=True)
class Event:
    type: int
    index: int
    at: str
    kind: str | None
    reason: str | None


def _numbers(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 6], "big") for at in range(0, len(data), 6)]


def _read_history(data: bytes) -> Iterator[Event]:
    while data:
        length = 46 if data[0] == REVOKED else 13
        _require(1 <= data[0] <= REVOKED and len(data) >= length)
        index, at = _numbers(data[1:13])
        _require(index != NONE and at <= LAST_TIME)
        kind = reason = None
        if data[0] == REVOKED:
            _require(data[13] < len(KINDS))
            kind, reason = KINDS[data[13]], data[14:46].hex()
        yield Event(data[0], index, time_text(at), kind, reason)
        data = data[length:]


class Recorded:
    """The state of a proof, from its record, its history and the record of its key."""

    def __init__(self, proof_id: str, record: bytes, history: bytes) -> None:
        _require(len(record) == 122 and record[0] == 1 and record[3] == 0)
        flags, self.revoked = record[1:3]
        self.id = proof_id
        self.key_id: str | None = None
        self.active_from = self.retired_from = self.compromised_from = NONE
        effect, self.verdict = flags & 3, flags >> 4 & 3
        self.is_live, self.has_artifacts, self.is_gone = (bool(flags >> at & 1) for at in (2, 3, 6))
        _require(effect < 3 and self.verdict < 3 and flags < 128 and self.revoked < 16)
        _require(effect == 0 or not self.has_artifacts)
        self.effect = ("ADMIT", "DENY", "REQUIRE_APPROVAL")[effect]
        self.index, accepted, self.covered_to, verified, self.activation, *ends = _numbers(record[4:58])
        self.ends = dict(zip(KINDS, ends, strict=True))
        _require(self.has_artifacts or set(ends[1:]) == {NONE})
        _require(all(time <= LAST_TIME or time == NONE for time in (verified, *ends)) and accepted <= LAST_TIME)
        _require(self.index != NONE and (self.activation == NONE or self.activation < self.index))
        _require({self.verdict == 0, self.covered_to == NONE, verified == NONE} != {True, False})
        _require(self.covered_to > self.index)
        self.accepted_at = time_text(accepted)
        self.verified_at = time_text(verified) if verified != NONE else None
        self.aep_hash, self.proof_record_hash = record[58:90].hex(), record[90:].hex()
        self.history = list(_read_history(history))
        _require(is_ascending([one.index for one in self.history]))
        # Verdict entries give a proof its verdict, and each change of the verdict is an event.
        _require((self.verdict != 0) == any(one.type <= 3 for one in self.history))

    def add_key(self, record: bytes) -> None:
        _require(len(record) == 52 and record[:2] == b"\2\0")
        self.active_from, self.retired_from, self.compromised_from = _numbers(record[34:])
        _require(self.active_from == NONE or self.active_from < min(self.retired_from, self.compromised_from))
        self.key_id = base64url(record[2:34])

    @property
    def awaits_verdict(self) -> bool:
        """Whether the proof has no verdict yet, and can still get one: no lookup resolves such a proof."""
        is_active = self.active_from <= self.index < min(self.retired_from, self.compromised_from)
        return self.verdict == 0 and not self.is_gone and is_active

    @property
    def is_voided(self) -> bool:
        return self.index >= self.compromised_from

    @property
    def is_confirmed(self) -> bool:
        return self.verdict == 1 and not self.is_gone and not self.is_voided

    def ids(self) -> dict[str, str]:
        count = len(PREFIXES) if self.has_artifacts else 4
        return {field: prefix + self.id for field, prefix in list(PREFIXES.items())[:count]}

    def status(self, kind: str, expired_through: str) -> str:
        own = KINDS[: KINDS.index(kind) + 1]
        is_open = self.verdict == 0 or (self.verdict == 2 and not self.is_voided)
        if (is_open and not self.is_gone) or (kind != "proof" and not self.has_artifacts):
            return "BACKEND_LOOKUP_REQUIRED"
        if self.revoked & (1 << len(own)) - 1:
            return "REVOKED"
        if not self.is_confirmed:
            return "BACKEND_LOOKUP_REQUIRED"
        if any(self.ends[one] <= milliseconds(expired_through) for one in own):
            return "EXPIRED"
        return POSITIVE[kind]

    def sequence(self) -> list[str]:
        return [] if not self.is_confirmed else STAGES if self.has_artifacts else STAGES[:3]

    def events(self, kind: str, expired_through: str) -> Iterator[dict[str, Any]]:
        own = KINDS[: KINDS.index(kind) + 1]
        yield {"event": "accepted", "at": self.accepted_at}
        yield {"event": "appended", "leaf_index": self.index}
        later, is_first = [], True
        for one in self.history:
            if one.kind is not None:
                if one.kind in own:
                    revoked = {"artifact": one.kind, "leaf_index": one.index, "reason_hash": one.reason}
                    later.append({"event": "revoked", "at": one.at} | revoked)
                continue
            size = self.covered_to if is_first and one.type < 3 else one.index
            is_first &= one.type >= 3
            later.append({"event": EVENTS[one.type], "at": one.at, "log_size": size})
        ends = {name: self.ends[name] for name in own}
        for end in sorted({end for end in ends.values() if end <= milliseconds(expired_through)}):
            expired = [name for name in ends if ends[name] == end]
            later.append({"event": "expired", "at": time_text(end), "artifacts": expired})
        yield from later

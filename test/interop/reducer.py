"""Computes the map of proofs from the entries of a log, by spec/log.md and spec/snapshot.md."""

import json
import sys

from svc_verification.crypto import pae, thumbprint, verify_ed25519
from svc_verification.encoding import KINDS, canonical, milliseconds, read_base64, read_base64url, sha256, shard_of
from svc_verification.entries import aep_key_key, check_snapshot, read_entry
from svc_verification.errors import InvalidError, require
from svc_verification.notes import parse_vkey
from svc_verification.records import NONE
from trees import map_root, u48


class Key:
    def __init__(self, index, entry):
        self.index, self.entry = index, entry
        self.delegation = entry.get("delegation")
        self.root, self.is_delegated_rightly = None, True
        self.retired, self.compromised, self.proofs = NONE, NONE, []

    def retired_from(self):
        """The log index from which rule 3 of key lifetimes applies (spec/log.md)."""
        limits = [self.retired + 1]
        if self.delegation:
            limits.append(self.delegation["until_index"])
            limits += [index + 1 for index in [-1, *self.proofs][self.delegation["max_proofs"] :][:1]]
        return min(*limits, NONE)

    def compromised_from(self, keys):
        """The leaf index from which the key or its root, which may be activated later, is compromised."""
        root = self.delegation and keys.get(("aep_root", self.delegation["root_key_id"]))
        return min(self.compromised, root.compromised if root else NONE)

    def state(self, index, keys):
        if self.compromised_from(keys) <= index:
            return "compromised"
        if self.index >= index or not self.is_delegated_rightly:
            return "unknown"
        return "retired" if self.retired_from() <= index else "active"

    def record(self, keys):
        first = self.index + 1
        thumbprint = read_base64url(self.entry["key_id"], 32)
        positions = (
            first if self.state(first, keys) == "active" else NONE,
            self.retired_from(),
            self.compromised_from(keys),
        )
        return bytes([2, 0]) + thumbprint + b"".join(u48(min(one, NONE)) for one in positions)


class Proof:
    def __init__(self, index, entry):
        self.index, self.entry = index, entry
        self.revoked, self.is_gone, self.history = 0, False, b""
        self.verdict, self.covered_to, self.verified_at = 0, NONE, NONE

    def add_event(self, kind, index, time, more=b""):
        self.history += bytes([kind]) + u48(index) + u48(milliseconds(time)) + more

    def record(self, keys):
        entry, valid_until = self.entry, self.entry["valid_until"]
        key = keys.get(("aep", entry["key_id"]))
        flags = ("ADMIT", "DENY", "REQUIRE_APPROVAL").index(entry["effect"])
        flags |= (entry["environment"] == "live") << 2 | (len(valid_until) > 1) << 3
        time = lambda text: NONE if text is None else milliseconds(text)
        numbers = (
            self.index,
            time(entry["time"]),
            self.covered_to,
            self.verified_at,
            key.index if key and key.index < self.index else NONE,
            *(time(valid_until.get(kind)) for kind in KINDS),
        )
        return (
            bytes([1, flags | self.verdict << 4 | self.is_gone << 6, self.revoked, 0])
            + b"".join(map(u48, numbers))
            + bytes.fromhex(entry["aep_hash"] + entry["proof_record_hash"])
        )


class PublicLog:
    """The state of a log after the entries that were appended."""

    def __init__(self, origin, shard=0):
        self.origin, self.shard = origin, shard
        self.size, self.subtrees, self.roots = 0, [], [sha256(b"")]
        self.proofs, self.proof_at, self.keys, self.activated = {}, {}, {}, set()
        self.verdict = self.snapshot = None
        self.expired_through = []
        self.may_lower = False
        self.ignored = {}

    def append(self, data):
        index, self.size = self.size, self.size + 1
        node, width = sha256(b"\0" + data), 1
        while self.subtrees and self.subtrees[-1][1] == width:
            node, width = sha256(b"\1" + self.subtrees.pop()[0] + node), 2 * width
        self.subtrees.append((node, width))
        for smaller, _ in self.subtrees[-2::-1]:
            node = sha256(b"\1" + smaller + node)
        self.roots.append(node)
        try:
            entry = read_entry(data)
            getattr(self, f"append_{entry['type']}")(index, entry)
        except InvalidError as fault:
            self.ignored[index] = str(fault)

    def append_proof(self, index, entry):
        proof_id = entry["proof_id"]
        require(shard_of(proof_id) == self.shard and proof_id not in self.proofs, "proof id")
        self.proofs[proof_id] = self.proof_at[index] = Proof(index, entry)
        key = self.keys.get(("aep", entry["key_id"]))
        if key:
            key.proofs.append(index)

    def append_status(self, index, entry):
        proof, kind = self.proofs.get(entry["proof_id"]), KINDS.index(entry["artifact_kind"])
        require(proof and not proof.revoked >> kind & 1, "no proof, or revoked before")
        proof.revoked |= 1 << kind
        proof.add_event(6, index, entry["time"], bytes([kind]) + bytes.fromhex(entry["reason_hash"]))

    def append_key(self, index, entry):
        use, change = entry["use"], entry["change"]
        if use == "log":
            name, _, public = parse_vkey(entry["vkey"])
            require(name == self.origin, "origin")
            identity = entry["vkey"]
        elif use == "approver":
            identity = public = entry["registration_hash"]
        else:
            identity, public = entry["key_id"], read_base64url(entry["public_key"], 32)
            require(identity == thumbprint(public), "key_id")
        if change == "activate":
            require(public not in self.activated, "activated before")
            self.activated.add(public)
            key = self.keys[(use, identity)] = Key(index, entry)
            if key.delegation:
                key.is_delegated_rightly = self.is_signed_by_root(index, entry)
            return
        key = self.keys.get((use, identity))
        require(key, "not activated")
        if change == "compromise":
            key.compromised = min(key.compromised, entry["from_index"])
        else:
            key.retired = min(key.retired, index)
            self.may_lower |= use == "verifier"

    def is_signed_by_root(self, index, entry):
        delegation = {name: one for name, one in entry["delegation"].items() if name != "sig"}
        root = self.keys.get(("aep_root", delegation["root_key_id"]))
        if root is None or root.state(index, self.keys) != "active":
            return False
        signed = canonical({"origin": self.origin, "key_id": entry["key_id"]} | delegation)
        public = read_base64url(root.entry["public_key"], 32)
        return verify_ed25519(public, pae("svc.registry.delegation", signed), read_base64(entry["delegation"]["sig"]))

    def append_erasure(self, index, entry):
        require(entry["ranges"][-1][1] <= index, "range")
        for start, end in entry["ranges"]:
            for proof in (self.proof_at[one] for one in range(start, end) if one in self.proof_at):
                if not proof.is_gone:
                    proof.is_gone = True
                    proof.add_event(4 if entry["cause"] == "erased" else 5, index, entry["time"])

    def append_verdict(self, index, entry):
        previous, before = self.verdict or (None, None)
        to, failed, restored = entry["to"], entry["failed"], entry["restored"]
        require(entry["previous"] == previous and to <= index, "previous, to")
        require(read_base64(entry["root"]) == self.roots[to], "root")
        if before:
            require(to >= before["to"], "to")
            require(self.may_lower or entry["expired_through"] >= before["expired_through"], "expired_through")
        key = self.keys.get(("verifier", entry["key_id"]))
        require(key and key.state(index, self.keys) == "active", "verifier key")
        signed = {"origin": self.origin} | {name: one for name, one in entry.items() if name != "sig"}
        message = pae("svc.registry.verdict", canonical(signed))
        require(verify_ed25519(read_base64url(key.entry["public_key"], 32), message, read_base64(entry["sig"])), "sig")
        self.verdict, self.may_lower = (index, entry), False
        self.expired_through.append((index, entry["expired_through"]))
        for proof in self.proofs.values():
            key = self.keys.get(("aep", proof.entry["key_id"]))
            if proof.index >= to or proof.is_gone or not key or key.state(proof.index, self.keys) != "active":
                continue
            verdict = 2 if proof.index in failed else 1 if proof.index in restored else proof.verdict or 1
            if verdict != proof.verdict:
                proof.add_event(3 if verdict == 1 and proof.verdict else verdict, index, entry["time"])
                proof.covered_to = to if proof.verdict == 0 else proof.covered_to
                proof.verdict, proof.verified_at = verdict, milliseconds(entry["time"])

    def append_snapshot(self, index, entry):
        require(self.shard == 0, "shard")
        check_snapshot(index, entry, self.origin)
        own, before = entry["logs"][0], self.snapshot and self.snapshot[1]["logs"][0]
        require(read_base64(own["root"]) == self.roots[own["size"]], "root")
        below = [end for verdict, end in self.expired_through if verdict < own["size"]]
        require(below[-1:] == [own["expired_through"]], "expired_through")
        if before:
            require(own["size"] >= before["size"] and own["lookup_from"] >= before["lookup_from"], "went back")
        self.snapshot = (index, entry)

    def map(self):
        """The map: record and history by key."""
        values = {
            b"\1" + bytes.fromhex(proof_id): (proof.record(self.keys), proof.history)
            for proof_id, proof in self.proofs.items()
        }
        for (use, _), key in self.keys.items():
            if use == "aep":
                values[aep_key_key(self.shard, key.index)] = (key.record(self.keys), b"")
        return values


if __name__ == "__main__":
    # Each line of the input is `{origin, entries}`, with entries in base64. Each line of the output has a map in hex.
    for line in sys.stdin:
        given = json.loads(line)
        log = PublicLog(given["origin"])
        for data in given["entries"]:
            log.append(read_base64(data))
        values = log.map()
        listed = [[one.hex() for one in (key, *values[key])] for key in sorted(values)]
        snapshot = log.snapshot and log.snapshot[0]
        print(json.dumps({"map": listed, "root": map_root(values).hex(), "snapshot": snapshot}))

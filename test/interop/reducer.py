"""The map of proofs that the entries of a log give, from spec/log.md, spec/next.md and spec/snapshot.md."""

import sys

from formats import *

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


class Key:
    def __init__(self, index, entry):
        self.index, self.entry = index, entry
        self.delegation = entry.get("delegation")
        self.root, self.is_delegated_rightly = None, True
        self.retired, self.compromised, self.proofs = NONE, NONE, []

    def retired_from(self):
        """Where rule 3 of section 8 begins to apply."""
        limits = [self.retired + 1]
        if self.delegation:
            limits.append(self.delegation["until_index"])
            limits += [index + 1 for index in [-1, *self.proofs][self.delegation["max_proofs"] :][:1]]
        return min(*limits, NONE)

    def compromised_from(self, keys):
        """Also by its root, whenever that is activated."""
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
        thumbprint = from_base64url(self.entry["key_id"], 32)
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
        except Invalid as fault:
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
            identity, public = entry["key_id"], from_base64url(entry["public_key"], 32)
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
        public = from_base64url(root.entry["public_key"], 32)
        return verifies(public, pae("svc.registry.delegation", signed), from_base64(entry["delegation"]["sig"]))

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
        require(from_base64(entry["root"]) == self.roots[to], "root")
        if before:
            require(to >= before["to"], "to")
            require(self.may_lower or entry["expired_through"] >= before["expired_through"], "expired_through")
        key = self.keys.get(("verifier", entry["key_id"]))
        require(key and key.state(index, self.keys) == "active", "verifier key")
        signed = {"origin": self.origin} | {name: one for name, one in entry.items() if name != "sig"}
        message = pae("svc.registry.verdict", canonical(signed))
        require(verifies(from_base64url(key.entry["public_key"], 32), message, from_base64(entry["sig"])), "sig")
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
        check_snapshot(index, entry, self.origin)
        own, before = entry["logs"][0], self.snapshot and self.snapshot[1]["logs"][0]
        require(from_base64(own["root"]) == self.roots[own["size"]], "root")
        below = [end for verdict, end in self.expired_through if verdict < own["size"]]
        require(below[-1:] == [own["expired_through"]], "expired_through")
        if before:
            require(own["size"] >= before["size"] and own["lookup_from"] >= before["lookup_from"], "went back")
        self.snapshot = (index, entry)

    def map(self):
        """Record and history by key."""
        values = {
            b"\1" + bytes.fromhex(proof_id): (proof.record(self.keys), proof.history)
            for proof_id, proof in self.proofs.items()
        }
        for (use, _), key in self.keys.items():
            if use == "aep":
                values[key_key(self.shard, key.index)] = (key.record(self.keys), b"")
        return values


def key_key(shard, index):
    """The key of the map for an AEP key."""
    return b"\2" + shard.to_bytes(2, "big") + index.to_bytes(14, "big")


def check_snapshot(index, entry, origin):
    """The rules of a snapshot entry that need no other entry."""
    require(is_snapshot(entry) and is_consistent(entry), "snapshot entry")
    first = entry["logs"][0]
    require(first["shard"] == 0 and first["origin"] == origin, "no log of shard 0 and this origin")
    require(first["size"] <= index, "size")


if __name__ == "__main__":
    # Each line of the input is `{origin, entries}`, the entries in base64; each of the output the map in hex.
    for line in sys.stdin:
        given = json.loads(line)
        log = PublicLog(given["origin"])
        for data in given["entries"]:
            log.append(from_base64(data))
        values = log.map()
        listed = [[one.hex() for one in (key, *values[key])] for key in sorted(values)]
        snapshot = log.snapshot and log.snapshot[0]
        print(json.dumps({"map": listed, "root": map_root(values).hex(), "snapshot": snapshot}))

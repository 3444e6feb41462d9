"""Paths in the Merkle tree of a log (spec/log.md, 12) and in the map of a snapshot (spec/snapshot.md)."""

from __future__ import annotations

from typing import Any

from .encoding import base64_bytes, sha256
from .errors import require

STEP = 33
KEY_BITS = 17 * 8


def inclusion_root(index: int, size: int, leaf_hash: bytes, path: list[bytes]) -> bytes | None:
    """RFC 9162, 2.1.3.2: the root to which the path leads, or None when the path has a wrong length."""
    node, last = leaf_hash, size - 1
    if index > last:
        return None
    for sibling in path:
        if last == 0:
            return None
        if index & 1 or index == last:
            node = sha256(b"\x01" + sibling + node)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            node = sha256(b"\x01" + node + sibling)
        index, last = index >> 1, last >> 1
    return node if last == 0 else None


def tree_root(nodes: list[bytes]) -> bytes:
    """RFC 6962, 2.1: the root over nodes, of which only the last may have fewer leaves than the others."""
    if len(nodes) == 1:
        return nodes[0]
    split = 1 << (len(nodes) - 1).bit_length() - 1
    return sha256(b"\x01" + tree_root(nodes[:split]) + tree_root(nodes[split:]))


def bit(key: bytes, number: int) -> int:
    return key[number // 8] >> (7 - number % 8) & 1


def value_hash(record: bytes, history: bytes) -> bytes:
    return sha256(b"\x02" + len(record).to_bytes(4, "big") + record + history)


def find_value(lookup: dict[str, Any], key: bytes, root: bytes) -> tuple[bytes, bytes] | None:
    """The record and history of a key, or None when the path proves that the key is absent."""
    path, leaf_key, value = base64_bytes(lookup["path"]), key, None
    leaf = lookup.get("leaf")
    if "record" in lookup:
        value = base64_bytes(lookup["record"]), base64_bytes(lookup["history"])
        node = sha256(b"\3" + key + value_hash(*value))
    elif leaf is not None:
        leaf_key = bytes.fromhex(leaf["key"])
        require(leaf_key != key, "malformed_evidence")
        node = sha256(b"\3" + leaf_key + bytes.fromhex(leaf["value_hash"]))
    else:
        require(path == b"", "malformed_map_path")
        node = sha256(b"")
    steps = [path[at : at + STEP] for at in range(0, len(path), STEP)]
    bits = [step[0] for step in steps]
    is_path = len(path) % STEP == 0 and bits == sorted({*bits}) and all(number < KEY_BITS for number in bits)
    require(is_path and all(bit(leaf_key, number) == bit(key, number) for number in bits), "malformed_map_path")
    for step in reversed(steps):
        pair = step[1:] + node if bit(key, step[0]) else node + step[1:]
        node = sha256(b"\4" + step[:1] + pair)
    require(node == root, "wrong_map_root")
    return value

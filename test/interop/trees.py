"""Roots and paths of whole trees and maps, which only a log computes (spec/log.md, 12; spec/snapshot.md)."""

from svc_verification.encoding import base64text, sha256
from svc_verification.merkle import KEY_BITS, bit, value_hash


def tree_root(leaves):
    if len(leaves) == 0:
        return sha256(b"")
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0])
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\x01" + tree_root(leaves[:split]) + tree_root(leaves[split:]))


def inclusion_path(index, leaves):
    if len(leaves) == 1:
        return []
    split = 1 << (len(leaves) - 1).bit_length() - 1
    if index < split:
        return inclusion_path(index, leaves[:split]) + [tree_root(leaves[split:])]
    return inclusion_path(index - split, leaves[split:]) + [tree_root(leaves[:split])]


def split_keys(keys):
    """The first bit in which ascending keys differ, and the keys on either side of it."""
    first = KEY_BITS - (int.from_bytes(keys[0], "big") ^ int.from_bytes(keys[-1], "big")).bit_length()
    return first, [k for k in keys if not bit(k, first)], [k for k in keys if bit(k, first)]


def map_root(values, keys=None):
    keys = sorted(values) if keys is None else keys
    if len(keys) == 0:
        return sha256(b"")
    if len(keys) == 1:
        return sha256(b"\x03" + keys[0] + value_hash(*values[keys[0]]))
    first, left, right = split_keys(keys)
    return sha256(b"\x04" + bytes([first]) + map_root(values, left) + map_root(values, right))


def lookup(values, key):
    """A lookup of evidence: the path from the root to the leaf where the search for `key` ends."""
    keys, path = sorted(values), b""
    while len(keys) > 1:
        first, left, right = split_keys(keys)
        keys, other = (right, left) if bit(key, first) else (left, right)
        path += bytes([first]) + map_root(values, other)
    found = {"path": base64text(path)}
    if keys == [key]:
        record, history = values[key]
        return found | {"record": base64text(record), "history": base64text(history)}
    leaf = {"key": keys[0].hex(), "value_hash": value_hash(*values[keys[0]]).hex()} if keys else None
    return found | {"leaf": leaf}


def u48(number):
    return number.to_bytes(6, "big")

"""The root of a whole map, which only a publisher or a monitor computes (spec/snapshot.md)."""

from svc_verification.encoding import sha256
from svc_verification.merkle import KEY_BITS, bit, value_hash


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


def u48(number):
    return number.to_bytes(6, "big")

"""Encodings, signatures and trees of spec/encoding.md, spec/log.md and spec/snapshot.md, without any code of this
project. The arithmetic takes no care of side channels.
"""

import base64
import hashlib
import json
import re
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache

NONE = 2**48 - 1


def sha256(data):
    return hashlib.sha256(data).digest()


def canonical(value):
    """RFC 8785."""
    return canonical_text(value).encode()


def canonical_text(value):
    if isinstance(value, dict):
        members = (f"{canonical_text(name)}:{canonical_text(value[name])}" for name in sorted(value, key=code_units))
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical_text, value)) + "]"
    if isinstance(value, float):
        # ECMAScript begins with exponents below 1e-6, Python below 1e-4.
        text = repr(value)
        is_fixed = text.endswith(("e-05", "e-06"))
        return f"{Decimal(text):f}" if is_fixed else text.replace("e-0", "e-")
    return json.dumps(value, ensure_ascii=False)


def code_units(text):
    return text.encode("utf-16-be")


def document_hash(value):
    return sha256(canonical(value)).hex()


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def base64text(data):
    return base64.b64encode(data).decode()


def thumbprint(public):
    """RFC 7638."""
    return base64url(sha256(canonical({"crv": "Ed25519", "kty": "OKP", "x": base64url(public)})))


def pae(name, payload):
    kind = f"application/vnd.{name}+json"
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload)


def milliseconds(time):
    return round(datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp() * 1000)


def u48(number):
    return number.to_bytes(6, "big")


# Signatures


class Curve:
    """Points of y² = x³ − 3x + b (weierstrass), or of −x² + y² = 1 + dx²y² (edwards, in
    extended coordinates)."""

    def __init__(self, p, order, base, add):
        self.p, self.order, self.base, self.add = p, order, base, add

    def multiply(self, scalar, point=None):
        result, power = None, point or self.base
        while scalar:
            if scalar & 1:
                result = power if result is None else self.add(result, power)
            power, scalar = self.add(power, power), scalar >> 1
        return result


def add_edwards(one, other):
    """RFC 8032, 5.1.4."""
    (x1, y1, z1, t1), (x2, y2, z2, t2) = one, other
    a, b = (y1 - x1) * (y2 - x2), (y1 + x1) * (y2 + x2)
    c, d = 2 * D * t1 * t2, 2 * z1 * z2
    e, f, g, h = b - a, d - c, d + c, b + a
    return tuple(one % P25519 for one in (e * f, g * h, f * g, e * h))


def extended(x, y):
    return x, y, 1, x * y % P25519


P25519 = 2**255 - 19
D = -121665 * pow(121666, -1, P25519) % P25519
# RFC 8032, 5.1
ED25519 = Curve(
    P25519,
    2**252 + 27742317777372353535851937790883648493,
    extended(
        15112221349535400772501151409588531511454012693041857206046113283949847762202,
        46316835694926478169428394003475163141307993866256225615783033603165251855960,
    ),
    add_edwards,
)


def encode_edwards(point):
    x, y, z, _ = point
    x, y = (one * pow(z, -1, P25519) % P25519 for one in (x, y))
    return (y | (x & 1) << 255).to_bytes(32, "little")


SMALL_ORDER = [
    bytes.fromhex(y)
    for y in (
        "00" * 32,
        "01" + "00" * 31,
        "ec" + "ff" * 30 + "7f",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    )
]


def has_large_order(encoded):
    y = encoded[:31] + bytes([encoded[31] & 127])
    return int.from_bytes(y, "little") < P25519 and y not in SMALL_ORDER


@lru_cache(None)
def public_point(public):
    """The point of a public key that can verify (section 6), or None."""
    if len(public) != 32 or not has_large_order(public):
        return None
    number = int.from_bytes(public, "little")
    y, sign = number % 2**255, number >> 255
    square = (y * y - 1) * pow(D * y * y + 1, -1, P25519) % P25519
    x = pow(square, (P25519 + 3) // 8, P25519)
    if x * x % P25519 != square:
        x = x * pow(2, (P25519 - 1) // 4, P25519) % P25519
    if x * x % P25519 != square:
        return None
    return extended(x if x & 1 == sign else P25519 - x, y)


@lru_cache(None)
def verifies(public, message, signature):
    point, scalar = public_point(public), int.from_bytes(signature[32:], "little")
    if point is None or len(signature) != 64 or scalar >= ED25519.order or not has_large_order(signature[:32]):
        return False
    digest = hashlib.sha512(signature[:32] + public + message).digest()
    challenge = int.from_bytes(digest, "little") % ED25519.order
    x, y, z, t = ED25519.multiply(challenge, point)
    return encode_edwards(add_edwards(ED25519.multiply(scalar), (-x, y, z, -t))) == signature[:32]


def add_weierstrass(one, other):
    if one is None or other is None:
        return one or other
    (x1, y1), (x2, y2) = one, other
    if x1 == x2 and y1 != y2:
        return None
    if one == other:
        slope = 3 * (x1 * x1 - 1) * pow(2 * y1, -1, P256)
    else:
        slope = (y2 - y1) * pow(x2 - x1, -1, P256)
    x = (slope * slope - x1 - x2) % P256
    return x, (slope * (x1 - x) - y1) % P256


P256 = 2**256 - 2**224 + 2**192 + 2**96 - 1
# FIPS 186-4, D.1.2.3
SECP256R1 = Curve(
    P256,
    0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
    (
        0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
        0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
    ),
    add_weierstrass,
)


def asn1_integer(number):
    encoded = number.to_bytes(number.bit_length() // 8 + 1, "big")
    return bytes([0x02, len(encoded)]) + encoded


def asn1_pair(r, s):
    numbers = asn1_integer(r) + asn1_integer(s)
    return bytes([0x30, len(numbers)]) + numbers


def verifies_es256(point, message, signature):
    """FIPS 186-5, 6.4.2, of a signature in DER."""
    (x, y), order = point, SECP256R1.order
    if x >= P256 or y >= P256 or (y * y - x**3 + 3 * x - P256_B) % P256 or len(signature) < 6:
        return False
    middle = 4 + signature[3]
    r, s = (int.from_bytes(part, "big") for part in (signature[4:middle], signature[middle + 2 :]))
    if not (0 < r < order and 0 < s < order) or asn1_pair(r, s) != signature:
        return False
    factor = pow(s, -1, order)
    digest = int.from_bytes(sha256(message), "big")
    both = [SECP256R1.multiply(one * factor % order, base) for one, base in ((digest, None), (r, point))]
    total = add_weierstrass(*both)
    return total is not None and total[0] % order == r


P256_B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B


# Trees and maps


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


def bit(key, number):
    return key[number // 8] >> (7 - number % 8) & 1


def value_hash(record, history):
    return sha256(b"\x02" + len(record).to_bytes(4, "big") + record + history)


def split_keys(keys):
    """The first bit in which ascending keys differ, and the keys on either side of it."""
    first = 17 * 8 - (int.from_bytes(keys[0], "big") ^ int.from_bytes(keys[-1], "big")).bit_length()
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


def inclusion_root(index, size, leaf_hash, path):
    """RFC 9162, 2.1.3.2: the root to which the path leads, or None when it has a wrong length."""
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


def tile_path(folder, number):
    groups = [f"{number % 1000:03}"]
    while number >= 1000:
        number //= 1000
        groups.insert(0, f"x{number % 1000:03}")
    return "/".join([folder, *groups])


# Strict reading


class Invalid(Exception):
    """A document, signature or path that does not verify."""


def require(condition, fault):
    if not condition:
        raise Invalid(fault)


NUMBER = re.compile("-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
WORD = re.compile("true|false|null")
SPACE = re.compile("[ \t\n\r]*")


class Reader:
    """Reads JSON by the rules of section 2; the first fault in reading order counts."""

    def __init__(self, text):
        self.text, self.at = text, 0

    def take(self, pattern):
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return match and match[0]

    def take_mark(self, mark):
        self.take(SPACE)
        is_next = self.text.startswith(mark, self.at)
        self.at += len(mark) * is_next
        return is_next

    def value(self, depth=0):
        for mark, read in (("{", self.members), ("[", self.items)):
            if self.take_mark(mark):
                require(depth < 32, "too_deep")
                return read(depth + 1)
        if self.text.startswith('"', self.at):
            return self.string()
        word = self.take(WORD)
        return json.loads(word) if word else self.number()

    def items(self, depth):
        found = []
        while found or not self.take_mark("]"):
            found.append(self.value(depth))
            if not self.take_mark(","):
                require(self.take_mark("]"), "malformed_json")
                break
        return found

    def members(self, depth):
        found = {}
        while found or not self.take_mark("}"):
            self.take(SPACE)
            name = self.string()
            require(name not in found, "duplicate_key")
            require(self.take_mark(":"), "malformed_json")
            found[name] = self.value(depth)
            if not self.take_mark(","):
                require(self.take_mark("}"), "malformed_json")
                break
        return found

    def string(self):
        text = self.take(STRING)
        require(text, "malformed_json")
        value = json.loads(text)
        require(not re.search("[\ud800-\udfff]", value), "lone_surrogate")
        require("\0" not in value, "nul_character")
        return value

    def number(self):
        text = self.take(NUMBER)
        require(text, "malformed_json")
        value = float(text)
        require(abs(value) != float("inf"), "integer_out_of_range")
        is_whole = value.is_integer() and abs(value) < 1e21
        require(abs(value) < 2**53 or not (is_whole or text.lstrip("-").isdigit()), "integer_out_of_range")
        return int(value) if is_whole else value


def parse_json(data):
    """Strict JSON (section 2). Integers of any spelling are int."""
    try:
        reader = Reader((data.encode() if isinstance(data, str) else data).decode())
    except UnicodeError as error:
        raise Invalid("invalid_utf8") from error
    value = reader.value()
    reader.take(SPACE)
    require(reader.at == len(reader.text), "malformed_json")
    return value


def form(pattern):
    compiled = re.compile(pattern)
    return lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


def one_of(*words):
    return lambda value: isinstance(value, str) and value in words


def either(*forms):
    return lambda value: any(one(value) for one in forms)


def exactly(**forms):
    """Objects with exactly these members; one whose name ends in an underscore may be absent."""
    optional = {name[:-1] for name in forms if name.endswith("_")}
    forms = {name.rstrip("_"): one for name, one in forms.items()}

    def check(value):
        return (
            isinstance(value, dict)
            and forms.keys() - optional <= value.keys() <= forms.keys()
            and all(forms[name](one) for name, one in value.items())
        )

    return check


def from_base64(text, length=None, alphabet=b"+/", padded=True):
    """Strict base64; None for other text and other lengths."""
    try:
        data = base64.b64decode(text.encode() + (b"" if padded else b"=" * (-len(text) % 4)), alphabet, True)
    except (ValueError, AttributeError):
        return None
    again = base64.b64encode(data, alphabet).decode()
    return data if (again if padded else again.rstrip("=")) == text and length in (None, len(data)) else None


def from_base64url(text, length):
    return from_base64(text, length, b"-_", False)


def is_time(text):
    """A time in 1970 or later."""
    return is_any_time(text) and text >= "1970"


def is_any_time(text):
    if not form("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z")(text):
        return False
    try:
        # The calendar repeats after 400 years, and datetime has no year 0.
        datetime.fromisoformat(f"{2000 + int(text[:4]) % 400}{text[4:-1]}")
    except ValueError:
        return False
    return True


def time_text(number):
    require(number <= milliseconds("9999-12-31T23:59:59.999Z"), "malformed_time")
    return (datetime(1970, 1, 1) + timedelta(milliseconds=number)).isoformat(timespec="milliseconds") + "Z"


is_index = lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
is_null = lambda value: value is None
is_hash = form("[0-9a-f]{64}")
is_root = lambda text: from_base64(text, 32) is not None
is_proof_id = form("[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}")
is_package_id = lambda text: form("pkg_.*")(text) and is_proof_id(text[4:])
is_token = lambda text: form("share_.*")(text) and from_base64url(text[6:], 32) is not None
KINDS = ("proof", "passport", "certificate", "trust")
is_kind = one_of(*KINDS)


def shard_of(proof_id):
    return int(proof_id[13:16], 16)


# Notes

KEY_NAME = "[^+\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]+"


def parse_vkey(vkey, kind=1):
    name, key_hash, key = (vkey.split("+", 2) + ["", ""])[:3]
    data = from_base64(key, 33)
    expected = sha256(name.encode() + b"\n" + data)[:4].hex() if data else None
    require(form(KEY_NAME)(name) and data and data[0] == kind and key_hash == expected, "malformed_vkey")
    return name, bytes.fromhex(key_hash), data[1:]


def parse_note(note):
    """The text of a signed note, and its signatures as (name, key id, signature)."""
    text, separator, lines = note.rpartition("\n\n")
    parsed = [re.fullmatch(f"— ({KEY_NAME}) ([^ ]+)", line) for line in lines.split("\n")[:-1]]
    require(separator and lines.endswith("\n") and 1 <= len(parsed) <= 64 and all(parsed), "malformed_note")
    require(not re.search("[\0-\x09\x0b-\x1f]", text) and text, "malformed_note")
    signatures = [(one[1], from_base64(one[2])) for one in parsed]
    require(all(data and len(data) >= 5 for _, data in signatures), "malformed_note")
    return text + "\n", [(name, data[:4], data[4:]) for name, data in signatures]


def open_note(note, keys):
    """The text of a note, and those of the parsed vkeys that signed it."""
    text, signatures = parse_note(note)
    signers = []
    for name, key_hash, signature in signatures:
        for key in keys:
            if key[:2] == (name, key_hash):
                require(verifies(key[2], text.encode(), signature), "bad_signature")
                signers.append(key)
    require(signers, "unknown_signer")
    return text, signers


def parse_checkpoint(text, origin):
    lines = text.split("\n")
    is_checkpoint = len(lines) == 4 and lines[0] and is_size_text(lines[1]) and is_root(lines[2])
    require(is_checkpoint, "malformed_checkpoint")
    require(lines[0] == origin, "wrong_origin")
    return int(lines[1]), from_base64(lines[2])


def open_checkpoint(note, vkey):
    """The size and root of a checkpoint that the key of this log signed."""
    key = parse_vkey(vkey)
    text, _ = open_note(note, [key])
    return parse_checkpoint(text, key[0])


def is_size_text(text):
    return form("0|[1-9][0-9]{0,15}")(text) and int(text) < 2**53


def parse_tlog_proof(text):
    """The index, path and signed checkpoint of a tlog-proof."""
    match = re.fullmatch(
        "c2sp\\.org/tlog-proof@v1\n(?:extra ([^\n]+)\n)?index ([0-9]+)\n((?:[^\n]+\n)*)\n(.*)", text, re.DOTALL
    )
    require(match and is_size_text(match[2]) and (match[1] is None or from_base64(match[1])), "malformed_tlog_proof")
    path = [from_base64(line, 32) for line in match[3].split("\n")[:-1]]
    require(len(path) <= 64 and None not in path, "malformed_tlog_proof")
    return int(match[2]), path, match[4]


def entry_hash(entry):
    return sha256(b"\0" + canonical(entry))


def open_tlog_proof(text, vkey, entry):
    """The index of an entry, and the size of the checkpoint that covers it."""
    index, path, note = parse_tlog_proof(text)
    size, root = open_checkpoint(note, vkey)
    require(inclusion_root(index, size, entry_hash(entry), path) == root, "the entry is not in the tree")
    return index, size

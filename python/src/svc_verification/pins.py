"""Pins of a reader: AEP keys, the keys of a log, and a policy (spec/log.md, 18; C2SP tlog-policy)."""

from .forms import is_text
from .encoding import *


def read_key(pin):
    """The thumbprint, public key and bounds of a pinned AEP key."""
    jwk = {"kty": "OKP", "crv": "Ed25519", "x": pin} if is_text(pin) else pin
    require(isinstance(jwk, dict) and "d" not in jwk, "malformed_key")
    kind = [jwk.get("kty"), jwk.get("crv"), jwk.get("use", "sig")]
    has_algorithm = jwk.get("alg", "EdDSA") in ("EdDSA", "Ed25519")
    public = from_base64url(jwk.get("x"), 32)
    require(kind == ["OKP", "Ed25519", "sig"] and has_algorithm and public, "malformed_key")
    require(public_point(public), "unusable_key")
    key_id = thumbprint(public)
    require(jwk.get("kid", key_id) == key_id, "key_id_mismatch")
    bounds = [jwk.get(bound) for bound in ("activated_at", "retired_at", "compromised_from")]
    require(all(bound is None or is_index(bound) for bound in bounds), "malformed_key")
    return key_id, public, bounds


def read_log(trust):
    """The parsed vkeys with the sizes up to which they count, the origin and the policy; None without a log."""
    if "log_vkey" not in trust:
        return None
    given = [trust["log_vkey"]] if is_text(trust["log_vkey"]) else trust["log_vkey"]
    require(isinstance(given, list) and given, "malformed_vkey")
    pins = [{"vkey": one} if is_text(one) else one for one in given]
    require(all(isinstance(pin, dict) and is_text(pin.get("vkey")) for pin in pins), "malformed_vkey")
    sizes = [pin.get("from_size") for pin in pins]
    require(all(size is None or is_index(size) for size in sizes), "malformed_vkey")
    keys = [parse_vkey(pin["vkey"]) for pin in pins]
    require(len({*keys}) == len(keys) and len({key[0] for key in keys}) == 1, "malformed_vkey")
    require(all(public_point(public) for _, _, public in keys), "unusable_key")
    origin = trust.get("log_origin")
    require(is_text(origin) and form("[^\0-\x1f]+")(origin), "malformed_origin")
    policy = read_policy(trust["policy"]) if "policy" in trust else None
    return dict(zip(keys, sizes)), origin, policy


def read_policy(text):
    """Whether the cosigners of a checkpoint are a quorum, as a function of the note (C2SP tlog-policy)."""
    rules, quorums, keys, members = {}, [], {"log": [], "witness": []}, []
    try:
        require(form("(?:[\t -~\x80-\U0010ffff]*\n)*")(text), "characters")
        for line in text.split("\n"):
            kind, *words = re.findall("[^ \t]+", line) or ["#"]
            if kind == "log" and len(words) in (1, 2):
                keys[kind].append(parse_vkey(words[0])[2])
            elif kind == "witness" and len(words) in (2, 3):
                name, key = words[0], parse_vkey(words[1], 4)
                keys[kind].append(key[2])
                require(name not in (*rules, "none"), "name")
                rules[name] = lambda note, key=key: is_cosigned(note, key)
            elif kind == "group" and len(words) >= 3:
                name, least, *group = words
                members += group
                least = {"any": "1", "all": str(len(group))}.get(least, least)
                require(name not in (*rules, "none") and all(one in rules for one in group), "name")
                require(form("[1-9][0-9]{0,8}")(least) and int(least) <= len(group), "threshold")
                rules[name] = threshold(int(least), [rules[one] for one in group])
            elif kind == "quorum" and words and words[1:] == []:
                quorums.append(threshold(0, []) if words == ["none"] else rules.get(words[0]))
            else:
                require(kind.startswith("#"), "line")
        require(all(len({*one}) == len(one) for one in (members, *keys.values())), "repeated")
        require(len(quorums) == 1 and quorums[0], "quorum")
    except Invalid as fault:
        raise Invalid("malformed_policy") from fault
    return quorums[0]


def threshold(least, rules):
    return lambda note: sum(rule(note) for rule in rules) >= least


def is_cosigned(note, key):
    """C2SP tlog-cosignature, Ed25519."""
    text, signatures = parse_note(note)
    for name, key_hash, data in signatures:
        time = int.from_bytes(data[:8], "big")
        message = f"cosignature/v1\ntime {time}\n{text}".encode()
        if (name, key_hash) == key[:2] and time < 2**63 and verifies(key[2], message, data[8:]):
            return True
    return False

"""Signatures (spec/encoding.md, 6; spec/proof.md, Approvals), with OpenSSL and the stricter rules of this project."""

from __future__ import annotations

from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from .encoding import base64url, canonical, sha256

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
SMALL_ORDER = [
    int.from_bytes(bytes.fromhex(y), "little")
    for y in (
        "00" * 32,
        "01" + "00" * 31,
        "ec" + "ff" * 30 + "7f",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    )
]


def thumbprint(public: bytes) -> str:
    """The RFC 7638 id of an Ed25519 key."""
    return base64url(sha256(canonical({"crv": "Ed25519", "kty": "OKP", "x": base64url(public)})))


def pae(name: str, payload: bytes) -> bytes:
    """The signed bytes of a DSSE envelope."""
    kind = f"application/vnd.{name}+json".encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def _y(encoded: bytes) -> int:
    return int.from_bytes(encoded, "little") % 2**255


def _is_ordinary(encoded: bytes) -> bool:
    """Whether an encoded point is canonical, and not of small order (rules 3 and 4)."""
    return _y(encoded) < P and _y(encoded) not in SMALL_ORDER


@lru_cache(1024)
def is_usable_key(public: bytes) -> bool:
    """Whether a signature can verify under a key. OpenSSL accepts keys that encode no point (rule 5)."""
    if len(public) != 32 or not _is_ordinary(public):
        return False
    square = _y(public) ** 2 % P
    x_square = (square - 1) * pow(D * square + 1, -1, P) % P
    return pow(x_square, (P - 1) // 2, P) in (0, 1)


@lru_cache(1024)
def verify_ed25519(public: bytes, message: bytes, signature: bytes) -> bool:
    """Checks all six rules: OpenSSL checks rules 2 and 6, this module the others."""
    if len(signature) != 64 or not is_usable_key(public) or not _is_ordinary(signature[:32]):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def verify_es256(x: bytes, y: bytes, message: bytes, signature: bytes) -> bool:
    """Verifies an ECDSA signature in DER (FIPS 186-5, 6.4.2)."""
    numbers = ec.EllipticCurvePublicNumbers(int.from_bytes(x, "big"), int.from_bytes(y, "big"), ec.SECP256R1())
    try:
        numbers.public_key().verify(signature, message, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError):
        return False
    return True

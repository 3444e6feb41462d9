"""Signed notes, checkpoints, tlog-proofs and policies of witnesses (spec/log.md, 13; C2SP)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from .crypto import verify_ed25519
from .encoding import read_base64, sha256
from .errors import InvalidError, coded, require
from .forms import is_root, pattern

# Lone surrogates have no UTF-8 form.
KEY_NAME = "[^+\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff\ud800-\udfff]+"
ED25519, COSIGNATURE = 1, 4
is_size_text = pattern("0|[1-9][0-9]{0,15}")


class Vkey(NamedTuple):
    name: str
    key_hash: bytes
    public: bytes


class Signature(NamedTuple):
    name: str
    key_hash: bytes
    data: bytes


class Checkpoint(NamedTuple):
    size: int
    root: bytes


def parse_vkey(vkey: str, kind: int = ED25519) -> Vkey:
    name, key_hash, key = [*vkey.split("+", 2), "", ""][:3]
    data = read_base64(key, 33)
    require(re.fullmatch(KEY_NAME, name) and data and data[0] == kind, "malformed_vkey")
    assert data is not None  # noqa: S101
    expected = sha256(name.encode() + b"\n" + data)[:4]
    require(key_hash == expected.hex(), "malformed_vkey")
    return Vkey(name, expected, data[1:])


def parse_note(note: str) -> tuple[str, list[Signature]]:
    """The text of a signed note, and its signatures."""
    require(len(note.encode(errors="replace")) <= 1_000_000, "malformed_note")
    text, separator, lines = note.rpartition("\n\n")
    is_note = separator and lines.endswith("\n") and not re.search("[\0-\x09\x0b-\x1f\ud800-\udfff]", text)
    require(is_note and 1 <= lines.count("\n") <= 64, "malformed_note")
    return text + "\n", [_parse_signature(line) for line in lines.split("\n")[:-1]]


def _parse_signature(line: str) -> Signature:
    match = re.fullmatch(f"— ({KEY_NAME}) ([^ ]+)", line)
    data = read_base64(match[2]) if match else None
    if match is None or data is None or len(data) < 5:
        raise InvalidError("malformed_note")
    return Signature(match[1], data[:4], data[4:])


def open_note(note: str, keys: list[Vkey]) -> tuple[str, list[Vkey]]:
    """The text of a note, and the keys that signed it, at least one."""
    text, signatures = parse_note(note)
    signers = []
    for name, key_hash, signature in signatures:
        for key in keys:
            if (key.name, key.key_hash) == (name, key_hash):
                require(verify_ed25519(key.public, text.encode(), signature), "bad_signature")
                signers.append(key)
    require(signers, "unknown_signer")
    return text, signers


def parse_checkpoint(text: str, origin: str) -> Checkpoint:
    lines = text.split("\n")
    is_checkpoint = len(lines) == 4 and lines[0] and _is_size(lines[1]) and is_root(lines[2])
    require(is_checkpoint, "malformed_checkpoint")
    require(lines[0] == origin, "wrong_origin")
    return Checkpoint(int(lines[1]), read_base64(lines[2]) or b"")


def _is_size(text: str) -> bool:
    return is_size_text(text) and int(text) < 2**53


@dataclass(frozen=True)
class TlogProof:
    index: int
    path: list[bytes]
    note: str


def parse_tlog_proof(text: str) -> TlogProof:
    match = re.fullmatch(
        r"c2sp\.org/tlog-proof@v1\n(?:extra ([^\n]+)\n)?index ([0-9]+)\n((?:[^\n]+\n)*)\n(.*)", text, re.DOTALL
    )
    if match is None or not _is_size(match[2]) or (match[1] is not None and read_base64(match[1]) is None):
        raise InvalidError("malformed_tlog_proof")
    path = [hash_ for line in match[3].split("\n")[:-1] if (hash_ := read_base64(line, 32)) is not None]
    require(len(path) == match[3].count("\n") <= 64, "malformed_tlog_proof")
    return TlogProof(int(match[2]), path, match[4])


# Policies

Quorum = Callable[[str], bool]
"""Whether the cosigners of a note are a quorum."""


@coded("malformed_policy")
def read_policy(text: str) -> Quorum:
    """The rule of a C2SP tlog-policy."""
    return _Policy(text).quorum()


class _Policy:
    def __init__(self, text: str) -> None:
        self.rules: dict[str, Quorum] = {}
        self.quorums: list[Quorum | None] = []
        # `quorum` rejects a duplicate in any of these lists.
        self.logs: list[bytes] = []
        self.witnesses: list[bytes] = []
        self.grouped: list[str] = []
        require(re.fullmatch("(?:[\t -~\x80-\U0010ffff]*\n)*", text), "characters")
        for line in text.split("\n"):
            kind, *words = re.findall("[^ \t]+", line) or ["#"]
            self.read_line(kind, words)

    def quorum(self) -> Quorum:
        for names in (self.logs, self.witnesses, self.grouped):
            require(len({*names}) == len(names), "repeated")
        rule = self.quorums[0] if len(self.quorums) == 1 else None
        if rule is None:
            raise InvalidError("quorum")
        return rule

    def read_line(self, kind: str, words: list[str]) -> None:
        if kind == "log" and len(words) in (1, 2):
            self.logs.append(parse_vkey(words[0]).public)
        elif kind == "witness" and len(words) in (2, 3):
            key = parse_vkey(words[1], COSIGNATURE)
            self.witnesses.append(key.public)
            self.add_rule(words[0], lambda note: is_cosigned(note, key))
        elif kind == "group" and len(words) >= 3:
            name, least, *group = words
            self.grouped += group
            least = {"any": "1", "all": str(len(group))}.get(least, least)
            require(all(one in self.rules for one in group), "name")
            require(re.fullmatch("[1-9][0-9]{0,8}", least) and int(least) <= len(group), "threshold")
            self.add_rule(name, _threshold(int(least), [self.rules[one] for one in group]))
        elif kind == "quorum" and len(words) == 1:
            self.quorums.append(_threshold(0, []) if words == ["none"] else self.rules.get(words[0]))
        else:
            require(kind.startswith("#"), "line")

    def add_rule(self, name: str, rule: Quorum) -> None:
        require(name not in (*self.rules, "none"), "name")
        self.rules[name] = rule


def _threshold(least: int, rules: list[Quorum]) -> Quorum:
    return lambda note: sum(rule(note) for rule in rules) >= least


def is_cosigned(note: str, key: Vkey) -> bool:
    """C2SP tlog-cosignature, Ed25519. Ignores a cosignature without a time, or with a time beyond 2^53 - 1."""
    text, signatures = parse_note(note)
    for name, key_hash, data in signatures:
        time = int.from_bytes(data[:8], "big")
        message = f"cosignature/v1\ntime {time}\n{text}".encode()
        is_of_key = (name, key_hash) == (key.name, key.key_hash)
        if is_of_key and 0 < time < 2**53 and verify_ed25519(key.public, message, data[8:]):
            return True
    return False

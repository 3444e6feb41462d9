"""Strict JSON, canonical form, hashes, base64, times and identifiers (spec/encoding.md)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import rfc8785

from .errors import InvalidError, SvcError, raising, require

MAX_DEPTH = 32
KINDS = ("proof", "passport", "certificate", "trust")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def canonical(value: Any) -> bytes:
    """The RFC 8785 form. Raises `InvalidError` for a value without one."""
    try:
        return rfc8785.dumps(value)
    except UnicodeError as error:
        raise InvalidError("lone_surrogate") from error
    except (rfc8785.IntegerDomainError, rfc8785.FloatDomainError) as error:
        raise InvalidError("integer_out_of_range") from error
    except RecursionError as error:
        raise InvalidError("too_deep") from error
    except rfc8785.CanonicalizationError as error:
        is_text = isinstance(error.__cause__, UnicodeError)
        raise InvalidError("lone_surrogate" if is_text else "malformed_json") from error


@raising("invalid_input", "the value has no JSON form")
def canonical_json(value: Any) -> str:
    """The RFC 8785 form as text. Raises `SvcError` (`invalid_input`) for a value without one."""
    return canonical(value).decode()


def canonical_hash(value: Any) -> str:
    """SHA-256 of `canonical_json`, as 64 lower-case hex characters."""
    return sha256(canonical_json(value).encode()).hex()


def document_hash(value: Any) -> str:
    """SHA-256 of the RFC 8785 form, as 64 lower-case hex characters."""
    return sha256(canonical(value)).hex()


def code_units(text: str) -> bytes:
    """A sort key: strings are ordered by UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


# Strict parsing

NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
WORD = re.compile("true|false|null")
SPACE = re.compile("[ \t\n\r]*")
SURROGATE = re.compile("[\ud800-\udfff]")


class _Reader:
    """Reads JSON by the rules of section 2, and reports the first fault in reading order."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def take(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return match[0] if match else None

    def take_mark(self, mark: str) -> bool:
        self.take(SPACE)
        is_next = self.text.startswith(mark, self.at)
        self.at += len(mark) * is_next
        return is_next

    def value(self, depth: int = 0) -> Any:
        is_object = self.take_mark("{")
        if is_object or self.take_mark("["):
            require(depth < MAX_DEPTH, "too_deep")
            return self.members(depth + 1) if is_object else self.items(depth + 1)
        if self.text.startswith('"', self.at):
            return self.string()
        word = self.take(WORD)
        return json.loads(word) if word else self.number()

    def items(self, depth: int) -> list[Any]:
        found: list[Any] = []
        while found or not self.take_mark("]"):
            found.append(self.value(depth))
            if not self.take_mark(","):
                require(self.take_mark("]"), "malformed_json")
                break
        return found

    def members(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
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

    def string(self) -> str:
        text = self.take(STRING)
        if text is None:
            raise InvalidError("malformed_json")
        value: str = json.loads(text)
        require(not SURROGATE.search(value), "lone_surrogate")
        require("\0" not in value, "nul_character")
        return value

    def number(self) -> int | float:
        text = self.take(NUMBER)
        if text is None:
            raise InvalidError("malformed_json")
        value = float(text)
        require(abs(value) != float("inf"), "integer_out_of_range")
        is_whole = value.is_integer() and abs(value) < 1e21
        require(abs(value) < 2**53 or not (is_whole or text.lstrip("-").isdigit()), "integer_out_of_range")
        return int(value) if is_whole else value


def parse_json(data: str | bytes) -> Any:
    """Strict JSON (section 2). A number with an integer value, such as `1.0`, is an `int`."""
    try:
        reader = _Reader((data.encode() if isinstance(data, str) else data).decode())
    except UnicodeError as error:
        raise InvalidError("invalid_utf8") from error
    value = reader.value()
    reader.take(SPACE)
    require(reader.at == len(reader.text), "malformed_json")
    return value


# Bytes


def base64text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def read_base64(text: object, length: int | None = None) -> bytes | None:
    """Decodes strict base64. None for any other text, and for data of a length other than `length`."""
    return _read_base64(text, length, base64text, b"+/")


def read_base64url(text: object, length: int | None = None) -> bytes | None:
    """Decodes strict base64url. None for any other text, and for data of a length other than `length`."""
    return _read_base64(text, length, base64url, b"-_")


def _read_base64(text: object, length: int | None, encode: Callable[[bytes], str], alphabet: bytes) -> bytes | None:
    if not isinstance(text, str):
        return None
    try:
        data = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), alphabet, validate=True)
    except ValueError:
        return None
    # Accepts only the canonical encoding: unused bits are 0, and the padding is fixed.
    return data if encode(data) == text and length in (None, len(data)) else None


def base64_bytes(text: str) -> bytes:
    """Decodes base64 text whose form the caller has checked."""
    return base64.b64decode(text)


# Times, in milliseconds since 1970

TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?!24)[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")


def is_time(value: object) -> bool:
    if not isinstance(value, str) or not TIME.fullmatch(value):
        return False
    try:
        milliseconds(value)
    except ValueError:
        return False
    return True


def require_time(now: str | None) -> None:
    """Rejects a `now` without the form of times in documents, because times are compared as text."""
    if now is not None and not is_time(now):
        raise SvcError("invalid_input", "/now: expected RFC 3339 UTC with milliseconds")


def milliseconds(time: str) -> int:
    # The calendar repeats after 400 years, which have 146,097 days, and datetime has no year 0.
    cycles, year = divmod(int(time[:4]), 400)
    since_1970 = datetime.fromisoformat(f"{2000 + year}{time[4:]}") - EPOCH
    return (since_1970 + timedelta(days=146_097) * (cycles - 5)) // timedelta(milliseconds=1)


def time_text(number: int) -> str:
    return (EPOCH + timedelta(milliseconds=number)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def current_time() -> int:
    return (datetime.now(UTC) - EPOCH) // timedelta(milliseconds=1)


# Identifiers

PROOF_ID = re.compile("[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}")


def is_proof_id(value: object) -> bool:
    return isinstance(value, str) and PROOF_ID.fullmatch(value) is not None


def is_package_id(value: object) -> bool:
    return isinstance(value, str) and value.startswith("pkg_") and is_proof_id(value[4:])


def is_share_token(value: object) -> bool:
    return isinstance(value, str) and value.startswith("share_") and read_base64url(value[6:], 32) is not None


def shard_of(proof_id: str) -> int:
    """The shard (the number of the log) of a proof, which is part of the proof id."""
    return int(proof_id[13:16], 16)

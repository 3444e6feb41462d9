"""Forms: functions that check a value of a parsed document.

A form returns False for a value that it rejects, or raises an `InvalidError` with the code of a more specific fault.
In both cases `read` raises an `InvalidError`, with a pointer to the first fault in reading order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from .encoding import KINDS, code_units, is_proof_id, is_time, read_base64, read_base64url
from .errors import InvalidError, require

Form = Callable[[Any], bool]
ABSENT = object()
MALFORMED = "malformed"
ASSERTING = ("VALID", "PASS", "VERIFIED", "TRUST_ESTABLISHED")
STATUSES = (*ASSERTING, "REVOKED", "EXPIRED", "NOT_FOUND", "BACKEND_LOOKUP_REQUIRED")


def read(form: Form, value: Any, malformed: str) -> Any:
    """The value, if it has the form. Raises `InvalidError`, with the code `malformed` unless a form has a code of its
    own.
    """
    try:
        _check(form, value)
    except InvalidError as fault:
        raise InvalidError(malformed if fault.code == MALFORMED else fault.code, fault.pointer) from fault
    return value


def matches(form: Form, value: Any) -> bool:
    try:
        return form(value)
    except InvalidError:
        return False


def _check(form: Form, value: Any, step: str | int | None = None) -> None:
    try:
        require(form(value), MALFORMED)
    except InvalidError as fault:
        prefix = "" if step is None else "/" + str(step).replace("~", "~0").replace("/", "~1")
        raise InvalidError(fault.code, prefix + fault.pointer) from None


# Building forms


def members(*rules: Form, **forms: Form) -> Form:
    """Objects with these members, read in this order; members whose name ends in `_` are optional."""
    names = {name.removesuffix("_") for name in forms}
    has = having(**forms)

    def form(value: Any) -> bool:
        if not has(value):
            return False
        for name in value:
            if name not in names:
                raise InvalidError("unknown_member", f"/{name}")
        return all(rule(value) for rule in rules)

    return form


def having(*rules: Form, **forms: Form) -> Form:
    """Like `members`, for answers, which may gain members."""
    listed = {name.removesuffix("_"): (form, name.endswith("_")) for name, form in forms.items()}

    def form(value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        for name, (member, is_optional) in listed.items():
            if name in value or not is_optional:
                _check(member, value.get(name, ABSENT), name)
        return all(rule(value) for rule in rules)

    return form


def by(member: str, **forms: Form) -> Form:
    """Objects whose form depends on the text of one member."""

    def form(value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        _check(one_of(*forms), value.get(member), member)
        return forms[value[member]](value)

    return form


def items(form: Form, most: int = 2**53, least: int = 0, code: str = MALFORMED) -> Form:
    def check(value: Any) -> bool:
        require(isinstance(value, list) and least <= len(value) <= most, code)
        for at, one in enumerate(value):
            _check(form, one, at)
        return True

    return check


def either(*forms: Form) -> Form:
    return lambda value: any(matches(form, value) for form in forms)


def or_null(form: Form) -> Form:
    """Null, or a value of the form."""
    return lambda value: value is None or form(value)


def pattern(text: str) -> Form:
    compiled = re.compile(text)
    return lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


def one_of(*words: str) -> Form:
    return lambda value: isinstance(value, str) and value in words


def just(expected: object) -> Form:
    return lambda value: value is expected or (isinstance(value, str) and value == expected)


def constant(expected: str, code: str) -> Form:
    """Exactly this text; `code` is the fault of any other text."""

    def check(value: Any) -> bool:
        if isinstance(value, str):
            require(value == expected, code)
        return isinstance(value, str)

    return check


def version(text: str) -> Form:
    return constant(text, "wrong_schema_version")


def bytes_form(length: int | None = None, decode: Callable[[object], bytes | None] = read_base64) -> Form:
    def check(value: Any) -> bool:
        if not isinstance(value, str):
            return False
        data = decode(value)
        if data is None:
            raise InvalidError("malformed_base64")
        return length in (None, len(data))

    return check


def instance(kind: type) -> Form:
    return lambda value: isinstance(value, kind)


def whole(least: int, most: int = 2**53 - 1) -> Form:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def encoded(decode: Callable[[object, int | None], bytes | None], length: int | None = None) -> Form:
    return lambda value: decode(value, length) is not None


# Primitive forms


def is_ascending(values: list[Any]) -> bool:
    return all(one < other for one, other in pairwise(values))


def is_names(value: Any) -> bool:
    return matches(items(is_name), value) and is_ascending([code_units(one) for one in value])


def is_hashes(value: Any) -> bool:
    return matches(items(is_hash), value) and is_ascending(value)


def asserts_by_status(value: Any) -> bool:
    return bool(value["can_assert_validity"] == (value["verification_status"] in ASSERTING))


def ends_of(is_end: Form) -> Form:
    """`valid_until`: the expiry of the proof, or of each of the four artifacts."""
    forms = [members(**dict.fromkeys(kinds, either(is_end, is_null))) for kinds in (("proof",), KINDS)]
    return either(*forms)


is_text, is_boolean, is_null = instance(str), instance(bool), just(None)
is_index, is_count, is_seq = whole(0), whole(1), whole(0, 10_000)
is_root, is_key_id = encoded(read_base64, 32), encoded(read_base64url, 32)
is_name = pattern("(?s:.{1,512})")
is_hash = pattern("[0-9a-f]{64}")
is_kind = one_of(*KINDS)
is_tenant_id = pattern("[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
is_action = pattern("[A-Z0-9_.:-]{1,128}")
is_effect = one_of("ADMIT", "DENY", "REQUIRE_APPROVAL")
is_environment = one_of("sandbox", "live")
is_status = one_of(*STATUSES)
is_traceparent = pattern("00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
is_nonce = pattern("[A-Za-z0-9_-]{16,128}")
RUN = members(id=is_proof_id, seq=is_seq)
KEY_BYTES = bytes_form(32, read_base64url)
SIGNATURE_BYTES = bytes_form(64)
VALID_UNTIL = ends_of(is_time)

"""Hashes and names of tool calls, equal to those of the TypeScript adapters."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Any

from .encoding import SURROGATE, document_hash
from .errors import SvcError, raising
from .models import ReplayedReceipt

MAX_ACTION = 128


@raising("invalid_input", "the value has no hash")
def plain_hash(value: Any) -> str:
    """SHA-256 of the value's RFC 8785 form.

    Raises `SvcError` (`invalid_input`) for a value that is not plain JSON: the JSON of another object can omit data
    that the tool gets, so different calls would have the same hash.
    """
    try:
        _require_plain(value, "")
    except RecursionError:
        # The value is nested too deeply, or contains itself.
        raise SvcError("invalid_input", "/: the value is nested too deeply, or contains itself") from None
    return document_hash(value)


def result_hash(value: Any) -> str | None:
    """Like `plain_hash`, but None for a value that is not plain JSON."""
    try:
        return plain_hash(value)
    except SvcError:
        return None


def _require_plain(value: Any, pointer: str) -> None:
    kind = type(value)
    if kind is list or kind is tuple:
        for at, item in enumerate(value):
            _require_plain(item, f"{pointer}/{at}")
    elif kind in (dict, ReplayedReceipt):
        for name, item in value.items():
            _require(type(name) is str, pointer, f"a member name of the type {type(name).__name__} is not plain JSON")
            _require_plain(name, pointer)
            step = name.replace("~", "~0").replace("/", "~1")
            _require_plain(item, f"{pointer}/{step}")
    elif kind is str:
        _require(not SURROGATE.search(value), pointer, "string contains a lone surrogate")
    elif kind is int:
        _require(abs(value) < 2**53, pointer, "integer is out of range; send it as a string")
    elif kind is float:
        _require(math.isfinite(value), pointer, "number is not finite")
    else:
        _require(value is None or kind is bool, pointer, f"a value of the type {kind.__name__} is not plain JSON")


def _require(condition: object, pointer: str, message: str) -> None:
    if not condition:
        raise SvcError("invalid_input", f"{pointer or '/'}: {message}", pointer=pointer)


def action_of(tool: str) -> str:
    """The action of a tool, as policies name it: `deleteAuditLog` and `delete-audit-log` are both `DELETE_AUDIT_LOG`.

    Raises `SvcError` (`invalid_input`) for a name without a letter A-Z or a digit.
    """
    name = "".join(one for one in unicodedata.normalize("NFKD", tool) if not unicodedata.category(one).startswith("M"))
    # Separates words by case, except in a name that is all upper case.
    if re.search("[a-z]", name):
        name = re.sub("([a-z0-9])([A-Z])", r"\1_\2", name)
        name = re.sub("([A-Z])([A-Z][a-z])", r"\1_\2", name)
    action = re.sub("[^A-Z0-9.:]+", "_", name.upper())[:MAX_ACTION].strip("_")
    if not re.search("[A-Z0-9]", action):
        raise SvcError("invalid_input", "/action: no action can be derived from the tool's name: set `action`")
    return action

"""Hashes and names of tool calls, equal to those of the TypeScript adapters."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from .encoding import document_hash
from .errors import InvalidError, SvcError, raising
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
        raise InvalidError("too_deep") from None
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
    elif kind in (dict, ReplayedReceipt) and all(type(name) is str for name in value):
        for name, item in value.items():
            _require_plain(item, f"{pointer}/{name}")
    elif value is not None and kind not in (str, int, float, bool):
        raise InvalidError("malformed_json", pointer)


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

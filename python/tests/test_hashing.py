import json
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from svc_verification import SvcError, action_of, canonical_hash, canonical_json, plain_hash
from svc_verification.hashing import result_hash

VECTORS = json.loads((Path(__file__).parents[2] / "test/vectors/tool-calls.json").read_bytes())


class Color(StrEnum):
    RED = "red"


@pytest.mark.parametrize("case", VECTORS["actions"], ids=lambda one: one["tool"][:40])
def test_a_tool_has_the_action_of_the_typescript_adapters(case: dict[str, Any]) -> None:
    if case["action"] is not None:
        assert action_of(case["tool"]) == case["action"]
    else:
        with pytest.raises(SvcError, match="no action can be derived"):
            action_of(case["tool"])


@pytest.mark.parametrize("case", VECTORS["arguments"], ids=lambda one: one["arguments"][:40])
def test_arguments_have_the_hash_of_the_typescript_adapters(case: dict[str, Any]) -> None:
    assert plain_hash(json.loads(case["arguments"])) == case["hash"]


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    "value",
    [
        {"at": datetime(2026, 1, 1, tzinfo=UTC)},
        {1: "a"},
        {"set": {1}},
        OrderedDict(a=1),
        Color.RED,
        {Color.RED: 1},
        b"bytes",
        float("nan"),
        2**53,
        "\ud800",
        {"\ud800": 1},
        CYCLE,
    ],
    ids=repr,
)
def test_a_value_that_is_not_plain_json_has_no_hash(value: Any) -> None:
    with pytest.raises(SvcError):
        plain_hash(value)
    assert result_hash(value) is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a/b": [b""]}, "/a~1b/0: a value of the type bytes is not plain JSON"),
        ({"a": {1: 2}}, "/a: a member name of the type int is not plain JSON"),
        ({"a": float("nan")}, "/a: number is not finite"),
        ({"a": 2**53}, "/a: integer is out of range; send it as a string"),
        ({"a": "\ud800"}, "/a: string contains a lone surrogate"),
        (CYCLE, "/: the value is nested too deeply, or contains itself"),
    ],
    ids=repr,
)
def test_an_error_names_the_value_that_is_not_plain_json(value: Any, message: str) -> None:
    with pytest.raises(SvcError) as caught:
        plain_hash(value)
    assert str(caught.value) == message


@pytest.mark.parametrize("hashed", [canonical_hash, canonical_json, plain_hash])
def test_a_value_without_a_json_form_is_invalid_input(hashed: Callable[[Any], str]) -> None:
    with pytest.raises(SvcError) as caught:
        hashed({"at": [2**53]})
    assert caught.value.code == "invalid_input"

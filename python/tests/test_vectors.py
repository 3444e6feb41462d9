"""The vectors that protocol/vectors/README.md describes, with the expected results."""

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from svc_verification import (
    InvalidError,
    Pins,
    canonical_hash,
    canonical_json,
    verify_evidence,
    verify_export,
    verify_run,
    verify_tlog_proof,
)
from svc_verification.answers import status_in
from svc_verification.crypto import pae, thumbprint
from svc_verification.encoding import base64_bytes, parse_json, read_base64url
from svc_verification.entries import leaf_hash, read_entry
from svc_verification.merkle import inclusion_root
from svc_verification.notes import Checkpoint
from svc_verification.offline import Place, missing_numbers
from svc_verification.records import PREFIXES

ROOT = Path(__file__).parents[2]


def load(path: str) -> Any:
    return json.loads((ROOT / path).read_bytes())


def vectors(name: str) -> Any:
    return load(f"protocol/vectors/{name}.json")


def named(cases: list[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[one["name"] for one in cases])


def offline_cases() -> list[Any]:
    files = sorted(ROOT.glob("protocol/vectors/*valid/*.json"))
    return [case for file in files for case in json.loads(file.read_bytes())]


def result_of(case: dict[str, Any]) -> dict[str, Any]:
    try:
        pins = Pins(**case["trust"])
    except InvalidError as error:
        return {"error": error.code}
    if "entry" in case:
        return verify_tlog_proof(case["tlog_proof"], case["entry"], pins).summary()
    text = base64.b64decode(case["export_base64"]) if "export_base64" in case else case["export"]
    options = {name: case[name] for name in ("receipt", "tlog_proof", "now") if name in case}
    return verify_export(text, pins, **options).summary()


@named(offline_cases())
def test_offline_verification_has_the_expected_result(case: dict[str, Any]) -> None:
    assert result_of(case) == case["expected"]


RUNS = vectors("run")


@named(RUNS["cases"])
def test_verification_of_a_run_has_the_expected_result(case: dict[str, Any]) -> None:
    close, *members = (RUNS["documents"][at] for at in (case["close"], *case["members"]))
    package = {"schema_version": "svc.registry.run/1.0", "close": close, "members": members}
    expected = case["expected"]
    if expected.get("complete"):
        expected = {**expected, "members": [one["entry"]["proof_id"] for one in members]}
    assert verify_run(json.dumps(package), Pins(**case["trust"])).summary() == expected


def member(name: str, seq: int | None, effect: str = "ADMIT", pending: str | None = None) -> Place:
    """A member of a run; without a number an erased one."""
    approval = None if pending is None else {"pending_proof_id": pending}
    aep = None if seq is None else {"evidence": {"approval": approval}, "subject": {"run": {"seq": seq}}}
    return Place({"proof_id": name, "effect": effect}, aep, 0, Checkpoint(0, b""))


HELD, GONE = member("a", 0, "REQUIRE_APPROVAL"), member("a", None, "REQUIRE_APPROVAL")


@pytest.mark.parametrize(
    ("members", "missing"),
    [
        ([HELD, member("b", 0, pending="a"), member("c", 1)], []),
        ([GONE, member("b", 0, pending="a"), member("c", 1)], [0]),
        ([HELD, member("b", 0, pending="a"), member("c", 0, pending="a"), member("d", 1)], None),
        ([HELD, member("b", 1, pending="a"), member("c", 1)], None),
        ([GONE, member("b", 1, pending="a"), member("c", 1)], None),
        ([member("b", 0, pending="a"), HELD, member("c", 1)], None),
        ([member("a", 0), member("b", 0, pending="a"), member("c", 1)], None),
        ([HELD, member("c", 0)], None),
        ([HELD], None),
    ],
)
def test_a_second_decision_repeats_the_number_of_its_own_pending_proof(
    members: list[Place], missing: list[int] | None
) -> None:
    if missing is not None:
        assert missing_numbers(members, 2) == missing
    else:
        with pytest.raises(InvalidError, match="seq_mismatch"):
            missing_numbers(members, 2)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b'"\xff"', "invalid_utf8"),
        (b"{'a':1}", "malformed_json"),
        (b"[01]", "malformed_json"),
        (b"\xef\xbb\xbf1", "malformed_json"),
        (b"1 2", "malformed_json"),
        (b'{"a":1,"\\u0061":2}', "duplicate_key"),
        (b'["\\ud800"]', "lone_surrogate"),
        (b'["\\u0000"]', "nul_character"),
        (b"[9007199254740993.0]", "integer_out_of_range"),
        (b"[1e20]", "integer_out_of_range"),
        (b"[1e400]", "integer_out_of_range"),
        (b"[" * 33, "too_deep"),
    ],
)
def test_a_text_with_two_meanings_is_rejected(text: bytes, code: str) -> None:
    with pytest.raises(InvalidError, match=code):
        parse_json(text)


@pytest.mark.parametrize("name", ["request", "agent-admission"])
def test_a_request_has_the_expected_canonical_form_and_hash(name: str) -> None:
    for case in vectors(name):
        request = parse_json(case["received"])
        assert canonical_json(request) == case["canonical"]
        assert canonical_hash(request) == case["request_hash"]


def test_numbers_and_documents_have_the_canonical_form_of_rfc_8785() -> None:
    cases = load("test/vectors/rfc8785.json")
    for case in cases["documents"]:
        assert canonical_json(parse_json(case["input"])).encode().hex() == case["canonical_hex"]
    for case in cases["numbers"]:
        (number,) = struct.unpack(">d", bytes.fromhex(case["ieee754"]))
        assert canonical_json(number) == case["text"]


def test_signed_bytes_key_ids_and_identifiers_are_the_expected_ones() -> None:
    for case in vectors("envelope"):
        assert pae("svc.aep", case["payload"].encode()).decode() == case["signed_bytes"]
    key = vectors("keys")["aep"]
    assert thumbprint(read_base64url(key["public_key"], 32) or b"") == key["key_id"]
    ids = vectors("identifiers")
    assert ids == {field: prefix + ids["proof_id"] for field, prefix in PREFIXES.items()}


def test_entries_and_paths_lead_to_the_expected_roots() -> None:
    entries, tree = vectors("log-entry"), vectors("merkle")
    for case in entries:
        assert leaf_hash(read_entry(case["canonical"].encode())).hex() == case["leaf_hash"]
    for case in tree["inclusion"]:
        leaf = bytes.fromhex(entries[case["index"]]["leaf_hash"])
        path = [base64_bytes(one) for one in case["path"]]
        root = inclusion_root(case["index"], case["size"], leaf, path)
        assert (root or b"").hex() == tree["roots"][case["size"]]


NEXT = vectors("next")


@pytest.mark.parametrize("evidence", NEXT["evidence"], ids=lambda one: one["identifier"])
def test_evidence_proves_an_answer_until_it_expires(evidence: dict[str, Any]) -> None:
    pins = Pins(log_vkey=NEXT["log_vkey"], log_origin="log.example/svc")
    identifier = NEXT["token"] if len(evidence["identifier"]) == 64 else evidence["identifier"]
    text = json.dumps(evidence)
    proved = verify_evidence(text, pins, identifier=identifier, now="2026-11-22T08:32:00.000Z")
    later = "2026-12-22T08:32:00.000Z"
    if status_in(proved.answer) == "REVOKED":
        assert verify_evidence(text, pins, identifier=identifier, now=later).answer == proved.answer
    else:
        with pytest.raises(InvalidError, match="evidence_expired"):
            verify_evidence(text, pins, identifier=identifier, now=later)
    with pytest.raises(InvalidError, match="wrong_identifier"):
        verify_evidence(text, pins, identifier="another")

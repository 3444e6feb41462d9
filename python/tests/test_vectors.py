"""The vectors that protocol/vectors/README.md describes, with the expected results.

test_tiles.py tests `tiles.json`. No test covers consistency proofs: only a log, its witnesses and its monitors compute
them.
"""

import base64
import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from svc_verification import (
    Pins,
    SvcError,
    canonical_hash,
    canonical_json,
    verify_evidence,
    verify_export,
    verify_run,
    verify_tlog_proof,
)
from svc_verification.admissions import Expected
from svc_verification.answers import State, status_in
from svc_verification.crypto import pae, thumbprint, verify_ed25519
from svc_verification.documents import EXECUTE_RECEIPT
from svc_verification.encoding import base64_bytes, is_time, milliseconds, parse_json, read_base64url, sha256, shard_of
from svc_verification.entries import leaf_hash, read_entry
from svc_verification.errors import InvalidError
from svc_verification.merkle import inclusion_root
from svc_verification.notes import Checkpoint, Vkey, is_cosigned, open_note, parse_checkpoint, parse_vkey
from svc_verification.offline_run import Place, missing_numbers
from svc_verification.records import PREFIXES, Recorded

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
    except SvcError as error:
        return {"error": error.fault}
    if "entry" in case:
        return verify_tlog_proof(case["tlog_proof"], case["entry"], pins).summary()
    text = base64.b64decode(case["export_base64"]) if "export_base64" in case else case["export"]
    options = {name: case[name] for name in ("receipt", "tlog_proof", "now") if name in case}
    return verify_export(text, pins, **options).summary()


@named(offline_cases())
def test_offline_verification_has_the_expected_result(case: dict[str, Any]) -> None:
    assert result_of(case) == case["expected"]


def test_a_proof_that_awaits_its_first_verdict_does_not_resolve() -> None:
    values = vectors("full-log")["map"]
    records = {one["key"]: bytes.fromhex(one["record"]) for one in values}
    histories = {one["key"]: bytes.fromhex(one["history"]) for one in values}
    key, record = next(
        (key, one) for key, one in records.items() if key.startswith("01") and one[1] >> 4 == 1 and not one[2]
    )
    shard, activation = shard_of(key[2:]), int.from_bytes(record[28:34])
    without_verdict = record[:1] + bytes([record[1] & 15]) + record[2:16] + b"\xff" * 12 + record[28:]
    snapshot = next(
        entry for one in vectors("full-log")["evidence"] if (entry := one["snapshot"])["logs"][0]["shard"] == shard
    )
    statuses = []
    for one, history in ((record, histories[key]), (without_verdict, b"")):
        proof = Recorded(key[2:], one, history)
        proof.add_key(records["02" + shard.to_bytes(2).hex() + activation.to_bytes(14).hex()])
        answer = State(snapshot, {proof.id: proof}, {}, {}).answer("proof", proof.id)
        statuses.append(status_in(answer))
    assert statuses == ["VALID", "NOT_FOUND"]


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
    """A member of a run; without `seq`, an erased member."""
    approval = None if pending is None else {"pending_proof_id": pending}
    aep = None if seq is None else {"evidence": {"approval": approval}, "subject": {"run": {"seq": seq}}}
    return Place({"proof_id": name, "effect": effect, "aep_hash": name}, aep, 0, Checkpoint(0, b""), pending)


HELD, GONE = member("a", 0, "REQUIRE_APPROVAL"), member("a", None, "REQUIRE_APPROVAL")


@pytest.mark.parametrize(
    ("members", "missing"),
    [
        ([HELD, member("b", 0, pending="a"), member("c", 1)], []),
        ([GONE, member("b", 0, pending="a"), member("c", 1)], [0]),
        ([HELD, member("b", 0, pending="a"), member("c", 0, pending="a"), member("d", 1)], None),
        ([HELD, member("b", 1, pending="a"), member("c", 1)], None),
        ([HELD, replace(member("b", 0, pending="a"), approved="b"), member("c", 1)], None),
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
def test_a_text_that_is_not_strict_json_is_rejected(text: bytes, code: str) -> None:
    with pytest.raises(InvalidError, match=code):
        parse_json(text)


@pytest.mark.parametrize(
    "time",
    [
        "2026-02-30T00:00:00.000Z",
        "2026-01-01T23:60:00.000Z",
        "2026-01-01T23:59:60.000Z",
        # `datetime` of Python 3.14 takes this as the next midnight.
        "2026-01-01T24:00:00.000Z",
    ],
)
def test_a_time_out_of_range_is_rejected(time: str) -> None:
    assert not is_time(time)


@pytest.mark.parametrize(
    ("time", "number"),
    [
        ("0000-02-29T00:00:00.000Z", -62_162_121_600_000),
        ("0001-01-01T00:00:00.000Z", -62_135_596_800_000),
        ("1970-01-01T00:00:00.001Z", 1),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
    ],
)
def test_the_years_0_to_9999_have_times(time: str, number: int) -> None:
    assert is_time(time)
    assert milliseconds(time) == number


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


@pytest.mark.parametrize("name", ["aep", "proof-record"])
def test_a_document_has_the_expected_canonical_form_and_hash(name: str) -> None:
    for case in vectors(name):
        document = parse_json(case["canonical"])
        assert canonical_json(case.get("aep", document)) == case["canonical"]
        assert canonical_hash(document) == case["sha256"]


def test_a_reason_and_a_share_token_have_the_expected_hashes() -> None:
    lifecycle = vectors("lifecycle")
    reason, share = lifecycle["revocation_reason"], lifecycle["share_token"]
    assert canonical_json(reason["document"]) == reason["canonical"]
    assert canonical_hash(reason["document"]) == reason["reason_hash"]
    assert sha256(share["token"].encode()).hex() == share["token_hash"]


def test_a_receipt_with_any_altered_member_is_rejected() -> None:
    for case, status in zip(vectors("receipt"), ("ADMITTED", "DENIED"), strict=True):
        receipt = parse_json(case["body"])
        expected = Expected(EXECUTE_RECEIPT, receipt["request_hash"])
        assert expected.accepts(receipt, status)
        for name in receipt:
            assert not expected.accepts({**receipt, name: "0" * 64}, status)


def test_a_checkpoint_and_an_inclusion_proof_verify_with_the_key_of_the_log() -> None:
    case, proof, entries = vectors("checkpoint"), vectors("tlog-proof"), vectors("log-entry")
    text, signers = open_note(case["note"], [parse_vkey(case["vkey"])])
    checkpoint = parse_checkpoint(text, case["origin"])
    assert (text, len(signers)) == (case["text"], 1)
    assert (checkpoint.size, checkpoint.root) == (int(case["size"]), base64.b64decode(case["root"]))
    pins = Pins(log_vkey=case["vkey"], log_origin=case["origin"])
    entry = entries[int(proof["index"])]["canonical"]
    assert verify_tlog_proof(proof["text"], entry, pins).included


def test_an_export_has_the_expected_result() -> None:
    case = vectors("proof-export")
    summary = verify_export(json.dumps(case["document"]), Pins(**case["trust"])).summary()
    assert case["expected"].items() <= summary.items()


def test_ed25519_accepts_the_signatures_of_rfc_8032_and_rejects_an_altered_message() -> None:
    for case in load("test/vectors/rfc8032.json"):
        public, message, signature = (bytes.fromhex(case[one]) for one in ("public_key", "message", "signature"))
        assert verify_ed25519(public, message, signature)
        assert not verify_ed25519(public, message + b"!", signature)


def test_the_text_of_a_note_may_be_one_empty_line() -> None:
    key = Ed25519PrivateKey.generate()
    vkey = Vkey("log.example", b"hash", key.public_key().public_bytes_raw())
    line = base64.b64encode(vkey.key_hash + key.sign(b"\n")).decode()
    assert open_note(f"\n\n— {vkey.name} {line}\n", [vkey]) == ("\n", [vkey])


def test_notes_and_names_of_keys_have_no_lone_surrogate() -> None:
    case, text = vectors("checkpoint"), vectors("tlog-proof")["text"]
    pins = Pins(log_vkey=case["vkey"], log_origin="log.example/svc")
    entry = vectors("log-entry")[int(vectors("tlog-proof")["index"])]["canonical"]
    for altered in (text.replace("svc\n", "svc\ud800\n"), f"{text}— \ud800 AAAAAAA=\n"):
        assert verify_tlog_proof(altered, entry, pins).fault == "malformed_note"
    with pytest.raises(SvcError, match="malformed_vkey"):
        Pins(log_vkey="\ud800" + case["vkey"], log_origin="log.example/svc")


@pytest.mark.parametrize(("time", "counts"), [(0, False), (1, True), (2**53 - 1, True), (2**53, False)])
def test_a_cosignature_counts_only_with_a_time(time: int, counts: bool) -> None:
    key = Ed25519PrivateKey.generate()
    vkey = Vkey("witness.example", b"hash", key.public_key().public_bytes_raw())
    text = f"log.example\n0\n{base64.b64encode(sha256(b'')).decode()}\n"
    signature = key.sign(f"cosignature/v1\ntime {time}\n{text}".encode())
    line = base64.b64encode(vkey.key_hash + time.to_bytes(8, "big") + signature).decode()
    assert is_cosigned(f"{text}\n— {vkey.name} {line}\n", vkey) is counts


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


FULL_LOG = vectors("full-log")


@pytest.mark.parametrize("evidence", FULL_LOG["evidence"], ids=lambda one: one["identifier"])
def test_evidence_proves_an_answer_that_is_not_a_revocation_until_it_expires(evidence: dict[str, Any]) -> None:
    pins = Pins(log_vkey=FULL_LOG["log_vkey"], log_origin="log.example/svc")
    identifier = FULL_LOG["token"] if len(evidence["identifier"]) == 64 else evidence["identifier"]
    text = json.dumps(evidence)
    proved = verify_evidence(text, pins, identifier=identifier, now="2026-11-22T08:32:00.000Z")
    later = "2026-12-22T08:32:00.000Z"
    if status_in(proved.answer) == "REVOKED":
        assert verify_evidence(text, pins, identifier=identifier, now=later).answer == proved.answer
    else:
        with pytest.raises(SvcError, match="evidence_expired") as outdated:
            verify_evidence(text, pins, identifier=identifier, now=later)
        assert outdated.value.code == "evidence_outdated"
    with pytest.raises(SvcError, match="wrong_identifier") as rejected:
        verify_evidence(text, pins, identifier="another")
    assert rejected.value.code == "evidence_rejected"
    signature = text.rindex("BWMa")
    for altered, code in [
        (text.replace('"type": "snapshot"', '"type": "verdict"'), "malformed_entry"),
        (text[: signature + 8] + "AAAA" + text[signature + 12 :], "bad_signature"),
    ]:
        with pytest.raises(SvcError) as failed:
            verify_evidence(altered, pins, identifier=identifier)
        assert failed.value.fault == code
    with pytest.raises(SvcError) as unpinned:
        verify_evidence(text, Pins())
    assert unpinned.value.code == "unusable_pin"


@pytest.mark.parametrize(("length", "is_entry"), [(512, True), (513, False)])
def test_an_entry_has_an_origin_of_at_most_512_characters(length: int, is_entry: bool) -> None:
    snapshot = json.loads(FULL_LOG["entries"][17]["canonical"])
    snapshot["logs"].append({**snapshot["logs"][0], "shard": 1, "origin": "é" * length})
    if is_entry:
        assert read_entry(canonical_json(snapshot).encode()) == snapshot
    else:
        with pytest.raises(InvalidError, match="malformed_entry"):
            read_entry(canonical_json(snapshot).encode())


def test_the_key_of_a_log_key_entry_can_verify_signatures() -> None:
    def entry_of(public: bytes) -> bytes:
        data = b"\1" + public
        key_id = sha256(b"log.example\n" + data)[:4].hex()
        vkey = f"log.example+{key_id}+{base64.b64encode(data).decode()}"
        members = {"schema_version": "svc.registry.entry/1.1", "type": "key", "time": "2026-11-22T08:00:00.000Z"}
        return canonical_json(members | {"use": "log", "change": "activate", "vkey": vkey}).encode()

    assert read_entry(entry_of(Ed25519PrivateKey.generate().public_key().public_bytes_raw()))
    with pytest.raises(InvalidError, match="malformed_entry"):
        read_entry(entry_of(bytes(32)))


@pytest.mark.parametrize("pinned", [{"log_origin": "log.example"}, {"policy": "quorum none\n"}])
def test_the_origin_and_policy_of_a_log_need_its_vkey(pinned: dict[str, str]) -> None:
    with pytest.raises(SvcError) as caught:
        Pins(**pinned)
    assert (caught.value.code, caught.value.fault) == ("unusable_pin", "malformed_vkey")

"""Answers of the public API that a server could have made up."""

import base64
import json
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from svc_verification import Client, Pins, SvcError, verify_evidence, verify_export
from svc_verification.encoding import milliseconds, sha256
from svc_verification.errors import InvalidError
from svc_verification.notes import parse_note, parse_tlog_proof

from .test_vectors import FULL_LOG

PINS = Pins(log_vkey=FULL_LOG["log_vkey"], log_origin="log.example/svc")
# The package is revoked, and evidence of a revocation never becomes too old.
EVIDENCE = next(one for one in FULL_LOG["evidence"] if one["identifier"].startswith("pkg_"))
FORGED = {"generation": "9", "tree-size": "1000000", "issued-at": "2099-01-01T00:00:00.000Z"}


def test_a_verified_answer_has_the_snapshot_of_its_evidence() -> None:
    identifier, text = EVIDENCE["identifier"], json.dumps(EVIDENCE)
    proved = verify_evidence(text, PINS, identifier=identifier, route="package")

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.startswith("/api/public/evidence/"):
            return httpx.Response(200, text=text)
        names = ("snapshot-generation", "tree-size", "snapshot-issued-at")
        headers = {f"x-svc-{name}": value for name, value in zip(names, FORGED.values(), strict=True)}
        return httpx.Response(200, json=proved.answer, headers=headers)

    for pins, expected in ((None, (9, 1000000, FORGED["issued-at"])), (PINS, (17, 17, proved.time))):
        with Client(public_url="http://public", pins=pins, transport=httpx.MockTransport(answer)) as client:
            found = client.lookup("package", identifier)
        assert (found.generation, found.tree_size, found.issued_at) == expected


@pytest.mark.parametrize(
    "options",
    [
        *({"route": "proofs"}, {"view": "timeline"}, {"now": "2026-11-22T09:00:00Z"}, {"now": "2026-11-22"}),
        # A view is about one proof, not about a package.
        *({"view": "history"}, {"view": "chain", "route": "generic"}, {"view": "chain", "route": "proof"}),
    ],
)
def test_an_unknown_lookup_or_a_malformed_time_is_invalid_input(options: dict[str, Any]) -> None:
    with pytest.raises(SvcError) as caught:
        verify_evidence(json.dumps(EVIDENCE), PINS, **options)
    assert caught.value.code == "invalid_input"
    if "now" in options:
        with pytest.raises(SvcError, match="/now"):
            verify_export("{}", PINS, **options)


def test_the_routes_identifier_and_generic_have_the_same_answer() -> None:
    answers = [verify_evidence(json.dumps(EVIDENCE), PINS, route=route).answer for route in ("identifier", "generic")]
    assert answers[0] == answers[1]


def test_an_old_revocation_does_not_prove_the_validity_of_other_artifacts() -> None:
    _, own, _, key = EVIDENCE["lookups"]
    identifier = "cert_019aa2c1e07b70008a3e5d6b7c8d9e0f"
    text = json.dumps(EVIDENCE | {"identifier": identifier, "lookups": [own, key]})
    time, later = EVIDENCE["snapshot"]["time"], "2026-12-22T08:32:00.000Z"
    chain = verify_evidence(text, PINS, view="chain", now=time).answer
    verdicts = [link["verification_status"] for link in chain["links"]]
    assert verdicts == [None, None, "VALID", "EXPIRED", "REVOKED", "REVOKED"]
    assert verify_evidence(text, PINS, now=later).answer["verification"]["verification_status"] == "REVOKED"
    with pytest.raises(SvcError, match="by the clock of this reader: evidence_expired") as outdated:
        verify_evidence(text, PINS, view="chain", now=later)
    assert outdated.value.code == "evidence_outdated"


def test_a_note_has_at_most_1_000_000_bytes() -> None:
    note = parse_tlog_proof(FULL_LOG["evidence"][0]["tlog_proof"]).note

    def padded(name: str) -> str:
        return f"{note}\u2014 {name} AAAAAAA=\n"

    size = len(padded("").encode())
    name = "\u00e9" * ((1_000_000 - size) // 2) + "x" * (size % 2)
    assert len(parse_note(padded(name))[1]) == 2
    with pytest.raises(InvalidError, match="malformed_note"):
        parse_note(padded(name + "x"))


def test_waiting_for_a_verdict_continues_until_the_quorum_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = FULL_LOG["evidence"][0]
    identifier, log_proof = evidence["identifier"], evidence["tlog_proof"]
    key, name = Ed25519PrivateKey.generate(), "witness.example/w1"
    data = b"\4" + key.public_key().public_bytes_raw()
    key_id = sha256(name.encode() + b"\n" + data)[:4]
    vkey = f"{name}+{key_id.hex()}+{base64.b64encode(data).decode()}"
    text, _ = parse_note(parse_tlog_proof(log_proof).note)
    signature = key_id + bytes(7) + b"\1" + key.sign(f"cosignature/v1\ntime 1\n{text}".encode())
    cosigned = f"{log_proof}\u2014 {name} {base64.b64encode(signature).decode()}\n"
    log = {"log_vkey": FULL_LOG["log_vkey"], "log_origin": "log.example/svc"}
    time = evidence["snapshot"]["time"]
    answer = verify_evidence(json.dumps(evidence), Pins(**log), now=time).answer
    headers = {"x-svc-snapshot-generation": "17", "x-svc-tree-size": "17", "x-svc-snapshot-issued-at": time}
    polls = [log_proof, cosigned]

    def respond(request: httpx.Request) -> httpx.Response:
        if request.url.path.startswith("/api/public/evidence/"):
            return httpx.Response(200, json=evidence | {"tlog_proof": polls.pop(0)})
        return httpx.Response(200, json=answer, headers=headers)

    monkeypatch.setattr("svc_verification.evidence.current_time", lambda: milliseconds(time))
    pins = Pins(**log, policy=f"witness w1 {vkey}\nquorum w1\n")
    with Client(public_url="http://public", pins=pins, transport=httpx.MockTransport(respond)) as client:
        assert client.wait_for_verdict(identifier).verification_status == "VALID"
    assert polls == []

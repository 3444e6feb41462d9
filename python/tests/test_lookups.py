"""Answers of the public API that a server could have made up."""

import json
from typing import Any

import httpx
import pytest

from svc_verification import Client, Pins, SvcError, verify_evidence, verify_export

from .test_vectors import NEXT

PINS = Pins(log_vkey=NEXT["log_vkey"], log_origin="log.example/svc")
# The package is revoked, so its evidence counts at any age.
EVIDENCE = next(one for one in NEXT["evidence"] if one["identifier"].startswith("pkg_"))
FORGED = {"generation": "9", "tree-size": "1000000", "issued-at": "2099-01-01T00:00:00.000Z"}


def test_the_snapshot_of_a_verified_answer_is_that_of_its_evidence() -> None:
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
    "options", [{"route": "proofs"}, {"view": "timeline"}, {"now": "2026-11-22T09:00:00Z"}, {"now": "2026-11-22"}]
)
def test_an_unknown_lookup_or_another_form_of_time_is_invalid_input(options: dict[str, Any]) -> None:
    with pytest.raises(SvcError) as caught:
        verify_evidence(json.dumps(EVIDENCE), PINS, **options)
    assert caught.value.code == "invalid_input"
    if "now" in options:
        with pytest.raises(SvcError, match="/now"):
            verify_export("{}", PINS, **options)


def test_an_identifier_is_a_kind_of_lookup() -> None:
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
    with pytest.raises(SvcError, match="evidence_expired") as outdated:
        verify_evidence(text, PINS, view="chain", now=later)
    assert outdated.value.code == "evidence_outdated"

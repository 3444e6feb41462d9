import contextlib
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from svc_verification import (
    Pins,
    SvcError,
    agent_envelope,
    canonical_hash,
    canonical_json,
    execute_request,
    is_replayed,
    plain_hash,
    verify_evidence,
    verify_export,
    verify_run,
)

from .conftest import Driven

AGENT = {"id": "python-1", "framework": "none"}


def run_id() -> str:
    return f"{int(time.time() * 1000):012x}7000b{secrets.token_hex(8)[1:]}"


def test_an_action_is_admitted_and_its_proof_is_public_and_verifies(client: Driven, pins: Pins) -> None:
    receipt = client.admit(agent=AGENT, action="BOOK", tool="book", arguments_hash=canonical_hash({"seats": 2}))
    proof_id = receipt["registry_proof_id"]
    outcome = client.record_outcome(agent=AGENT, parent_proof_id=proof_id, result="succeeded")
    assert [one["proof_id"] for one in client.list_proofs(parent=proof_id)] == [outcome["registry_proof_id"]]
    assert client.read_proof(proof_id).response["aep"]["subject"]["action"] == "BOOK"
    _, evidence = client.receipt_evidence(receipt, pins)
    assert evidence.authentic

    found = client.wait_for_verdict(proof_id)
    assert (found.verification_status, found.can_assert_validity) == ("VALID", True)
    assert found.evidence is not None
    assert found.evidence.answer == found.record
    assert client.lookup("trust", f"trust_{proof_id}").verification_status == "TRUST_ESTABLISHED"
    assert [one["event"] for one in client.history("proof", proof_id).record["events"]][:2] == ["accepted", "appended"]
    assert client.trust_chain("certificate", f"cert_{proof_id}").record["available"]
    proved = verify_evidence(client.evidence(proof_id), pins, identifier=proof_id).answer
    assert proved["verification"] == found.record["verification"]
    exported = client.export_proof(proof_id, disclose=["arguments_hash"]).response
    assert verify_export(canonical_json(exported), pins).included
    assert client.verify_proof(proof_id).response["status"] == "VALID"
    assert client.verify_proof(exported).response["can_assert_validity"]
    assert client.export_proof(proof_id, "pdf").response[:5] == b"%PDF-"


def test_the_log_is_read_with_tiles(client: Driven) -> None:
    proof_id = client.admit(agent=AGENT, action="BOOK")["registry_proof_id"]
    client.wait_for_verdict(proof_id)
    entries: list[Any] = []
    while page := client.read_log(len(entries)):
        entries += page
    index = client.read_proof(proof_id).response["leaf_index"]
    assert entries[index]["proof_id"] == proof_id


def test_the_same_body_returns_the_same_receipt(client: Driven) -> None:
    for body in (
        agent_envelope("acme", "admission", {"agent": AGENT, "action": "BOOK"}),
        execute_request("acme", {"intent_id": secrets.token_hex(8), "action": "BOOK"}),
    ):
        receipt = client.submit(body)
        assert receipt["request_hash"] == canonical_hash(body)
        again = client.submit(body)
        assert (again, is_replayed(receipt), is_replayed(again)) == (receipt, False, True)
        assert plain_hash(again) == plain_hash(receipt)
        assert client.follow_admission(receipt["registry_proof_id"]) == receipt


def test_a_denial_raises_with_its_receipt(client: Driven) -> None:
    body = agent_envelope("acme", "admission", {"agent": AGENT, "action": "NEVER"})
    for is_repeat in (False, True):
        with pytest.raises(SvcError) as caught:
            client.submit(body)
        assert (caught.value.code, caught.value.retryable) == ("policy_denied", False)
        assert caught.value.denial is not None
        assert caught.value.denial["receipt"]["status"] == "DENIED"
        assert caught.value.denial["reasons"] == ["never"]
        assert is_replayed(caught.value.denial["receipt"]) == is_repeat


def denied(client: Driven) -> Any:
    with pytest.raises(SvcError) as caught:
        client.admit(agent=AGENT, action="NEVER")
    return caught.value.problem


def test_a_required_approval_raises_and_the_second_decision_admits(client: Driven) -> None:
    with pytest.raises(SvcError) as caught:
        client.execute(intent_id=secrets.token_hex(8), action="PAY")
    assert caught.value.code == "approval_required"
    assert caught.value.approval is not None
    assert caught.value.approval["reasons"] == ["hold"]
    first = caught.value.approval["receipt"]
    second = client.wait_for_approval(first, timeout=30)
    assert second["status"] == "ADMITTED"
    assert second["request_hash"] == first["request_hash"]
    assert second["registry_proof_id"] != first["registry_proof_id"]
    pending = first["registry_proof_id"]
    assert client.wait_for_approval(pending, timeout=30) == client.follow_admission(pending) == second
    another = client.admit(agent=AGENT, action="BOOK")
    as_problem = {"content-type": "application/problem+json"}
    for change in (answer(200, json=another), answer(403, json=denied(client), headers=as_problem)):
        with pytest.raises(SvcError, match="not about the requested proof"):
            client.with_(change).follow_admission(pending)


def test_a_closed_run_is_complete_unless_a_member_is_missing(client: Driven, pins: Pins) -> None:
    run = run_id()
    for seq in (0, 1):
        client.admit(agent=AGENT, action="BOOK", run={"id": run, "seq": seq})
    client.close_run(agent=AGENT, run={"id": run, "seq": 2})
    assert client.read_run(run, AGENT["id"]).response["state"] == "closed"
    for _ in range(100):
        try:
            package = client.export_run(run, AGENT["id"]).response
            break
        except SvcError as error:
            assert error.code == "not_ready"  # noqa: PT017
            time.sleep(0.1)
    complete = verify_run(package, pins)
    assert (complete.complete, len(complete.members or [])) == (True, 2)
    shorter = {**package, "members": package["members"][1:]}
    assert verify_run(shorter, pins).fault == "members_mismatch"
    with pytest.raises(SvcError, match="not about the requested run"):
        client.with_(answer(200, json=package)).export_run(run_id(), AGENT["id"])


# A response that does not answer the request is never an admission.


def body_of(**members: Any) -> Any:
    def change(_: httpx.Request, response: httpx.Response) -> httpx.Response:
        return httpx.Response(response.status_code, json={**response.json(), **members})

    return change


def rehashed(**members: Any) -> Any:
    """Changes members of a receipt, and recomputes its hash."""

    def change(_: httpx.Request, response: httpx.Response) -> httpx.Response:
        receipt = {**response.json(), **members}
        del receipt["response_hash"]
        return httpx.Response(200, json={**receipt, "response_hash": canonical_hash(receipt)})

    return change


def answer(status: int, **options: Any) -> Any:
    return lambda request, response: httpx.Response(status, **options)


def denial_as_admission(_: httpx.Request, response: httpx.Response) -> httpx.Response:
    return httpx.Response(200, json=response.json()["receipt"])


OTHER = "ab" * 32


@pytest.mark.parametrize(
    ("action", "change"),
    [
        ("BOOK", body_of(response_hash=OTHER)),
        ("BOOK", rehashed(request_hash=OTHER, receipt_id=f"svc-agent-admission-{OTHER[:16]}")),
        ("BOOK", rehashed(receipt_id=f"svc-agent-admission-{OTHER[:16]}")),
        ("BOOK", rehashed(status="DENIED")),
        ("BOOK", body_of(more=1)),
        ("BOOK", answer(200, text="{}", headers={"content-type": "text/html"})),
        ("BOOK", answer(302, headers={"location": "http://127.0.0.1:9/"})),
        ("BOOK", answer(404, text="<html>")),
        ("NEVER", denial_as_admission),
        ("PAY", denial_as_admission),
    ],
)
def test_an_unexpected_response_is_not_an_admission(client: Driven, action: str, change: Any) -> None:
    network = client.with_(change)
    with pytest.raises(SvcError) as caught:
        network.admit(agent=AGENT, action=action)
    assert caught.value.code == "unexpected_response"
    assert network.transport is not None
    assert len(network.transport.requests) == 1


def test_a_response_above_the_size_limit_is_rejected(client: Driven) -> None:
    with pytest.raises(SvcError, match="longer than 17825792 bytes"):
        client.with_(answer(200, content=b" " * 17825793)).lookup("proof", "019aa2c1e07b7c0f8a3e5d6b7c8d9e0f")


def lost(request: httpx.Request, _: httpx.Response) -> httpx.Response:
    raise httpx.ReadError("lost", request=request)


def test_a_lost_response_and_an_unavailable_service_are_retried_with_the_same_body(client: Driven) -> None:
    network = client.with_(lost, answer(503, headers={"retry-after": "0"}), lost)
    receipt = network.admit(agent=AGENT, action="BOOK")
    assert network.transport is not None
    sent = network.transport.requests
    assert [one.headers["x-svc-idempotency-key"] for one in sent] == [receipt["request_hash"]] * 4
    assert len({one.content for one in sent}) == 1


@pytest.mark.parametrize(
    ("changes", "code", "requests"),
    [
        ([lost] * 9, "network", 5),
        ([answer(502)] * 9, "unavailable", 5),
        ([answer(408)] * 9, "unavailable", 5),
        ([answer(429, headers={"retry-after": "3600"})], "rate_limited", 1),
        ([answer(500)], "engine_failed", 1),
    ],
)
def test_a_failed_admission_raises_an_error(client: Driven, changes: list[Any], code: str, requests: int) -> None:
    network = client.with_(*changes)
    with pytest.raises(SvcError) as caught:
        network.admit(agent=AGENT, action="BOOK")
    assert caught.value.code == code
    assert network.transport is not None
    assert len(network.transport.requests) == requests


def drip(connection: socket.socket) -> None:
    """Sends a body byte by byte, so that no single read times out."""
    with contextlib.suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n")
        while True:
            connection.sendall(b" ")
            time.sleep(0.05)


@pytest.mark.parametrize("serve", [lambda _: None, drip], ids=["silent", "dripping"])
def test_the_deadline_ends_a_call(client: Driven, serve: Callable[[socket.socket], None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        accept = threading.Thread(target=lambda: serve(server.accept()[0]), daemon=True)
        accept.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(SvcError, match=r"longer than 0\.3 s") as caught:
            client.with_(engine_url=url, timeout=0.3, transport=None).admit(agent=AGENT, action="BOOK")
        accept.join()
    assert caught.value.code == "timeout"


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"api_key": "svc_sk_hqbkacmaciaa_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA1ibZpl"}, "unauthenticated"),
        ({"tenant_id": "another"}, "forbidden"),
        ({"api_key": "a\nb"}, "invalid_input"),
        ({"engine_url": "ftp://127.0.0.1"}, "invalid_input"),
    ],
)
def test_wrong_settings_have_a_code(client: Driven, settings: dict[str, Any], code: str) -> None:
    with pytest.raises(SvcError) as caught:
        client.with_(**settings).admit(agent=AGENT, action="BOOK")
    assert caught.value.code == code


def test_an_invalid_envelope_is_not_sent(client: Driven) -> None:
    network = client.with_()
    with pytest.raises(SvcError, match=r"^/action: ") as caught:
        network.admit(agent=AGENT, action="lower case")
    assert caught.value.code == "invalid_input"
    assert network.transport is not None
    assert network.transport.requests == []


def test_the_engine_rejects_unknown_facts_with_a_pointer(client: Driven) -> None:
    with pytest.raises(SvcError, match="/facts/color") as caught:
        client.admit(agent=AGENT, action="BOOK", facts={"color": "red"})
    assert caught.value.code == "invalid_request"


# A client with pins compares each answer of the public API with its evidence.


def test_a_verdict_that_the_evidence_does_not_prove_is_rejected(client: Driven) -> None:
    proof_id = client.admit(agent=AGENT, action="BOOK")["registry_proof_id"]
    client.wait_for_verdict(proof_id)

    def revoked(_: httpx.Request, response: httpx.Response) -> httpx.Response:
        verdict = {**response.json()["verification"], "verification_status": "REVOKED", "can_assert_validity": False}
        return httpx.Response(200, json={**response.json(), "verification": verdict}, headers=snapshot_of(response))

    def altered_evidence(_: httpx.Request, response: httpx.Response) -> httpx.Response:
        document = response.json()
        document["lookups"][0]["record"] = document["lookups"][0]["history"]
        return httpx.Response(200, content=json.dumps(document))

    for changes, fault in (
        ([revoked], "answer_mismatch"),
        ([lambda _, response: response, altered_evidence], "wrong_map_root"),
    ):
        with pytest.raises(SvcError) as caught:
            client.with_(*changes).lookup("proof", proof_id)
        assert (caught.value.code, caught.value.fault) == ("evidence_rejected", fault)


def snapshot_of(response: httpx.Response) -> dict[str, str]:
    names = ("x-svc-tree-size", "x-svc-snapshot-generation", "x-svc-snapshot-issued-at")
    return {name: response.headers[name] for name in names}


OTHER_LOG = "log.example/svc+05631a33+AcqTrBcFGHBx1nuDx/8O/oEI6OxFMFdddyaHkzPb2r58"


def test_evidence_of_another_log_is_rejected(client: Driven) -> None:
    other = {"log_vkey": OTHER_LOG, "log_origin": "log.example/svc"}
    with pytest.raises(SvcError) as caught:
        client.with_(pins=Pins(**other)).lookup("proof", "019aa2c1e07b7c0f8a3e5d6b7c8d9e0f")
    assert caught.value.code == "evidence_rejected"
    with pytest.raises(SvcError, match="malformed_vkey"):
        Pins(**{**other, "log_vkey": OTHER_LOG.replace("05631a33", "00000000")})

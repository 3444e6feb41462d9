"""Requests that cannot be sent, and responses that a client must not read."""

import asyncio
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from svc_verification import AsyncClient, Client, Gate, Pins, Retry, SvcError, admitted, verify_export

from .engine import PROOF_ID, SETTINGS, client_of, pending, receipt_of
from .test_admissions import PENDING
from .test_vectors import vectors


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.lookup("proof", "a" * 70_000),
        lambda client: client.verify_proof({"proof_id": PROOF_ID, "more": float("nan")}),
        lambda client: client.read_run(PROOF_ID, "\ud800"),
        lambda client: client.list_page(agent="\ud800"),
    ],
)
def test_a_request_that_cannot_be_sent_is_invalid_input(call: Callable[[Client], Any]) -> None:
    with client_of(Client, lambda _: httpx.Response(503)) as client, pytest.raises(SvcError) as caught:
        call(client)
    assert caught.value.code == "invalid_input"


@pytest.mark.parametrize(("content", "why"), [(b"svc_sk_\xff", "not UTF-8"), (None, "No such file or directory")])
def test_an_unusable_key_file_is_invalid_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, why: str
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("SVC_API_KEY_FILE", str(file))
    with (
        Client(engine_url="http://engine", tenant_id="acme") as client,
        pytest.raises(SvcError, match=f"cannot be read: {why}") as caught,
    ):
        client.read_proof(PROOF_ID)
    assert caught.value.code == "invalid_input"


def test_a_key_file_may_begin_with_a_byte_order_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"\xef\xbb\xbfsvc_sk_1\r\n")
    monkeypatch.setenv("SVC_API_KEY_FILE", str(file))
    keys = list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["x-svc-api-key"])
        return httpx.Response(503)

    with (
        Client("http://engine", tenant_id="acme", transport=httpx.MockTransport(answer), retry=Retry(1)) as client,
        pytest.raises(SvcError),
    ):
        client.read_proof(PROOF_ID)
    assert keys == ["svc_sk_1"]


def test_a_closed_client_sends_no_request() -> None:
    client = client_of(Client, lambda _: httpx.Response(503))
    client.close()
    book = admitted(Gate(client, {"id": "agent-7"}))(lambda: None)
    for call in (lambda: client.read_proof(PROOF_ID), book):
        with pytest.raises(SvcError, match=r"^(.* did not run: not admitted: )?the client is closed") as caught:
            call()
        assert caught.value.code == "invalid_input"


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), RecursionError(), NotImplementedError()])
def test_an_error_of_the_transport_does_not_claim_that_no_request_was_sent(error: RuntimeError) -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        raise error

    with client_of(Client, fail) as client, pytest.raises(type(error)) as caught:
        client.read_proof(PROOF_ID)
    assert caught.value is error


def test_a_client_that_is_closed_during_a_call_reports_that_the_service_may_have_acted() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        client.close()
        return httpx.Response(202, json=PENDING, headers={"retry-after": "0"})

    client = client_of(Client, answer)
    with pytest.raises(SvcError, match="the service may have acted") as caught:
        client.admit(agent={"id": "agent-7"}, action="BOOK")
    assert (caught.value.code, caught.value.proof_id) == ("aborted", PROOF_ID)


def test_a_client_of_another_event_loop_sends_no_request_although_no_connection_is_open() -> None:
    requests = list[httpx.Request]()

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(404)

    shared = AsyncClient(transport=httpx.MockTransport(answer), **SETTINGS)
    for client, code in [(shared, "unexpected_response"), (shared.with_timeout(1), "invalid_input")]:
        with pytest.raises(SvcError) as caught:
            asyncio.run(client.read_proof(PROOF_ID))
        assert caught.value.code == code
    assert "belongs to another event loop" in str(caught.value)
    assert len(requests) == 1


@pytest.mark.parametrize("delay", ["Mon, 01 Jan 2029 00:00:00 +99999999999999", "Mon, 01 Jan 99999999999 00:00:00 GMT"])
def test_a_retry_after_that_is_not_an_http_date_is_ignored(delay: str) -> None:
    answer = httpx.Response(503, headers={"retry-after": delay})
    with client_of(Client, lambda _: answer) as client, pytest.raises(SvcError) as caught:
        client.lookup("proof", PROOF_ID)
    assert (caught.value.code, caught.value.retry_after) == ("unavailable", None)


RECEIPT = receipt_of({}, "APPROVAL_REQUIRED", 1)


def test_an_approval_may_have_expired_in_the_year_0() -> None:
    status = pending(RECEIPT, "0000-01-01T00:00:00.000Z")
    with client_of(Client, lambda _: status) as client, pytest.raises(SvcError) as caught:
        client.wait_for_approval(RECEIPT["registry_proof_id"])
    assert caught.value.code == "approval_required"


def test_an_approval_expires_by_the_clock_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    dates = iter(["Tue, 31 Dec 2019 23:59:59 GMT", "Wed, 01 Jan 2020 00:00:29 GMT", "Wed, 01 Jan 2020 00:00:31 GMT"])
    monkeypatch.setattr("time.sleep", lambda _: None)
    with (
        client_of(Client, lambda _: pending(RECEIPT, "2020-01-01T00:00:00.000Z", next(dates))) as client,
        pytest.raises(SvcError) as caught,
    ):
        client.wait_for_approval(RECEIPT["registry_proof_id"])
    assert (caught.value.code, list(dates)) == ("approval_required", [])


def test_the_wait_for_an_approval_ends_although_the_clock_of_the_service_never_advances() -> None:
    polls = list[None]()

    def answer(_: httpx.Request) -> httpx.Response:
        polls.append(None)
        assert len(polls) < 10
        return pending(RECEIPT, "2020-01-01T00:00:00.000Z", "Wed, 01 Jan 2020 00:00:29 GMT")

    with client_of(Client, answer) as client, pytest.raises(SvcError) as caught:
        client.wait_for_approval(RECEIPT["registry_proof_id"])
    assert (caught.value.code, len(polls) > 1) == ("approval_required", True)


def test_a_compressed_response_is_not_decompressed() -> None:
    requests = list[httpx.Request]()
    bomb = gzip.compress(gzip.compress(bytes(10_000_000)))

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, headers={"content-encoding": "gzip, gzip"}, stream=httpx.ByteStream(bomb))

    with client_of(Client, answer) as client, pytest.raises(SvcError, match="compressed") as caught:
        client.lookup("proof", PROOF_ID)
    assert caught.value.code == "unexpected_response"
    assert [one.headers["accept-encoding"] for one in requests] == ["identity"]


def test_an_answer_may_have_more_members_than_this_version_knows() -> None:
    case = vectors("proof-export")
    document = case["document"]
    verdict = {**document["verdict"], "artifacts": {**document["verdict"]["artifacts"], "more": 1}, "more": 1}
    parts = {name: {**document[name], "more": 1} for name in ("inclusion", "key")}
    view = {
        "schema_version": "svc.registry.proof_view/1.0",
        "effect": "ADMIT",
        "leaf_index": 1,
        "log_entry": document["entry"],
    }
    answers = {
        "export": {**document, **parts, "verdict": verdict, "more": 1},
        document["proof_id"]: {**view, "proof_id": document["proof_id"], "aep": document["aep"], "verdict": verdict},
    }
    with client_of(
        Client, lambda request: httpx.Response(200, json=answers[request.url.path.split("/")[-1]])
    ) as client:
        exported = client.export_proof(document["proof_id"]).response
        assert client.read_proof(document["proof_id"]).response["verdict"] == verdict
    # An export that is verified has exactly the known members.
    assert verify_export(exported, Pins(**case["trust"])).fault == "unknown_member"

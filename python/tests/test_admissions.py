"""Admissions by an engine that fails or answers falsely."""

from collections.abc import Callable

import httpx
import pytest

from svc_verification import Client, Retry, SvcError

PROOF_ID = "019aa2c1e07b70008a3e5d6b7c8d9e0f"
PENDING = {"schema_version": "svc.runtime.admission_status/1.0", "proof_id": PROOF_ID, "state": "pending"}


def client_of(answer: Callable[[httpx.Request], httpx.Response]) -> Client:
    return Client(
        engine_url="http://engine",
        public_url="http://public",
        tenant_id="acme",
        api_key="key",
        retry=Retry(attempts=1),
        transport=httpx.MockTransport(answer),
    )


@pytest.mark.parametrize(("status", "code"), [(500, "engine_failed"), (404, "unexpected_response")])
def test_the_error_of_a_failed_poll_names_the_accepted_admission(status: int, code: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(202, json=PENDING, headers={"retry-after": "0"})
        return httpx.Response(status)

    with client_of(answer) as client, pytest.raises(SvcError) as caught:
        client.admit(agent={"id": "agent-7"}, action="BOOK")
    assert (caught.value.code, caught.value.proof_id) == (code, PROOF_ID)

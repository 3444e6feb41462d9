"""Requests that are not valid, and admissions by an engine that fails or answers falsely."""

from decimal import Decimal
from typing import Any

import httpx
import pytest

from svc_verification import Client, SvcError

from .engine import PROOF_ID, client_of

PENDING = {"schema_version": "svc.runtime.admission_status/1.0", "proof_id": PROOF_ID, "state": "pending"}


@pytest.mark.parametrize(("status", "code"), [(500, "engine_failed"), (404, "unexpected_response")])
def test_the_error_of_a_failed_poll_names_the_accepted_admission(status: int, code: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(202, json=PENDING, headers={"retry-after": "0"})
        return httpx.Response(status)

    with client_of(Client, answer) as client, pytest.raises(SvcError) as caught:
        client.admit(agent={"id": "agent-7"}, action="BOOK")
    assert (caught.value.code, caught.value.proof_id) == (code, PROOF_ID)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"action": "book"}, "/action: expected 1 to 128 of A-Z 0-9 _ . : -"),
        ({"agent": "agent-7"}, '/agent: expected a dictionary such as {"id": "agent-7"}'),
        ({"run": {"id": PROOF_ID}}, "/run/seq: expected an integer from 0 to 10,000"),
        ({"arguments": {}}, "/arguments: unknown_member"),
        ({"kind": "note"}, "/kind: expected admission, outcome or close"),
        (
            {"schema_version": "svc.agent.admission.envelope/0"},
            "/schema_version: expected that of agent_envelope or execute_request",
        ),
        ({"facts": {"amount": Decimal("1.00")}}, "/facts/amount: a value of the type Decimal is not plain JSON"),
    ],
)
def test_the_error_of_an_invalid_request_names_the_member_and_the_expected_value(
    fields: dict[str, Any], message: str
) -> None:
    with client_of(Client, lambda _: httpx.Response(503)) as client, pytest.raises(SvcError) as caught:
        client.admit(**{"agent": {"id": "agent-7"}, "action": "BOOK", **fields})
    assert (str(caught.value), caught.value.code) == (message, "invalid_input")
    assert caught.value.pointer == message.partition(":")[0]

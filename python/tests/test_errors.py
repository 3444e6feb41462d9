"""Errors from responses of the service."""

import copy
import json
import pickle

import pytest

from svc_verification import SvcError
from svc_verification.gate import not_admitted
from svc_verification.transport import Response, http_error

FINAL = ["already_decided", "approver_retired", "run_closed", "run_seq_taken"]


@pytest.mark.parametrize("code", [*FINAL, "pending_verdict"])
def test_a_conflict_is_not_ready_only_if_it_can_end(code: str) -> None:
    problem = {"type": f"urn:svc:problem:{code}", "title": code, "status": 409, "detail": code, "code": code}
    content = json.dumps(problem | {"request_id": "one"}).encode()
    error = http_error(Response(409, {"content-type": "application/problem+json"}, content))
    assert error.problem is not None
    assert error.code == ("invalid_request" if code in FINAL else "not_ready")


def test_an_error_about_a_name_with_a_lone_surrogate_can_be_printed() -> None:
    error = not_admitted(SvcError("network", "no response"), "bo\ud800k", None)
    assert str(error).encode().startswith(b"bo\\ud800k did not run")


def test_an_error_can_be_pickled_and_copied() -> None:
    error = not_admitted(SvcError("network", "no response", retry_after=2.0), "book", "BOOK")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301
        assert vars(other) == vars(error)
        assert str(other) == str(error)


def test_the_representation_of_an_error_has_only_its_code_and_message() -> None:
    error = SvcError("policy_denied", "denied", problem={"detail": "denied"}, tool="book")
    assert repr(error) == "SvcError('policy_denied', 'denied')"

"""Records and histories of proofs (spec/snapshot.md, Records)."""

import pytest

from svc_verification.encoding import KINDS, milliseconds
from svc_verification.errors import InvalidError
from svc_verification.records import NONE, Recorded

PROOF_ID = "019aa2c1e07b70008a3e5d6b7c8d9e0f"
TIME = "2026-11-22T08:30:00.000Z"


def number(value: int) -> bytes:
    return value.to_bytes(6, "big")


def record(*ends: int, verified_at: int = milliseconds(TIME)) -> bytes:
    """The record of a verified admission at leaf 6."""
    numbers = (6, milliseconds(TIME), 13, verified_at, NONE, *(ends or [NONE] * len(KINDS)))
    return b"\1\x18\0\0" + b"".join(map(number, numbers)) + bytes(64)


def event(kind: int, at: int = milliseconds(TIME)) -> bytes:
    return bytes([kind]) + number(13) + number(at)


PASSED = event(1)


def test_artifacts_that_expire_together_are_listed_in_the_order_of_their_dependence() -> None:
    proof = Recorded(PROOF_ID, record(*[milliseconds(TIME)] * len(KINDS)), PASSED)
    (*_, expired) = proof.events("trust", TIME)
    assert expired == {"event": "expired", "at": TIME, "artifacts": [*KINDS]}


LAST = milliseconds("9999-12-31T23:59:59.999Z")


@pytest.mark.parametrize(
    ("altered", "history"),
    [
        (record(verified_at=LAST + 1), PASSED),
        (record(LAST + 1, NONE, NONE, NONE), PASSED),
        (record(NONE, NONE, NONE, NONE - 1), PASSED),
        (record(), event(1, LAST + 1)),
        (record(), event(1, NONE)),
        (record(), b"\1" + number(NONE) + number(LAST)),
    ],
)
def test_times_and_indexes_that_no_entry_can_have_are_malformed(altered: bytes, history: bytes) -> None:
    with pytest.raises(InvalidError, match="malformed_record"):
        Recorded(PROOF_ID, altered, history)


def test_a_record_has_a_verdict_exactly_if_its_history_has_an_event_of_a_verdict() -> None:
    verified, erased = record(), event(4)
    unverified = verified[:1] + b"\x08" + verified[2:16] + b"\xff" * 12 + verified[28:]
    for altered, history in [(verified, b""), (verified, erased), *((unverified, event(kind)) for kind in (1, 2, 3))]:
        with pytest.raises(InvalidError, match="malformed_record"):
            Recorded(PROOF_ID, altered, history)
    for kind in (1, 2, 3):
        Recorded(PROOF_ID, verified, event(kind))
    Recorded(PROOF_ID, unverified, erased)


def test_the_last_time_of_the_year_9999_is_accepted() -> None:
    proof = Recorded(PROOF_ID, record(LAST, NONE, NONE, NONE, verified_at=LAST), event(1, LAST))
    assert proof.verified_at == proof.history[0].at == "9999-12-31T23:59:59.999Z"

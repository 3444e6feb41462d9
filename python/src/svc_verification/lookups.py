"""Lookups of the public API, whose answers are compared with evidence when a log is pinned."""

from __future__ import annotations

import re
from itertools import count
from typing import Any
from urllib.parse import quote

from . import forms
from .answers import Answer
from .encoding import KINDS, is_time
from .errors import SvcError
from .evidence import Proved, verify_evidence
from .forms import having
from .models import Lookup
from .settings import Call, Settings
from .tiles import read_log
from .transport import Response, Retry, Service, http_error, read_document, settle, unexpected

# The artifact of a lookup; None for a kind that may resolve to any artifact.
ANSWERED = {one: one for one in KINDS} | {"trust-asset": "trust", "package": "trust", "share": None, "identifier": None}
VIEWS = {"history": "history", "chain": "trust-chain"}
ROUNDS = Retry(attempts=5, base_delay=0.1, max_delay=1.0)
VERDICT_POLL = Retry(base_delay=0.2, max_delay=3.0)
OPEN_STATUSES = ("NOT_FOUND", "BACKEND_LOOKUP_REQUIRED")
_VERDICT = {"verification_status": forms.is_status, "can_assert_validity": forms.is_boolean}
_NAMED = {"artifact_kind": forms.is_kind, "identifier": forms.is_text, "lookup": having(requested=forms.is_text)}
FACADE = having(
    schema_version=forms.just("svc.public_verification.facade/1.0"),
    **_NAMED,
    verification=having(forms.asserts_by_status, **_VERDICT, frontend_recomputed=forms.just(False)),
    mutation_allowed=forms.just(False),
    serves_authoritative_truth=forms.just(False),
)
NOT_FOUND = having(
    schema_version=forms.just("svc.public_verification.not_found/1.0"),
    result=forms.just("NOT_FOUND"),
    verification_status=forms.just("NOT_FOUND"),
    can_assert_validity=forms.just(False),
    verdict_fabricated=forms.just(False),
)


def _view(name: str, **members: forms.Form) -> forms.Form:
    schema = forms.just(f"svc.public_verification.{name}/1.0")
    return having(forms.asserts_by_status, schema_version=schema, **_NAMED, **_VERDICT, **members)


HISTORY = _view("history", events=forms.items(having(event=forms.is_text)))
TRUST_CHAIN = _view(
    "trust_chain",
    available=forms.is_boolean,
    sequence=forms.items(forms.is_text),
    links=forms.items(having(stage=forms.is_text, identifier=forms.is_text)),
)


class LookupCalls(Settings):
    @Call
    async def lookup(self, kind: str, identifier: str) -> Lookup:
        """The public verdict on an artifact. A registry without a current snapshot raises `unavailable`."""
        return await self._look_up(kind, identifier)

    @Call
    async def history(self, kind: str, identifier: str) -> Lookup:
        """The status history of an artifact."""
        return await self._look_up(kind, identifier, "history")

    @Call
    async def trust_chain(self, kind: str, identifier: str) -> Lookup:
        """Each stage of an artifact with its verdict."""
        return await self._look_up(kind, identifier, "chain")

    @Call
    async def evidence(self, identifier: str) -> bytes:
        """The evidence of a public answer, for `verify_evidence`."""
        return await _read_evidence(self._public, identifier)

    @Call
    async def wait_for_verdict(self, proof_id: str) -> Lookup:
        """Polls for the public verdict on a proof, which appears a few seconds after its admission.

        Polls also while the registry is unavailable or a quorum is missing.
        """
        service, last = self._public, "no response"
        for attempt in count(1):
            try:
                found = await self._look_up("proof", proof_id, service=service)
                if found.verification_status not in OPEN_STATUSES:
                    return found
                last = f"last status {found.verification_status}"
            except SvcError as error:
                # Keep polling for a quorum: witnesses cosign a checkpoint only after its publication.
                if not error.retryable and error.fault != "quorum_not_met":
                    raise
                last = str(error)
            delay = VERDICT_POLL.backoff(attempt)
            if delay >= service.deadline.remaining():
                break
            await settle(service.client._sleep(delay))
        raise SvcError("timeout", f"no verdict in time: {last}")

    @Call
    async def read_log(self, first: int = 0) -> list[dict[str, Any]]:
        """The log's entries from an index to the next multiple of 256; an empty list at the end of the log.

        Every entry is verified under a checkpoint of the pinned log. The next call may see a longer log.
        """
        return await read_log(self._public, first, None if self.pins is None else self.pins.log)

    async def _look_up(
        self, kind: str, identifier: str, view: str | None = None, service: Service | None = None
    ) -> Lookup:
        """Reads an answer. With a pinned log, compares the answer with the answer that verified evidence proves."""
        service = service or self._public
        path, query = _target(kind, identifier, view)
        for attempt in count(1):
            response = await service.send("GET", path, query=query)
            record = _read(response, kind, identifier, view)
            snapshot = generation, _, _ = _snapshot_of(response)
            proved: Proved | None = None
            if self.pins is not None:
                evidence = await _read_evidence(service, identifier)
                proved = verify_evidence(
                    evidence, self.pins, identifier=identifier, route=kind, view=view, max_age=self.max_age
                )
                if not agrees(proved.answer, record):
                    # Reads answer and evidence again if they may come from different snapshots.
                    if generation == proved.log_index or attempt >= ROUNDS.attempts:
                        message = "the answer differs from its evidence"
                        raise SvcError("evidence_rejected", message, fault="answer_mismatch")
                    await service.wait(ROUNDS.backoff(attempt))
                    continue
                record = proved.answer
                snapshot = proved.log_index, proved.tree_size, proved.time
            verdict = record.get("verification", record)
            return Lookup(record, verdict["verification_status"], verdict["can_assert_validity"], *snapshot, proved)
        raise AssertionError("unreachable")


async def _read_evidence(service: Service, identifier: str) -> bytes:
    return (await service.read(f"/api/public/evidence/{_segment(identifier)}")).content


def agrees(proved: Any, served: Any) -> bool:
    """Whether a served document has every member of the proved document, except the addresses in `downloads`."""
    if isinstance(proved, dict):
        return isinstance(served, dict) and all(
            name == "downloads" or (name in served and agrees(value, served[name])) for name, value in proved.items()
        )
    if isinstance(proved, list):
        is_list = isinstance(served, list) and len(served) == len(proved)
        return is_list and all(agrees(*pair) for pair in zip(proved, served, strict=True))
    return type(proved) is type(served) and bool(proved == served)


def _target(kind: str, identifier: str, view: str | None) -> tuple[str, dict[str, str] | None]:
    kinds = tuple(ANSWERED) if view is None else KINDS
    if kind not in kinds or (view == "chain" and kind == "proof"):
        raise SvcError("invalid_input", f"/kind: the kind must be one of {', '.join(kinds)}")
    segment = _segment(identifier)
    if view is not None:
        name = {"history": "timeline", "chain": "chain"}[view] if kind == "trust" else VIEWS[view]
        return f"/api/public/{kind}/{segment}/{name}", None
    if kind == "identifier":
        return "/api/public/verify", {"identifier": identifier}
    return f"/api/public/verify/{kind}/{segment}", None


def _segment(identifier: str) -> str:
    """An escaped path segment. URL parsers would resolve `.` and `..`, and drop an empty segment."""
    if re.fullmatch(r"\.{0,2}", identifier):
        raise SvcError("invalid_input", "/identifier: it is empty, `.` or `..`")
    try:
        return quote(identifier, safe="")
    except UnicodeError as error:
        raise SvcError("invalid_input", "/identifier: it contains a lone surrogate") from error


def _read(response: Response, kind: str, identifier: str, view: str | None) -> Answer:
    if response.status != 200:
        # A 404 with a problem document is a missing route, not a statement about a proof.
        if response.status != 404 or view is not None or response.media_type == "application/problem+json":
            raise http_error(response)
        missing: Answer = read_document(response, NOT_FOUND)
        return missing
    form = {None: FACADE, "history": HISTORY, "chain": TRUST_CHAIN}[view]
    record: Answer = read_document(response, form)
    names = {record["identifier"], record["lookup"]["requested"]}
    if names != {identifier} or ANSWERED[kind] not in (None, record["artifact_kind"]):
        raise unexpected(response, "the response is not about the requested artifact")
    return record


def _snapshot_of(response: Response) -> tuple[int, int, str]:
    """The generation, size and time of the snapshot, as the server states them."""
    is_number = forms.pattern("[0-9]{1,15}")
    checks = {"snapshot-generation": is_number, "tree-size": is_number, "snapshot-issued-at": is_time}
    for name, check in checks.items():
        if not check(response.headers.get(f"x-svc-{name}")):
            raise unexpected(response, f"the response has no x-svc-{name}")
    generation, size, time = (response.headers[f"x-svc-{name}"] for name in checks)
    return int(generation), int(size), time

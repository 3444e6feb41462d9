"""Calls of the engine about proofs and runs (spec/answers.md, 17)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from . import forms
from .admissions import read_receipt_evidence, require_proof_id
from .documents import AEP, ANSWERED_EXPORT, ANSWERED_VERDICT, PROOF_ENTRY, RUN_PACKAGE
from .encoding import canonical_json, is_proof_id
from .errors import InvalidError, SvcError
from .forms import having
from .models import Exchange, ProofFilter, Receipt
from .offline import OfflineResult, read_signed, verify_receipt_evidence
from .pins import Pins
from .settings import Call, Settings
from .transport import read_document, unexpected

PAGE = 200
ProofPage = tuple[list[dict[str, Any]], str | None]
FORMATS = {"json": "application/json", "aep-json": "application/json", "pdf": "application/pdf"}
VERIFY_REQUEST = "svc.verification.verify_request/1.0"
LISTED = having(
    forms.asserts_by_status,
    proof_id=is_proof_id,
    leaf_index=forms.is_index,
    effect=forms.is_effect,
    verification_status=forms.is_status,
    can_assert_validity=forms.is_boolean,
)
PROOF_LIST = having(
    schema_version=forms.version("svc.registry.proof_list/1.0"),
    proofs=forms.items(LISTED, PAGE),
    next_cursor=forms.either(forms.is_text, forms.is_null),
)


class ProofCalls(Settings):
    @Call
    async def read_proof(self, proof_id: str) -> Exchange:
        """A proof of the tenant with its record, current verdict and history."""
        form = having(
            schema_version=forms.version("svc.registry.proof_view/1.0"),
            proof_id=forms.just(proof_id),
            effect=forms.is_effect,
            leaf_index=forms.is_index,
            log_entry=PROOF_ENTRY,
            aep=forms.or_null(AEP),
            verdict=ANSWERED_VERDICT,
        )
        return await self._engine.exchange(f"/v1/proofs/{require_proof_id(proof_id)}", form)

    @Call
    async def list_page(self, cursor: str | None = None, **conditions: Unpack[ProofFilter]) -> ProofPage:
        """A page of the proofs of the tenant, the newest first, and the cursor of the next page, or None."""
        names = {"since": "from", "until": "to"}
        query = {names.get(name, name): _query_text(value) for name, value in conditions.items()}
        query |= {"limit": str(PAGE)} | ({} if cursor is None else {"cursor": cursor})
        response = await self._engine.read("/v1/proofs", query=query)
        page = read_document(response, PROOF_LIST)
        if page["next_cursor"] is not None and page["next_cursor"] == cursor:
            raise unexpected(response, "the cursor of the next page is the cursor of this page")
        return page["proofs"], page["next_cursor"]

    @Call
    async def export_proof(self, proof_id: str, media: str = "json", disclose: Sequence[str] | None = None) -> Exchange:
        """Exports a proof as `json`, `aep-json` or the bytes of a `pdf`. `disclose` names the values to show."""
        if media not in FORMATS:
            raise SvcError("invalid_input", f"/format: the format must be one of {', '.join(FORMATS)}")
        form = {"json": ANSWERED_EXPORT, "aep-json": AEP}.get(media)
        query = {"format": media} | ({} if disclose is None else {"disclose": ",".join(disclose)})
        path = f"/v1/proofs/{require_proof_id(proof_id)}/export"
        exchange = await self._engine.exchange(path, form, query=query, accept=FORMATS[media])
        if form is not None and exchange.response["proof_id"] != proof_id:
            raise SvcError("unexpected_response", "the response is not about the requested proof")
        return exchange

    @Call
    async def verify_proof(self, proof: str | dict[str, Any]) -> Exchange:
        """The registry's verdict on a proof id or an export, check by check."""
        document = {"schema_version": VERIFY_REQUEST, "proof_id": proof} if isinstance(proof, str) else proof
        form = having(
            schema_version=forms.version("svc.verification.verdict/1.0"),
            proof_id=forms.just(require_proof_id(str(document.get("proof_id")))),
            status=forms.one_of(*forms.STATUSES, "INVALID"),
            can_assert_validity=forms.is_boolean,
            checks=forms.items(having(name=forms.is_text, result=forms.one_of("pass", "fail", "not_applicable"))),
        )
        exchange = await self._engine.exchange("/v1/proofs/verify", form, body=canonical_json(document).encode())
        if exchange.response["can_assert_validity"] != (exchange.response["status"] in forms.ASSERTING):
            raise SvcError("unexpected_response", "can_assert_validity does not follow from the status")
        return exchange

    @Call
    async def receipt_evidence(self, receipt: Receipt, pins: Pins) -> tuple[dict[str, Any], OfflineResult]:
        """The signed proof behind a receipt, verified under pinned AEP keys. The evidence binds the operator."""
        evidence: dict[str, Any] = await read_receipt_evidence(self._engine, receipt)
        result = verify_receipt_evidence(evidence, receipt, pins)
        if not result.ok:
            fault = result.fault or result.undecidable
            raise SvcError("evidence_rejected", f"the evidence of the receipt is rejected: {fault}", fault=fault)
        return evidence, result

    @Call
    async def read_run(self, run: str, agent: str) -> Exchange:
        """The requests of a run, and whether it is closed."""
        form = having(
            schema_version=forms.version("svc.registry.run_state/1.0"),
            run=forms.just(run),
            agent=forms.just(agent),
            state=forms.one_of("open", "closing", "closed"),
            members=forms.items(having(seq=forms.is_index, proof_id=is_proof_id)),
            missing=forms.items(forms.is_index),
        )
        return await self._engine.exchange(f"/v1/runs/{require_proof_id(run)}", form, query={"agent": agent})

    @Call
    async def export_run(self, run: str, agent: str) -> Exchange:
        """Every proof of a closed run, for `verify_run`."""
        path = f"/v1/runs/{require_proof_id(run)}/package"
        exchange = await self._engine.exchange(path, RUN_PACKAGE, query={"agent": agent})
        try:
            subject = read_signed(exchange.response["close"], None)[0]["subject"]
        except InvalidError as fault:
            raise SvcError("unexpected_response", f"the close of the run is rejected: {fault.code}") from fault
        closed = subject["kind"], subject.get("run", {}).get("id"), subject.get("agent", {}).get("id")
        if closed != ("close", run, agent):
            raise SvcError("unexpected_response", "the response is not about the requested run")
        return exchange


def _query_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

"""Admits actions of agents, and verifies their proofs, online and offline."""

from .encoding import canonical_json
from .encoding import document_hash as canonical_hash
from .errors import InvalidError, NotAdmittedError, SvcError
from .evidence import Proved, verify_evidence
from .offline import OfflineResult, RunResult, verify_export, verify_receipt_evidence, verify_run, verify_tlog_proof
from .pins import Pins

__all__ = [
    "InvalidError",
    "NotAdmittedError",
    "OfflineResult",
    "Pins",
    "Proved",
    "RunResult",
    "SvcError",
    "canonical_hash",
    "canonical_json",
    "verify_evidence",
    "verify_export",
    "verify_receipt_evidence",
    "verify_run",
    "verify_tlog_proof",
]

"""Admits actions of agents, and verifies their proofs, online and offline."""

from .admissions import agent_envelope, execute_request, is_replayed
from .client import AsyncClient, Client
from .encoding import canonical_hash, canonical_json
from .errors import SvcError
from .evidence import Proved, verify_evidence
from .function import admitted
from .gate import Gate
from .hashing import action_of, plain_hash
from .models import Agent, Denial, Exchange, Facts, Lookup, Receipt, RequiredApproval, Run, ToolFields
from .offline import OfflineResult, verify_export, verify_receipt_evidence, verify_tlog_proof
from .offline_run import RunResult, verify_run
from .options import Admission, ApprovalWait, LostOutcome, PendingApproval
from .pins import Pins
from .run import AgentRun, open_run
from .transport import Retry

__all__ = [
    "Admission",
    "Agent",
    "AgentRun",
    "ApprovalWait",
    "AsyncClient",
    "Client",
    "Denial",
    "Exchange",
    "Facts",
    "Gate",
    "Lookup",
    "LostOutcome",
    "OfflineResult",
    "PendingApproval",
    "Pins",
    "Proved",
    "Receipt",
    "RequiredApproval",
    "Retry",
    "Run",
    "RunResult",
    "SvcError",
    "ToolFields",
    "action_of",
    "admitted",
    "agent_envelope",
    "canonical_hash",
    "canonical_json",
    "execute_request",
    "is_replayed",
    "open_run",
    "plain_hash",
    "verify_evidence",
    "verify_export",
    "verify_receipt_evidence",
    "verify_run",
    "verify_tlog_proof",
]

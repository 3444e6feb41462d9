"""Verifies packages of runs offline (spec/log.md, 18)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .documents import RUN_PACKAGE
from .encoding import document_hash
from .errors import InvalidError, coded, require
from .forms import is_ascending, read
from .notes import Checkpoint, parse_tlog_proof
from .offline import Document, OfflineResult, Undecidable, parse_document, summary_of, verify_document
from .pins import PinnedLog, Pins


@dataclass
class RunResult:
    """`complete`: the run has exactly the requests `members`. `missing` has the numbers of erased requests."""

    complete: bool = False
    fault: str | None = None
    undecidable: str | None = None
    members: list[str] | None = None
    missing: list[int] | None = None

    def summary(self) -> dict[str, Any]:
        """The result as JSON, in the form of the test vectors."""
        return summary_of(self, () if self.undecidable else ("complete", "fault", "members", "missing"))


def verify_run(package: Document, pins: Pins) -> RunResult:
    """Verifies that a run has exactly the requests in its package."""
    result = RunResult()
    if pins.log is None:
        return RunResult(undecidable="no_pinned_log")
    try:
        _verify_run(result, parse_document(package), pins, pins.log)
    except Undecidable as cause:
        return RunResult(undecidable=str(cause))
    except InvalidError as fault:
        result.fault = fault.code
    return result


@dataclass
class Place:
    """A proof of a run, with its place in the log; `aep` is None when its payload was erased.

    `approved` is the hash of the pending AEP that the approval of a second decision names.
    """

    entry: dict[str, Any]
    aep: dict[str, Any] | None
    index: int
    tree: Checkpoint
    approved: str | None = None


def _verify_run(result: RunResult, package: Any, pins: Pins, log: PinnedLog) -> None:
    with coded("malformed_run"):
        read(RUN_PACKAGE, package, "malformed_run")
    close, *others = (_place_of(one, pins, log) for one in (package["close"], *package["members"]))
    closing = close.aep or {}
    subject = closing["subject"]
    require(subject["kind"] == "close", "not_a_close")
    indexes = [one.index for one in (*others, close)]
    require(is_ascending(indexes) and all(one.tree == close.tree for one in others), "log_order_mismatch")
    hashes = [[one.entry["proof_id"], one.entry["aep_hash"]] for one in others]
    stated = (subject["count"], subject["members_hash"])
    # An entry with the id of an earlier proof does not count (spec/log.md, 11).
    ids = {one.entry["proof_id"] for one in (*others, close)}
    require(stated == (len(others), document_hash(hashes)) and len(ids) > len(others), "members_mismatch")
    aeps = [one.aep for one in others if one.aep is not None]
    require(all(_is_of_run(aep, closing) for aep in aeps), "run_mismatch")
    result.missing = missing_numbers(others, subject["run"]["seq"])
    result.complete = True
    result.members = [one.entry["proof_id"] for one in others]


def _is_of_run(aep: dict[str, Any], closing: dict[str, Any]) -> bool:
    def run_of(one: dict[str, Any]) -> tuple[Any, ...]:
        return one["tenant_id"], one["subject"]["agent"]["id"], one["subject"].get("run", {}).get("id")

    return aep["subject"]["kind"] in ("admission", "outcome") and run_of(aep) == run_of(closing)


def missing_numbers(members: list[Place], end: int) -> list[int]:
    """The numbers of erased members: the numbers below `end` that no member with a payload has.

    A decision after an approval repeats the number of its pending proof, which may be erased.
    """
    seqs: list[int] = []
    of_erased: list[int] = []
    first: dict[str, tuple[str, int | None, str]] = {}
    decided: set[str] = set()
    for one in members:
        seq = None
        if one.aep is not None:
            approval, seq = one.aep["evidence"]["approval"], one.aep["subject"]["run"]["seq"]
            if approval is None:
                seqs.append(seq)
            else:
                pending = approval["pending_proof_id"]
                effect, its_seq, its_hash = first.get(pending, (None, None, ""))
                require(effect == "REQUIRE_APPROVAL" and its_seq in (None, seq), "seq_mismatch")
                require(its_hash == one.approved, "seq_mismatch")
                require(pending not in decided, "seq_mismatch")
                decided.add(pending)
                if its_seq is None:
                    of_erased.append(seq)
        first[one.entry["proof_id"]] = one.entry["effect"], seq, one.entry["aep_hash"]
    require(len({*seqs}) == len(seqs) and max(seqs, default=-1) < end, "seq_mismatch")
    missing = sorted({*range(end)} - {*seqs})
    require(len(missing) <= sum(one.aep is None for one in members), "seq_mismatch")
    require(len({*of_erased}) == len(of_erased) and {*of_erased} <= {*missing}, "seq_mismatch")
    return missing


def _place_of(document: dict[str, Any], pins: Pins, log: PinnedLog) -> Place:
    aep = None
    if document["proof_record"] is not None:
        result = OfflineResult()
        verify_document(result, document, pins)
        require(result.included, "not_in_tree")
        aep = result.aep
    proof = parse_tlog_proof(document["tlog_proof"])
    approval, tree = document["approval"], log.check_inclusion(document["entry"], proof)
    approved = None if approval is None else approval["envelope"]["statement"]["aep_hash"]
    return Place(document["entry"], aep, proof.index, tree, approved)

"""Verifies exports, the evidence of receipts, packages of runs, and tlog-proofs offline (spec/log.md, 18).

    python3 export.py FILE...      prints the cases of these vector files whose result is not the expected one
    python3 export.py --lines      prints the result of each line of the input, a case

A case has the members that protocol/vectors/README.md lists. A result is as there, and has `disclosed` and `withheld`
when it is authentic. The result of a package has `complete`, and then `members` and `missing`.
"""

import sys
from datetime import timezone
from pathlib import Path

from approvals import check_named, is_signed
from export_forms import *
from pins import read_key, read_log
from reducer import read_entry


class Undecidable(Exception):
    """The pins do not suffice."""


def check_inclusion(log, entry, index, path, note, tree_size=None):
    """The index of an entry, and the size of the checkpoint that covers it (steps 8 to 10)."""
    keys, origin, has_quorum = log
    try:
        text, signers = open_note(note, keys)
    except Invalid as fault:
        raise Invalid(str(fault).replace("bad_signature", "bad_checkpoint_signature")) from fault
    size, root = parse_checkpoint(text, origin)
    require(any(keys[key] is None or size <= keys[key] for key in signers), "unknown_signer")
    require(has_quorum is None or has_quorum(note), "quorum_not_met")
    require(tree_size in (None, size), "tree_size_mismatch")
    require(inclusion_root(index, size, entry_hash(entry), path) == root, "not_in_tree")
    return index, size


def receipt_of(aep, request_hash):
    is_execute = aep["subject"]["kind"] == "execute"
    receipt = {
        "schema_version": f"svc.{'runtime.intent_execute' if is_execute else 'agent.admission'}.response/1.0",
        "receipt_id": f"svc-{'runtime-execute' if is_execute else 'agent-admission'}-{request_hash[:16]}",
        "status": {"ADMIT": "ADMITTED", "DENY": "DENIED", "REQUIRE_APPROVAL": "APPROVAL_REQUIRED"}[aep["decision"]["effect"]],
        "request_hash": request_hash,
        "registry_proof_id": aep["proof_id"],
        "vee_recorded": True,
    }
    return receipt | {"response_hash": document_hash(receipt)}


def read_aep(payload, is_evidence):
    try:
        signed = parse_json(payload)
        require(canonical(signed) == payload, "not canonical")
        if is_evidence:
            AEP(signed)
    except Invalid as fault:
        raise Invalid(MALFORMED if is_evidence else "payload_not_canonical") from fault
    return signed


def check_parts(document, is_evidence, receipt):
    """Step 4: returns the AEP and its disclosed values; raises Invalid if two parts contradict."""
    record, entry = document["proof_record"], document["entry"]
    signed_in = record["envelope"] if is_evidence else document["envelope"]
    payload, signature = from_base64(signed_in["payload"]), signed_in["signatures"][0]
    signed = read_aep(payload, is_evidence)
    require(is_evidence or canonical(document["aep"]) == payload, "payload_mismatch")
    own_id = signed["proof_id"]
    require(entry["proof_id"] == own_id and document.get("proof_id", own_id) == own_id, "proof_id_mismatch")
    activation, key_id = document["key"]["entry"], signed["key_id"]
    require(signature["keyid"] == key_id and activation["key_id"] == key_id, "key_id_mismatch")
    require((activation["use"], activation["change"]) == ("aep", "activate"), "key_id_mismatch")
    require(thumbprint(from_base64url(activation["public_key"], 32)) == key_id, "key_id_mismatch")
    rebuilt = {
        "schema_version": "svc.registry.proof_record/1.1",
        "proof_id": own_id,
        "aep_hash": sha256(payload).hex(),
        "envelope": {
            "payloadType": AEP_TYPE,
            "payload": base64text(payload),
            "signatures": [{"keyid": key_id, "sig": signature["sig"]}],
        },
    }
    require(record == rebuilt, "proof_record_mismatch")
    repeated = {name: signed[name] for name in ("environment", "key_id", "valid_until")}
    repeated |= {"effect": signed["decision"]["effect"], "time": signed["accepted_at"]}
    require(all(entry[name] == value for name, value in repeated.items()), "entry_mismatch")
    require(entry["aep_hash"] == rebuilt["aep_hash"], "aep_hash_mismatch")
    require(entry["proof_record_hash"] == document_hash(rebuilt), "proof_record_hash_mismatch")
    for one in document["disclosures"]:
        named = [signed["request_commitment"]] if one[1] == "request_hash" else signed["commitments"]
        require(document_hash(one) in named, "disclosure_mismatch")
    require(is_ascending([code_units(one[1]) for one in document["disclosures"]]), "disclosure_mismatch")
    require(check_named(document, signed), "approval_mismatch")
    disclosed = {name: value for _, name, value in document["disclosures"]}
    if receipt is not ABSENT:
        has_hash = is_hash(disclosed.get("request_hash"))
        require(
            has_hash and canonical(receipt) == canonical(receipt_of(signed, disclosed["request_hash"])),
            "receipt_mismatch",
        )
    return signed, disclosed


def verify_document(case, keys, log, result):
    """Steps 1 to 13 for an export or the evidence of a receipt."""
    result |= {"authentic": False} | ({"included": False} if log else {})
    if not keys:
        raise Undecidable("no_pinned_key")
    text = base64.b64decode(case["export_base64"]) if "export_base64" in case else case["export"]
    document = parse_json(text)
    kind = document.get("schema_version") if isinstance(document, dict) else None
    is_evidence = kind in (EVIDENCE, DISCLOSURE)
    ({EVIDENCE: RECEIPT_EVIDENCE, DISCLOSURE: DISCLOSED}[kind] if is_evidence else EXPORT)(document)
    signed, disclosed = check_parts(document, is_evidence, case.get("receipt", ABSENT))

    pinned = [key for key in keys if key[0] == signed["key_id"]]
    if not pinned:
        raise Undecidable("signing_key_not_pinned")
    _, public, _ = pinned[0]
    signature = from_base64(document["proof_record"]["envelope"]["signatures"][0]["sig"])
    require(verifies(public, pae("svc.aep", canonical(signed)), signature), "bad_signature")
    require(document["approval"] is None or is_signed(document["approval"]), "bad_approval_signature")
    withheld = 1 + len(signed["commitments"]) - len(disclosed)
    authentic = {"authentic": True, "disclosed": disclosed, "withheld": withheld}

    starts = [start for _, _, (start, _, _) in pinned if start is not None]
    ends = [end for _, _, (_, *both) in pinned for end in both if end is not None]
    tlog_proof = case.get("tlog_proof", document.get("tlog_proof"))
    if log is None or (is_evidence and tlog_proof is None):
        if ends:
            raise Undecidable("no_pinned_log")
        result.pop("included", None)
        result |= authentic | {"status": status_of(document, signed, case, "unknown")}
        return
    try:
        index, size = find_entry(document, tlog_proof, log)
        check_activation(document["key"], log, index, "key_not_activated")
        if document["approval"] is not None:
            check_activation(document["approval"], log, index, "approver_not_activated")
    except Invalid:
        if not ends:
            result |= authentic
        raise
    require(max(starts, default=-1) < index < min(ends, default=index + 1), "key_not_in_force")
    status = status_of(document, signed, case, f"unknown since checkpoint {size}")
    result |= authentic | {"included": True, "status": status}


def find_entry(document, tlog_proof, log):
    if tlog_proof is not None:
        return check_inclusion(log, document["entry"], *parse_tlog_proof(tlog_proof))
    own = document["inclusion"]
    path = [from_base64(one) for one in own["path"]]
    return check_inclusion(
        log, document["entry"], own["leaf_index"], path, own["checkpoint"], own["tree_size"]
    )


def check_activation(activated, log, below, code):
    entry, text = activated["entry"], activated["tlog_proof"]
    if text is None:
        return
    try:
        index, _ = check_inclusion((*log[:2], None), entry, *parse_tlog_proof(text))
        require(index < below, code)
    except Invalid as fault:
        raise Invalid(code) from fault


def status_of(document, signed, case, otherwise):
    stated = document.get("verdict", {}).get("verification_status", ASSERTING[0])
    if stated not in ASSERTING:
        return stated
    end = signed["valid_until"]["proof"]
    now = case.get("now") or time_text(round(datetime.now(timezone.utc).timestamp() * 1000))
    return "EXPIRED" if end is not None and end <= now else otherwise


def verify_entry(case, log, result):
    result |= {"included": False}
    if log is None:
        raise Undecidable("no_pinned_log")
    try:
        entry = read_entry(case["entry"].encode())
    except (Invalid, UnicodeError) as fault:
        raise Invalid("malformed_entry") from fault
    _, size = check_inclusion(log, entry, *parse_tlog_proof(case["tlog_proof"]))
    result |= {"included": True, "status": f"unknown since checkpoint {size}"}


def verify_run(case, keys, log, result):
    result |= {"complete": False}
    result.pop("status")
    if log is None:
        raise Undecidable("no_pinned_log")
    package = parse_json(case["run"])
    try:
        PACKAGE(package)
    except Invalid as fault:
        raise Invalid("malformed_run") from fault
    close, *others = [place_of(one, keys, log) for one in (package["close"], *package["members"])]
    subject = close["aep"]["subject"]
    require(subject["kind"] == "close", "not_a_close")
    indexes = [one["index"] for one in (*others, close)]
    require(is_ascending(indexes) and all(one["tree"] == close["tree"] for one in others), "log_order_mismatch")
    hashes = [[one["entry"]["proof_id"], one["entry"]["aep_hash"]] for one in others]
    stated = (subject["count"], subject["members_hash"])
    require(stated == (len(others), document_hash(hashes)), "members_mismatch")
    aeps = [one["aep"] for one in others if one["aep"]]
    of_run = lambda aep: (aep["tenant_id"], aep["subject"]["agent"]["id"], aep["subject"].get("run", {}).get("id"))
    is_member = lambda aep: aep["subject"]["kind"] in ("admission", "outcome") and of_run(aep) == of_run(close["aep"])
    require(all(map(is_member, aeps)), "run_mismatch")
    of_erased = []
    seqs, end = [], subject["run"]["seq"]
    firsts, decided = {}, set()
    for one in others:
        own_id, aep = one["entry"]["proof_id"], one["aep"]
        approval, seq = aep and aep["evidence"]["approval"], aep and aep["subject"]["run"]["seq"]
        if approval is not None:
            pending = approval["pending_proof_id"]
            effect, its_seq = firsts.get(pending, (None, None))
            require(effect == "REQUIRE_APPROVAL" and its_seq in (None, seq), "seq_mismatch")
            require(pending not in decided, "seq_mismatch")
            of_erased += [seq] if its_seq is None else []
            decided.add(pending)
        elif aep is not None:
            seqs.append(seq)
        firsts[own_id] = one["entry"]["effect"], seq
    require(len({*seqs}) == len(seqs) and max(seqs, default=-1) < end, "seq_mismatch")
    missing = [seq for seq in range(end) if seq not in seqs]
    require(len({*of_erased}) == len(of_erased) and {*of_erased} <= {*missing}, "seq_mismatch")
    require(not missing or len(aeps) < len(others), "seq_mismatch")
    result |= {"complete": True, "members": [one["entry"]["proof_id"] for one in others], "missing": missing}


def place_of(document, keys, log):
    """A document that is in the tree, with its index, tree and AEP."""
    entry, aep = document["entry"], None
    if document["proof_record"]:
        result = {}
        verify_document({"export": canonical(document)}, keys, log, result)
        require(result.get("included"), "not_in_tree")
        aep = parse_json(from_base64(document["proof_record"]["envelope"]["payload"]))
    index, path, note = parse_tlog_proof(document["tlog_proof"])
    check_inclusion(log, entry, index, path, note)
    tree = parse_checkpoint(open_note(note, log[0])[0], log[1])
    return {"entry": entry, "aep": aep, "index": index, "tree": tree}


def outcome(case):
    try:
        keys, log = [read_key(pin) for pin in case["trust"]["aep_keys"]], read_log(case["trust"])
    except Invalid as error:
        return {"error": str(error)}
    result = {"status": "unknown"}
    try:
        if "entry" in case:
            verify_entry(case, log, result)
        elif "run" in case:
            verify_run(case, keys, log, result)
        else:
            verify_document(case, keys, log, result)
    except Undecidable as cause:
        return {"undecidable": str(cause)}
    except Invalid as fault:
        result["fault"] = str(fault)
    return result


def differences(file):
    """The cases of a vector file with another result than the expected one."""
    for case in parse_json(Path(file).read_bytes()):
        shown = ("disclosed", "withheld", "members")
        found = {name: one for name, one in outcome(case).items() if name not in shown}
        if found != case["expected"]:
            yield {"name": case["name"], "found": found, "expected": case["expected"]}


if __name__ == "__main__":
    if sys.argv[1:] == ["--lines"]:
        for line in sys.stdin:
            print(canonical(outcome(json.loads(line))).decode())
    else:
        different = [one for file in sys.argv[1:] for one in differences(file)]
        for one in different:
            print(canonical(one).decode())
        sys.exit(different != [])

"""Verifies exports, the evidence of receipts, packages of runs, and tlog-proofs offline (spec/log.md, 18).

    python3 export.py FILE...      prints the cases of these vector files whose result is not the expected one
    python3 export.py --lines      prints the result of each line of the input, a case

A case has the members that protocol/vectors/README.md lists. A result is as there, and has `disclosed` and `withheld`
when it is authentic. The result of a package has `complete`, and then `members` and `missing`.
"""

import sys
from pathlib import Path

from svc_verification.offline import *


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

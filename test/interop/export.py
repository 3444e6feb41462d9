"""Verifies cases offline (spec/log.md, 18), one for each line of standard input, and prints their results.

protocol/vectors/README.md lists the members of cases and results. An authentic result also has `disclosed` and
`withheld`. The result of a package has `complete` and, if that is true, `members` and `missing`.
"""

import base64
import json
import sys

from svc_verification import Pins, SvcError, verify_export, verify_run, verify_tlog_proof
from svc_verification.encoding import canonical_json


def outcome(case):
    try:
        pins = Pins(**case["trust"])
    except SvcError as error:
        return {"error": error.fault}
    if "run" in case:
        return verify_run(case["run"], pins).summary()
    if "entry" in case:
        return verify_tlog_proof(case["tlog_proof"], case["entry"], pins).summary()
    text = base64.b64decode(case["export_base64"]) if "export_base64" in case else case["export"]
    options = {name: case[name] for name in ("receipt", "tlog_proof", "now") if name in case}
    return verify_export(text, pins, **options).summary()


for line in sys.stdin:
    print(canonical_json(outcome(json.loads(line))))

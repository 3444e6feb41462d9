"""Verifies evidence (spec/snapshot.md) and prints the answer that it proves.

    python3 evidence.py VKEY [--identifier ID] [--route ROUTE] [--view VIEW] [--now TIME] [--max-age SECONDS] < FILE

With --lines instead, each line of the input is `{evidence, identifier?, route?, view?, now?, max_age?}`, the evidence
as text, and each line of the output is `{answer}` or `{error}`.
"""

import argparse
import json
import sys

from svc_verification import Pins, SvcError, verify_evidence
from svc_verification.encoding import canonical_json
from svc_verification.notes import parse_vkey


def attempt(vkey, evidence, **options):
    try:
        pins = Pins(log_vkey=vkey, log_origin=parse_vkey(vkey).name)
        return {"answer": verify_evidence(evidence, pins, **options).answer}
    except SvcError as fault:
        return {"error": fault.fault}


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("vkey")
parser.add_argument("--lines", action="store_true")
for name, kind in (("identifier", str), ("route", str), ("view", str), ("now", str), ("max_age", float)):
    parser.add_argument(f"--{name.replace('_', '-')}", type=kind)
options = {name: one for name, one in vars(parser.parse_args()).items() if one is not None}
if options.pop("lines"):
    for line in sys.stdin:
        print(canonical_json(attempt(**options | json.loads(line))))
else:
    result = attempt(evidence=sys.stdin.buffer.read(), **options)
    print(canonical_json(result.get("answer", result)))
    sys.exit("answer" not in result)

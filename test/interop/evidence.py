"""Verifies evidence (spec/snapshot.md) and prints the answer that it proves.

    python3 evidence.py VKEY [--identifier ID] [--route ROUTE] [--view VIEW] [--now TIME] [--max-age SECONDS] < FILE

With --lines instead, each line of the input is `{evidence, identifier?, route?, view?, now?, max_age?}`, the evidence
as text, and each line of the output is `{answer}`, `{outdated}` (the answer at the time of the snapshot) or `{error}`.
"""

import argparse
import sys

from svc_verification.evidence import *


def attempt(**arguments):
    try:
        return run(**arguments)
    except Invalid as fault:
        return {"error": str(fault)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vkey")
    parser.add_argument("--lines", action="store_true")
    for name, kind in (("identifier", str), ("route", str), ("view", str), ("now", str), ("max_age", float)):
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind)
    options = vars(parser.parse_args())
    if options.pop("lines"):
        for line in sys.stdin:
            given = json.loads(line)
            text = given.pop("evidence")
            result = attempt(text=text, **{name: one for name, one in options.items() if one} | given)
            print(canonical(result).decode())
    else:
        result = attempt(text=sys.stdin.buffer.read(), **options)
        print(canonical(result.get("answer", result)).decode())
        sys.exit("answer" not in result)

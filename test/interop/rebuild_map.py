"""Rebuilds the map of proofs from the entries of a log, and compares it with the newest snapshot entry.

    python3 rebuild_map.py VKEY SOURCE [--answers URL]

SOURCE is the URL of a public API server, or a snapshot directory, whose location document and map pages are then
checked too. With --answers, recomputes every answer about every proof of the log, and compares it with that of a public
API server.
"""

import argparse
import json
import sys
from functools import lru_cache
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from reducer import PublicLog
from svc_verification.answers import ROUTES, State, tile_path
from svc_verification.encoding import KINDS, canonical, parse_json, read_base64, sha256
from svc_verification.entries import SNAPSHOT
from svc_verification.errors import InvalidError, require
from svc_verification.forms import is_hash, is_index, is_text, just, matches, members, or_null
from svc_verification.merkle import value_hash
from svc_verification.notes import parse_tlog_proof, parse_vkey
from svc_verification.pins import PinnedLog
from svc_verification.records import NONE, PREFIXES, Recorded
from trees import map_root, split_keys

HEAD = or_null(members(level=is_index, digest=is_hash))
LOCATION = members(
    schema_version=just("svc.registry.snapshot_location/1.0"),
    snapshot=SNAPSHOT,
    tlog_proof=is_text,
    map=HEAD,
    shares=HEAD,
    share_change=is_index,
)


@lru_cache(None)
def connection_to(host):
    return HTTPConnection(host)


def get(url):
    """The body and generation of a response with the status 200 or 404."""
    parts = urlsplit(url)
    connection = connection_to(parts.netloc)
    connection.request("GET", parts.path + (parts.query and f"?{parts.query}"))
    response = connection.getresponse()
    require(response.status in (200, 404), f"{url}: {response.status}")
    return response.read(), response.status, response.headers["X-Svc-Snapshot-Generation"]


def read(source, path):
    if source.startswith("http"):
        body, status, _ = get(f"{source}/log/{path}")
        return body if status == 200 else b""
    file = Path(source, path)
    return file.read_bytes() if file.exists() else b""


def entries_of(source, size):
    for number in range(-(-size // 256)):
        width = min(256, size - 256 * number)
        path = tile_path("tile/entries", number)
        bundle = (read(source, f"{path}.p/{width}") if width < 256 else b"") or read(source, path)
        for _ in range(width):
            end = 2 + int.from_bytes(bundle[:2], "big")
            require(2 <= end <= len(bundle), "malformed_tile")
            yield bundle[2:end]
            bundle = bundle[end:]


def subtrees(items):
    """Splits items into the largest subtrees of at most 128 items."""
    if len(items) <= 128:
        return [items]
    _, left, _ = split_keys([key for key, *_ in items])
    return subtrees(items[: len(left)]) + subtrees(items[len(left) :])


def root_over(items):
    if len(items) == 1:
        return items[0][2]
    first, left, _ = split_keys([key for key, *_ in items])
    sides = root_over(items[: len(left)]), root_over(items[len(left) :])
    return sha256(b"\4" + bytes([first]) + b"".join(sides))


def pages_of(values):
    """The pages of a map by hash, and the head of the map."""
    pages, items, level = {}, [], 0
    for key, (record, history) in sorted(values.items()):
        lengths = b"".join(len(one).to_bytes(4, "big") for one in (record, history))
        root = sha256(b"\3" + key + value_hash(record, history))
        items.append((key, key, root, key + lengths + record + history))
    while items:
        references = []
        for group in subtrees(items):
            page = bytes([level]) + b"".join(data for *_, data in group)
            pages[sha256(page).hex()] = page
            least, greatest, root = group[0][0], group[-1][1], root_over(group)
            first = 136 - (int.from_bytes(least, "big") ^ int.from_bytes(greatest, "big")).bit_length()
            reference = least + bytes([first]) + len(group).to_bytes(2, "big") + root + sha256(page)
            references.append((least, greatest, root, reference))
        if len(references) == 1:
            return pages, {"level": level, "digest": sha256(page).hex()}
        items, level = references, level + 1
    return pages, None


def log_of(vkey):
    return PinnedLog(vkey, parse_vkey(vkey).name)


def open_location(source, vkey):
    text = read(source, "lookup/snapshot")
    location = parse_json(text)
    require(matches(LOCATION, location) and canonical(location) == text, "malformed_snapshot")
    proof = parse_tlog_proof(location["tlog_proof"])
    log_of(vkey).check_inclusion(location["snapshot"], proof)
    index = proof.index
    own = location["snapshot"]["logs"][0]
    require((own["shard"], own["origin"]) == (0, parse_vkey(vkey)[0]) and own["size"] <= index, "malformed_snapshot")
    return index, location["snapshot"], location["map"]


def rebuild(source, vkey):
    """The newest snapshot entry, its index, and the map that it must have."""
    origin = parse_vkey(vkey)[0]
    size, root = log_of(vkey).open(read(source, "checkpoint").decode())
    entries = list(entries_of(source, size))
    whole = PublicLog(origin)
    for data in entries:
        whole.append(data)
    require(whole.roots[size] == root, "the entries are not those of the checkpoint")
    require(whole.snapshot, "no snapshot entry")
    index, snapshot = whole.snapshot
    log = PublicLog(origin)
    for data in entries[: snapshot["logs"][0]["size"]]:
        log.append(data)
    values = log.map()
    require(map_root(values) == read_base64(snapshot["map_root"]), "map_root differs")
    if not source.startswith("http"):
        pages, head = pages_of(values)
        newest = (index, snapshot, head)
        require(open_location(source, vkey) == newest, "the location is not that of the newest snapshot entry")
        stored = all(read(source, f"map/{name[:2]}/{name}") == page for name, page in pages.items())
        require(stored, "pages are missing")
    return index, snapshot, values, whole.ignored


def differences(url, index, snapshot, values):
    """The public answers about proofs that differ from the answers that follow from the map."""
    proofs = {key[1:].hex(): Recorded(key[1:].hex(), *value) for key, value in values.items() if key[0] == 1}
    for proof in proofs.values():
        if proof.activation != NONE:
            proof.add_key(values[b"\2" + proof.activation.to_bytes(16, "big")][0])
    state = State(snapshot, proofs, {}, {})
    for proof_id in proofs:
        for route, kinds in ROUTES.items():
            fields = [field for names in kinds.values() for field in names if field in PREFIXES]
            for identifier in (PREFIXES[field] + proof_id for field in fields):
                path = f"verify?identifier={identifier}" if route == "generic" else f"verify/{route}/{identifier}"
                yield from compare(url, path, index, state.answer(route, identifier))
                if route in KINDS:
                    history, chain = ("timeline", "chain") if route == "trust" else ("history", "trust-chain")
                    path = f"{route}/{identifier}"
                    yield from compare(url, f"{path}/{history}", index, state.answer(route, identifier, "history"))
                    if route != "proof":
                        yield from compare(url, f"{path}/{chain}", index, state.answer(route, identifier, "chain"))


def compare(url, path, index, expected):
    body, _, generation = get(f"{url}/api/public/{path}")
    answer = json.loads(body)
    if (answer, generation) != (expected, str(index)):
        yield {"path": path, "generation": generation, "answer": answer, "expected": expected}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vkey")
    parser.add_argument("source")
    parser.add_argument("--answers")
    options = parser.parse_args()
    try:
        index, snapshot, values, ignored = rebuild(options.source, options.vkey)
    except InvalidError as fault:
        sys.exit(f"error: {fault}")
    result = {"index": index, "values": len(values), "ignored": ignored}
    if options.answers:
        result["differences"] = list(differences(options.answers, index, snapshot, values))
    print(json.dumps(result))
    sys.exit(bool(result.get("differences")))

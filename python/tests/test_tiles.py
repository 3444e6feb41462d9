import base64
from collections.abc import Callable

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from svc_verification import Client, Pins, SvcError
from svc_verification.encoding import base64_bytes, sha256
from svc_verification.entries import leaf_hash, read_entry
from svc_verification.merkle import tree_root
from svc_verification.tiles import path_of, read_bundle

from .test_vectors import vectors

ENTRY = vectors("log-entry")[1]["canonical"]


def test_a_bundle_and_a_tile_hold_the_entries_of_the_log() -> None:
    case, entries, size = vectors("tiles"), vectors("log-entry"), vectors("tiles")["size"]
    (tile,) = case["tiles"]
    assert [case["entries"]["path"], tile["path"]] == [path_of(one, 0, size) for one in ("entries", "0")]
    bundle = read_bundle(base64_bytes(case["entries"]["content_base64"]), size)
    assert [one.decode() for one in bundle] == [one["canonical"] for one in entries]
    hashes = [leaf_hash(read_entry(one)) for one in bundle]
    assert b"".join(hashes).hex() == tile["content_hex"]
    assert tree_root(hashes).hex() == vectors("merkle")["roots"][size]


Altered = Callable[[bytes], bytes]


def flipped(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


def emptied(_: bytes) -> bytes:
    return b""


class Log:
    """The files of a log of this size, and a client that reads them."""

    def __init__(self, size: int, entries: list[bytes] | None = None) -> None:
        old = ENTRY.partition('"aep_hash":"')[2][:64]
        self.entries = entries or [ENTRY.replace(old, f"{index:064x}").encode() for index in range(size)]
        self.levels = [[sha256(b"\0" + entry) for entry in self.entries]]
        while full := len(self.levels[-1]) // 256:
            nodes = self.levels[-1]
            self.levels.append([tree_root(nodes[256 * at : 256 * at + 256]) for at in range(full)])
        key = Ed25519PrivateKey.generate()
        public = b"\1" + key.public_key().public_bytes_raw()
        key_hash = sha256(b"log.example\n" + public)[:4]
        text = f"log.example\n{size}\n{base64.b64encode(tree_root(self.levels[0])).decode()}\n"
        signature = base64.b64encode(key_hash + key.sign(text.encode())).decode()
        self.files = {"/log/checkpoint": f"{text}\n— log.example {signature}\n".encode()}
        bundles = [len(one).to_bytes(2, "big") + one for one in self.entries]
        for folder, items in (("entries", bundles), *((str(at), level) for at, level in enumerate(self.levels))):
            for number in range(-(-len(items) // 256)):
                part = items[256 * number : 256 * number + 256]
                self.files[f"/log/{path_of(folder, number, len(part))}"] = b"".join(part)
        vkey = f"log.example+{key_hash.hex()}+{base64.b64encode(public).decode()}"
        self.pins, self.read = Pins(log_vkey=vkey, log_origin="log.example"), list[str]()

    def entries_from(self, first: int, altered: str = "", alter: Altered = bytes) -> list[str]:
        def answer(request: httpx.Request) -> httpx.Response:
            path = request.url.path
            self.read.append(path)
            data = self.files[path]
            return httpx.Response(200, content=alter(data) if path == altered else data)

        transport = httpx.MockTransport(answer)
        with Client(public_url="http://log.example", pins=self.pins, transport=transport) as client:
            return [one["aep_hash"] for one in client.read_log(first)]


@pytest.mark.parametrize(
    ("size", "firsts"), [(5, [0, 4, 5]), (256, [0]), (300, [7, 256]), (65_536, [300]), (65_800, [0, 65_600, 65_792])]
)
def test_entries_of_altered_files_are_rejected(size: int, firsts: list[int]) -> None:
    log = Log(size)
    for first in firsts:
        log.read.clear()
        end = min(size, first // 256 * 256 + 256)
        assert log.entries_from(first) == [f"{index:064x}" for index in range(first, end)]
        for path in [*log.read]:
            for alter in (flipped, emptied):
                with pytest.raises(SvcError) as caught:
                    log.entries_from(first, path, alter)
                assert caught.value.code == "evidence_rejected"


def test_a_checkpoint_that_is_not_utf_8_is_malformed() -> None:
    with pytest.raises(SvcError) as caught:
        Log(5).entries_from(0, "/log/checkpoint", lambda note: note + b"\xe2\x80\x94 \xff AAAAAAA=\n")
    assert (caught.value.code, caught.value.fault) == ("evidence_rejected", "malformed_note")


def test_a_bundle_may_have_entries_of_the_greatest_length() -> None:
    ranges = ",".join(f"[{9 * 10**14 + 2 * at},{9 * 10**14 + 2 * at + 1}]" for at in range(1000))
    entry = '{"cause":"lost","ranges":[%s],"schema_version":"svc.registry.entry/1.1","time":"%s","type":"erasure"}'
    log = Log(256, [(entry % (ranges, "2026-11-20T12:00:00.000Z")).encode()] * 256)
    assert len(log.files["/log/tile/entries/000"]) > 8 * 1024 * 1024
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=log.files[request.url.path]))
    with Client(public_url="http://log.example", pins=log.pins, transport=transport) as client:
        assert len(client.read_log()) == 256


@pytest.mark.parametrize(("first", "pins"), [(-1, Log(1).pins), (0, None)])
def test_a_negative_index_and_a_log_without_pins_are_invalid_input(first: int, pins: Pins | None) -> None:
    with Client(public_url="http://log.example", pins=pins) as client, pytest.raises(SvcError) as caught:
        client.read_log(first)
    assert caught.value.code == "invalid_input"

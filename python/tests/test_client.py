"""Responses that a client must not read."""

import gzip

import httpx
import pytest

from svc_verification import SvcError

from .test_admissions import PROOF_ID, client_of


def test_a_compressed_response_is_not_decompressed() -> None:
    requests = list[httpx.Request]()
    bomb = gzip.compress(gzip.compress(bytes(10_000_000)))

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, headers={"content-encoding": "gzip, gzip"}, stream=httpx.ByteStream(bomb))

    with client_of(answer) as client, pytest.raises(SvcError, match="compressed") as caught:
        client.lookup("proof", PROOF_ID)
    assert caught.value.code == "unexpected_response"
    assert [one.headers["accept-encoding"] for one in requests] == ["identity"]

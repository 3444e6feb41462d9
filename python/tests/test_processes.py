"""Clients and gates that a process creates before it forks."""

import os
import signal
import threading
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from svc_verification import Client, Gate, SvcError, admitted

from .engine import AGENT, SETTINGS, Engine, client_of

if not hasattr(os, "fork"):
    pytest.skip("needs fork", allow_module_level=True)


def in_child(work: Callable[[], Any]) -> bool:
    """Runs the work in a forked child. Returns whether the work ended within 10 seconds, without an error."""
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def test_a_forked_child_does_not_use_the_connections_of_its_parent() -> None:
    engine, ports = Engine(), list[int]()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            ports.append(self.client_address[1])
            body = self.rfile.read(int(self.headers["content-length"]))
            response = engine(httpx.Request("POST", "http://engine", content=body))
            self.send_response(response.status_code)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(response.content)))
            self.end_headers()
            self.wfile.write(response.content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = {**SETTINGS, "engine_url": f"http://127.0.0.1:{server.server_port}"}
    with Client(**settings) as client:
        book = admitted(Gate(client, AGENT), tool="book")(lambda: 4)
        book()
        assert in_child(book)
        book()
    server.shutdown()
    assert len(ports) == 6
    assert set(ports[2:4]).isdisjoint(ports[:2] + ports[4:])


def test_a_forked_child_waits_for_its_own_requests_only() -> None:
    decide, engine, parent = threading.Event(), Engine(), os.getpid()

    def answer(request: httpx.Request) -> httpx.Response:
        if os.getpid() == parent:
            decide.wait()
        return engine(request)

    gate = Gate(client_of(Client, answer), AGENT, mode="observe", on_not_admitted=print)
    book = admitted(gate, tool="book")(lambda: 4)
    # Keeps every thread of the parent busy.
    for _ in range(64):
        book()

    def work() -> None:
        gate.drain()
        book()
        gate.drain()
        assert len(engine.sent) > 0

    assert in_child(work)
    decide.set()
    gate.drain()


def test_a_forked_child_that_cannot_open_connections_runs_an_observed_tool() -> None:
    failures = list[SvcError]()
    client = Client(**SETTINGS)
    gate = Gate(client, AGENT, mode="observe", on_not_admitted=failures.append)
    book = admitted(gate, tool="book")(lambda: 4)

    def work() -> None:
        os.environ["SSL_CERT_FILE"] = "/nonexistent.pem"
        assert book() == 4
        gate.drain()
        assert [one.code for one in failures] == ["network"]

    assert in_child(work)
    client.close()

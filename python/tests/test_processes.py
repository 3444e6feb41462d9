"""Clients and gates that a process creates before it forks."""

import os
import signal
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from svc_verification import Client, Gate, admitted

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
    parent, child = ports[0], ports[2]
    assert ports == [parent, parent, child, child, parent, parent]
    assert parent != child


def test_drain_does_not_wait_for_the_requests_of_the_parent() -> None:
    decide, engine = threading.Event(), Engine()

    def answer(request: httpx.Request) -> httpx.Response:
        decide.wait()
        return engine(request)

    gate = Gate(client_of(Client, answer), AGENT, mode="observe", on_not_admitted=print)
    admitted(gate, tool="book")(lambda: 4)()
    assert in_child(gate.drain)
    decide.set()
    gate.drain()

"""An engine without a network, and test programs that run with the blocking and the async client."""

import json
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import anyio
import httpx

from svc_verification import AsyncClient, Client, Gate, Retry, admitted, canonical_hash
from svc_verification.transport import run_blocking

AGENT: Any = {"id": "agent-7"}
SETTINGS: dict[str, Any] = {"engine_url": "http://engine", "tenant_id": "acme", "api_key": "key"}
PROOF_ID = "019aa2c1e07b70008a3e5d6b7c8d9e0f"
Kind = type[Client] | type[AsyncClient]
EXPIRES = "2999-01-01T00:00:00.000Z"


def proof_id(number: int) -> str:
    return f"019aa2c1e07b70008a3e{number:012x}"


def receipt_of(body: dict[str, Any], status: str, number: int) -> dict[str, Any]:
    request_hash = canonical_hash(body)
    receipt = {
        "schema_version": "svc.agent.admission.response/1.0",
        "receipt_id": f"svc-agent-admission-{request_hash[:16]}",
        "status": status,
        "request_hash": request_hash,
        "registry_proof_id": proof_id(number),
        "vee_recorded": True,
    }
    return receipt | {"response_hash": canonical_hash(receipt)}


def problem(status: int, code: str, **members: Any) -> httpx.Response:
    document = {"type": "urn:svc", "title": code, "status": status, "detail": code, "code": code, **members}
    return httpx.Response(status, json=document, headers={"content-type": "application/problem+json"})


def pending(receipt: dict[str, Any], expires_at: str = EXPIRES, date: str = "") -> httpx.Response:
    status = {"schema_version": "svc.runtime.admission_status/1.0", "proof_id": receipt["registry_proof_id"]}
    status |= {"state": "approval_required", "receipt": receipt, "expires_at": expires_at}
    return httpx.Response(202, json=status, headers={"date": date} if date else {})


class Engine:
    """Answers each new body with the next of `answers`, and with an admission after the last. Keeps bodies in `sent`.

    An answer is a response, an error to raise, or a function of the body and the number of its proof.
    """

    def __init__(self, *answers: Any, second: Callable[[dict[str, Any]], httpx.Response] | None = None) -> None:
        self.answers, self.second, self.sent, self.polls = list(answers), second, list[dict[str, Any]](), 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            self.polls += 1
            assert self.second is not None
            return self.second(self.sent[0])
        body = json.loads(request.content)
        self.sent.append(body)
        answer = self.answers.pop(0) if self.answers else admit
        if isinstance(answer, BaseException):
            raise answer
        return answer(body, len(self.sent)) if callable(answer) else answer

    def shown(self, *names: str) -> list[tuple[Any, ...]]:
        return [tuple(body.get(name) for name in names) for body in self.sent]


def admit(body: dict[str, Any], number: int) -> httpx.Response:
    return httpx.Response(200, json=receipt_of(body, "ADMITTED", number))


def deny(body: dict[str, Any], number: int) -> httpx.Response:
    return problem(403, "policy_denied", receipt=receipt_of(body, "DENIED", number))


def hold(body: dict[str, Any], number: int) -> httpx.Response:
    return pending(receipt_of(body, "APPROVAL_REQUIRED", number))


def unavailable(_: dict[str, Any], __: int) -> httpx.Response:
    return httpx.Response(503)


def client_of(kind: Kind, engine: Callable[..., Any]) -> Any:
    transport = httpx.MockTransport(engine)
    return kind(public_url="http://public", transport=transport, retry=Retry(attempts=1), **SETTINGS)


def tool_of(gate: Gate, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Wraps `function` as the admitted tool `book`, as a coroutine function if the gate has an `AsyncClient`."""

    @wraps(function)
    async def coroutine(*args: Any) -> Any:
        return function(*args)

    is_blocking = isinstance(gate.client, Client)
    return admitted(gate, **{"tool": "book", **options})(function if is_blocking else coroutine)


async def drain(gate: Gate) -> None:
    gate.drain() if isinstance(gate.client, Client) else await gate.drain_async()


def run(kind: Kind, program: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return run_blocking(program()) if kind is Client else anyio.run(program)

"""A program as a user would write it. .ci/run type-checks it against the wheel, which must include its types."""

from typing import assert_type

from svc_verification import (
    Agent,
    ApprovalWait,
    AsyncClient,
    Client,
    Denial,
    Facts,
    Gate,
    Pins,
    Receipt,
    RequiredApproval,
    Run,
    SvcError,
    ToolFields,
    admitted,
    open_run,
    verify_export,
)

agent: Agent = {"id": "a", "framework": "none"}
place: Run = {"id": "019aa2c1e07b7c0f8a3e5d6b7c8d9e0f", "seq": 2}


def facts(seats: int) -> Facts:
    return {"seats": seats, "price": {"decimal": "480.00"}}


def fields(seats: int) -> ToolFields:
    return {"tool_call_id": f"call-{seats}"}


def book(client: Client, gate: Gate) -> str | None:
    try:
        receipt = client.admit(agent=agent, action="BOOK", run=place, facts=facts(2))
        assert_type(receipt, Receipt)
        verify_export("{}", Pins(), receipt=receipt)
    except SvcError as error:
        assert_type(error.denial, Denial | None)
        assert_type(error.approval, RequiredApproval | None)

    @admitted(gate, facts=facts, fields=fields)
    def reserve(seats: int) -> str:
        return f"a table for {seats}"

    run = open_run(client, agent, place)
    assert_type(run.close(), Receipt)
    waiting = Gate(client, agent, approval=ApprovalWait(9, lambda one: print(one.approval["expires_at"])))

    @admitted(waiting, fields=lambda: {"run": run})
    def cancel() -> None: ...

    cancel()
    return assert_type(reserve(2), str)


async def close(client: AsyncClient) -> None:
    assert_type(await open_run(client, agent).close(), Receipt)

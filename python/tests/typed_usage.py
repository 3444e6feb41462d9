"""A program as a user would write it. .ci/run type-checks it against the wheel, which must include its types."""

from typing import assert_type

from svc_verification import (
    ApprovalWait,
    AsyncClient,
    Client,
    Denial,
    Facts,
    Gate,
    Pins,
    Receipt,
    RequiredApproval,
    SvcError,
    ToolFields,
    admitted,
    open_run,
    verify_export,
)


def facts(seats: int) -> Facts:
    return {"seats": seats, "price": {"decimal": "480.00"}}


def fields(seats: int) -> ToolFields:
    return {"tool_call_id": f"call-{seats}"}


def book(client: Client, gate: Gate) -> str | None:
    try:
        receipt = client.admit(agent={"id": "a"}, action="BOOK", facts=facts(2))
        assert_type(receipt, Receipt)
        verify_export("{}", Pins(), receipt=receipt)
    except SvcError as error:
        assert_type(error.denial, Denial | None)
        assert_type(error.approval, RequiredApproval | None)

    @admitted(gate, facts=facts, fields=fields)
    def reserve(seats: int) -> str:
        return f"a table for {seats}"

    run = open_run(client, {"id": "a"})
    assert_type(run.close(), Receipt)
    waiting = Gate(client, {"id": "a"}, approval=ApprovalWait(9, lambda one: print(one.approval["expires_at"])))

    @admitted(waiting, fields=lambda: {"run": run})
    def cancel() -> None: ...

    cancel()
    return assert_type(reserve(2), str)


async def close(client: AsyncClient) -> None:
    assert_type(await open_run(client, {"id": "a"}).close(), Receipt)

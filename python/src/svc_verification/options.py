"""Options of a gate, and the values that its callbacks get."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from .forms import is_name
from .hashing import plain_hash
from .models import Facts, Receipt, RequiredApproval, ToolFields
from .run import AgentRun


class ToolOptions(TypedDict, total=False):
    """How a gate describes the calls of a tool.

    `action` is by default `action_of(tool)`. If some arguments are not plain JSON, `hashed` gets the arguments and
    returns the value to hash instead. `facts` returns the facts of a call. A call does not run if its facts or the
    hashed value change during the admission. `fields` returns further members of the envelope.
    """

    action: str | None
    hashed: Callable[..., object] | None
    facts: Callable[..., Facts] | None
    fields: Callable[..., ToolFields] | None


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool; `plain` returns its arguments as JSON.

    Arguments and facts are read for the admission, and again before the tool runs.
    """

    tool: str
    options: ToolOptions
    plain: Callable[[], object]
    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    framework: str | None = None
    # The id that the model gave to the call.
    tool_call_id: str | None = None

    def __post_init__(self) -> None:
        # Drops an empty or very long id, which some providers send: the engine would reject the call.
        if not is_name(self.tool_call_id):
            object.__setattr__(self, "tool_call_id", None)

    def bound(self) -> dict[str, Any]:
        """The hash of the arguments, and the facts: both must stay equal during the admission."""
        facts = self.option("facts", lambda: None)
        hashed = plain_hash(self.option("hashed", self.plain))
        return {"arguments_hash": hashed} | ({} if facts is None else {"facts": dict(facts)})

    def option(self, name: Literal["hashed", "facts", "fields"], default: Callable[[], object]) -> Any:
        function = self.options.get(name)
        return default() if function is None else function(*self.args, **self.named)


@dataclass(frozen=True)
class Admission:
    """An admitted action. The outcome gets a number in the same `run`."""

    tool: str
    action: str
    proof_id: str
    receipt: Receipt
    run: AgentRun[Any] | None = None


@dataclass(frozen=True)
class PendingApproval:
    """A call that waits for an approval of the proof `proof_id`."""

    call: ToolCall
    action: str
    proof_id: str
    approval: RequiredApproval


@dataclass(frozen=True)
class ApprovalWait:
    """Waits for a required approval, at most `wait` seconds; then the call fails with `approval_required`.

    `on_pending` is called when the wait begins: send the `proof_id` to an approver.
    """

    wait: float
    on_pending: Callable[[PendingApproval], object] | None = None


@dataclass(frozen=True)
class LostOutcome:
    """An outcome that could not be recorded. `client.submit(envelope)` records it once, however often it is sent."""

    tool: str
    proof_id: str
    error: BaseException
    envelope: dict[str, Any]

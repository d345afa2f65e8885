"""`posttrain trace …`: the ledger of a trajectory, shown, compared, and run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from posttrain.cli.options import group
from posttrain.errors import UserError
from posttrain.units import duration

if TYPE_CHECKING:
    from posttrain.llmm.replay import Difference, Model
    from posttrain.llmm.trace import Event, Lost

app = group("Traces: what was asked, answered, converted and lost.")


File = Annotated[Path, typer.Argument(metavar="FILE", help="A trace: JSON lines.")]


@app.command()
def show(
    file: File, as_json: Annotated[bool, typer.Option("--json", help="Print the rebuilt trajectory as JSON.")] = False
) -> None:
    """Show what happened: each event with its cause, its time and what was lost, then the turns."""
    from posttrain.llmm.ir import to_json
    from posttrain.llmm.trace import read, rebuild

    events = read(file)
    trajectory = rebuild(events)
    if as_json:
        typer.echo(to_json(trajectory).decode())
        return
    console = Console(highlight=False)
    outcome = trajectory.outcome
    ended = "open" if outcome is None else outcome.status
    reward = "" if outcome is None or outcome.reward is None else f", reward {outcome.reward:g}"
    console.print(Text(f"{trajectory.id}  {ended}{reward}", "bold"))
    table = Table(box=None)
    for name in ("event", "id", "cause", "after", "took", "what"):
        table.add_column(name, overflow="fold")
    for event in events:
        took = "" if event.seconds is None else duration(event.seconds)
        name = type(event).__name__.lower()
        after = duration(event.at - events[0].at)
        table.add_row(*map(Text, (name, event.id, event.cause or "", after, took, _what(event))))
    console.print(table)
    for turn in trajectory.turns:
        begun = "a history of its own" if turn.parent is None else f"from turn {turn.parent}"
        fork = f", fork: {turn.fork}" if turn.fork else ""
        console.print(Text(f"\nturn {turn.index} ({begun}{fork})", "bold"))
        for message in (*turn.seen, *([turn.said.message] if turn.said is not None else [])):
            console.print(Text(f"  {message.role}: {_parts(message)}"))


@app.command()
def diff(one: File, other: File) -> None:
    """Say where two trajectories first differ; ends with 1 where they do."""
    from posttrain.llmm.replay import compare
    from posttrain.llmm.trace import read

    _verdict(compare(read(one), read(other)), "both say the same")


@app.command()
def replay(
    file: File,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="URL", help="Ask this server every request again, on its dialect's route."),
    ] = None,
    key: Annotated[str, typer.Option(help="Key for that server.", envvar="POSTTRAIN_MODEL_KEY")] = "none",
) -> None:
    """Run the conversions again, and the model where asked; say the first difference, and end with 1 on one."""
    from posttrain.llmm.replay import replay as run
    from posttrain.llmm.trace import read

    _verdict(run(read(file), None if model is None else _served(model, key)), "all comes out the same")


def _verdict(found: Difference | None, same: str) -> None:
    if found is None:
        typer.echo(same)
        return
    where = f"{found.what} ({found.event})" if found.event else found.what
    typer.echo(f"{where} differs at {found.path}")
    typer.echo(f"  was {_short(found.was)}")
    typer.echo(f"  now {_short(found.now)}")
    raise typer.Exit(1)


def _served(url: str, key: str) -> Model:
    """A server of the dialects' routes, asked without streaming."""
    import httpx

    from posttrain.llmm.dialects import dialect

    def ask(name: str, request: dict[str, Any]) -> dict[str, Any]:
        route, body = (
            _ROUTES[dialect(name).base],
            {k: v for k, v in request.items() if k not in ("stream", "stream_options")},
        )
        headers = {"authorization": f"Bearer {key}", "x-api-key": key, "x-goog-api-key": key}
        address = url.rstrip("/") + route.format(model=body.get("model"))
        try:
            answer = httpx.post(address, json=body, headers=headers, timeout=600)
            answer.raise_for_status()
        except httpx.HTTPError as problem:
            raise UserError(f"gives no answer: {problem}", field="--model", value=address) from None
        return answer.json()

    return ask


_ROUTES = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
    "google_genai": "/v1beta/models/{model}:generateContent",
}


def _what(event: Event) -> str:
    from posttrain.llmm.trace import Asked, Converted, Ended, Judged, Started, Used

    match event:
        case Started():
            return " ".join(filter(None, (event.task and f"task {event.task}", event.group and f"group {event.group}")))
        case Asked():
            agent = f" by {event.agent}" if event.agent else ""
            tokens = "" if event.tokens is None else f", {len(event.tokens)} tokens"
            vendor = f", answered by {event.vendor}" if event.vendor else ""
            failed = f", failed: {event.failure}" if event.failure else ""
            return f"{event.dialect}{agent}{tokens}{vendor}{failed}{_lost(event.losses)}"
        case Used():
            failed = f" failed: {event.error}" if event.error else ""
            return f"{event.name}({_short(event.arguments, plain=True)}){failed}"
        case Converted():
            return f"{event.kind} from {event.source} to {event.target}{_lost(event.losses)}"
        case Judged():
            reward = "" if event.reward is None else f" {event.reward:g}"
            return f"{event.verifier}: {event.status}{reward}"
        case Ended():
            return event.status


def _lost(losses: tuple[Lost, ...]) -> str:
    return "".join(f"\n  lost {loss.path}: {loss.reason}" for loss in losses)


def _parts(message: Any) -> str:
    from posttrain.llmm.ir import Reasoning, Text, ToolCall, ToolResult, arguments_text

    said = []
    for part in message.parts:
        match part:
            case Text(text=text):
                said.append(_short(text, plain=True))
            case Reasoning(text=text):
                said.append(f"<thinks: {_short(text or 'not to be read', plain=True)}>")
            case ToolCall():
                said.append(f"calls {part.name}({_short(arguments_text(part), plain=True)})")
            case ToolResult():
                texts = "".join(each.text for each in part.content if isinstance(each, Text))
                said.append(f"result of {part.call or part.name}: {_short(texts or part.value, plain=True)}")
            case _:
                said.append(f"<{type(part).__name__.lower()}>")
    return " ".join(said)


def _short(value: Any, limit: int = 100, *, plain: bool = False) -> str:
    import msgspec

    text = value if plain and isinstance(value, str) else json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
    text = text.replace("\n", "⏎")
    return text if len(text) <= limit else text[: limit - 1] + "…"

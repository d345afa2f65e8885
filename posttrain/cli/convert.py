"""`posttrain convert`: a request, an answer or a stream of one vendor's interface as another's, and what that loses."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from posttrain.errors import UserError

app = typer.Typer(pretty_exceptions_enable=False)


class Kind(StrEnum):
    auto = "auto"
    request = "request"
    response = "response"
    stream = "stream"


@app.command()
def convert(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON; of a stream JSON lines or SSE; - for stdin.")],
    source: Annotated[str, typer.Option("--from", metavar="DIALECT", help="openai_chat, openai_responses, …")],
    target: Annotated[str, typer.Option("--to", metavar="DIALECT", help="A dialect, or ir for the IR's own JSON.")],
    kind: Annotated[Kind, typer.Option(help="What the file holds; auto looks.")] = Kind.auto,
    as_json: Annotated[bool, typer.Option("--json", help="Print {result, losses} as JSON.")] = False,
) -> None:
    """Convert between vendors' interfaces: the result on stdout, the list of losses on stderr."""
    text = _read(file)
    if kind is Kind.auto:
        kind = _kind(text)
    if kind is Kind.stream:
        result, losses = _stream(source, target, _events(text, file))
    else:
        result, losses = _whole(source, target, _body(text, file), kind.value)
    if as_json:
        listed = [{"path": loss.path, "value": _plain(loss.value), "reason": loss.reason} for loss in losses]
        typer.echo(json.dumps({"result": result, "losses": listed}, ensure_ascii=False))
        return
    for line in result if kind is Kind.stream else [result]:
        typer.echo(json.dumps(line, ensure_ascii=False, indent=None if kind is Kind.stream else 2))
    _show(losses, source, target)


def _whole(source: str, target: str, body: dict[str, Any], kind: Any) -> tuple[Any, Any]:
    from posttrain.llmm.dialects import dialect
    from posttrain.llmm.dialects.crossing import convert as cross
    from posttrain.llmm.ir import to_json

    if target == "ir":
        it = dialect(source)
        value = it.lift_request(body) if kind == "request" else it.lift_response(body)
        return json.loads(to_json(value)), ()
    crossing = cross(source, target, body, kind)
    return crossing.wire, crossing.losses


def _stream(source: str, target: str, events: list[dict[str, Any]]) -> tuple[Any, Any]:
    import msgspec

    from posttrain.llmm.dialects import dialect
    from posttrain.llmm.dialects.crossing import losses
    from posttrain.llmm.ir.stream import fold

    frames = list(dialect(source).lift_stream(events))
    if target == "ir":
        return [msgspec.to_builtins(frame) for frame in frames], ()
    there = dialect(target)
    lost = losses(fold(frames), there.base, foreign=there.base != dialect(source).base)
    return list(there.lower_stream(frames)), tuple(lost)


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "is no UTF-8"
        raise UserError(f"cannot be read: {reason}", field="FILE", value=file) from None


def _kind(text: str) -> Kind:
    """Several lines that are objects by themselves, or SSE, are a stream; a body with messages is a request."""
    try:
        body = json.loads(text)
    except json.JSONDecodeError:
        return Kind.stream
    asks = isinstance(body, dict) and any(key in body for key in ("messages", "input", "contents"))
    return Kind.request if asks else Kind.response


def _body(text: str, file: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except json.JSONDecodeError as problem:
        raise UserError(f"is no JSON: {problem}", field="FILE", value=file) from None
    if not isinstance(body, dict):
        raise UserError("holds no JSON object", field="FILE", value=file)
    return body


def _events(text: str, file: str) -> list[dict[str, Any]]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.removeprefix("data:").strip()
        if not line or line == "[DONE]" or line.startswith((":", "event:", "id:", "retry:")):
            continue
        found.append(_body(line, f"{file}, line {number}"))
    return found


def _plain(value: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(value)


def _show(losses: Any, source: str, target: str) -> None:
    console = Console(stderr=True, highlight=False)
    if not losses:
        console.print(Text(f"nothing was lost from {source} to {target}"))
        return
    table = Table(title=f"lost from {source} to {target}", title_justify="left", box=None)
    for name in ("where", "value", "why"):
        table.add_column(name, overflow="fold")
    for loss in losses:
        shown = json.dumps(_plain(loss.value), ensure_ascii=False)
        table.add_row(Text(loss.path), Text(shown if len(shown) <= 60 else shown[:59] + "…"), Text(loss.reason))
    console.print(table)

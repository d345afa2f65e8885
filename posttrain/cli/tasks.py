"""`posttrain tasks …`: the TaskServer by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from posttrain.cli.options import group, service_settings
from posttrain.rollout.tasks.settings import DATABASE_VARIABLE, TaskServerSettings
from posttrain.units import duration

if TYPE_CHECKING:
    from posttrain.rollout.tasks.client import TaskClient

app = group("The TaskServer: work by leases, each task ends once.")


Url = Annotated[str, typer.Option("--url", metavar="URL", envvar="POSTTRAIN_TASKS_URL", help="The server's address.")]
DEFAULT_URL = "http://127.0.0.1:8300"
TaskId = Annotated[str, typer.Argument(metavar="TASK", help="The task's id.")]


@app.command()
def serve(
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings, as in lease_seconds=10.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8300,
    file: Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE", help="YAML with settings.")] = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C. State is in SQLite, or in PostgreSQL as POSTTRAIN_TASKS_DATABASE says."""
    from posttrain.rollout.tasks.service import create_app
    from posttrain.service import serve as serve_app

    app = create_app(service_settings(TaskServerSettings, file, overrides, where="tasks", database=DATABASE_VARIABLE))
    serve_app(app, host=host, port=port, on_stop=app.state.server.close_waits, field="--port")


@app.command()
def status(url: Url = DEFAULT_URL) -> None:
    """Show queues, states, workers."""
    with _client(url) as client:
        found = client.status()
    console = Console(highlight=False)
    grid = Table(box=None, header_style="bold")
    for name in ("kind", "queue", "pending", "leased", "oldest waits"):
        grid.add_column(name)
    for q in found.queues:
        grid.add_row(q.kind, q.queue, str(q.pending), str(q.leased), duration(q.oldest_seconds) if q.pending else "–")
    if found.queues:
        console.print(grid)
    console.print("tasks: " + (", ".join(f"{n} {state}" for state, n in sorted(found.states.items())) or "none"))
    console.print(f"workers: {found.workers}, for {found.capacity} tasks at once")
    if found.drained:
        console.print(f"drained: {', '.join(found.drained)}")


@app.command("list")
def list_(
    url: Url = DEFAULT_URL,
    kind: Annotated[str | None, typer.Option(help="Of this kind.")] = None,
    queue: Annotated[str | None, typer.Option(help="Of this queue.")] = None,
    state: Annotated[str | None, typer.Option(help="In this state: pending, leased, succeeded, …")] = None,
    limit: Annotated[int, typer.Option(help="So many at most.", min=1, max=1000)] = 50,
) -> None:
    """List tasks in the order of their submission."""
    with _client(url) as client:
        found = client.list(limit=limit, kind=kind, queue=queue, state=state)
    grid = Table(box=None, header_style="bold")
    for name in ("task", "kind", "queue", "state", "attempts", "worker", "reason"):
        grid.add_column(name, overflow="fold")
    for t in found.tasks:
        grid.add_row(t.id, t.kind, t.queue, t.state, f"{t.attempts}/{t.max_attempts}", t.worker or "–", t.reason or "")
    Console(highlight=False).print(grid)
    if found.next is not None:
        typer.echo(f"… more behind these {limit}")


@app.command()
def show(task: TaskId, url: Url = DEFAULT_URL) -> None:
    """Print one task with its attempts and its result, as JSON."""
    with _client(url) as client:
        found = client.task(task)
        shown = json.loads(found.model_dump_json())
        if found.result is not None:
            shown["value"] = client.result(found.result)
    typer.echo(json.dumps(shown, indent=2, ensure_ascii=False))


@app.command()
def cancel(task: TaskId, url: Url = DEFAULT_URL) -> None:
    """Cancel a task and its children."""
    with _client(url) as client:
        done = client.cancel(task)
    typer.echo(f"{task}: {done.state} ({done.cancelled} ended by this)")


@app.command()
def drain(
    url: Url = DEFAULT_URL,
    kind: Annotated[str, typer.Option(help="The kind that takes nothing new; *: every kind.")] = "*",
    off: Annotated[bool, typer.Option("--off", help="Take tasks again.")] = False,
) -> None:
    """Take no new tasks; those there are worked off."""
    with _client(url) as client:
        found = client.drain(kind, not off)
    typer.echo(f"drained: {', '.join(found.drained) or 'nothing'}")


def _client(url: str) -> TaskClient:
    from posttrain.rollout.tasks.client import TaskClient

    return TaskClient(url, patience=3.0, field="--url")

"""`posttrain reward …`: the reward service by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from posttrain.cli.options import group, service_settings
from posttrain.contract.config import json_object
from posttrain.reward.settings import DATABASE_VARIABLE, RewardSettings

if TYPE_CHECKING:
    from posttrain.reward.client import RewardClient

app = group("The reward service: verdicts, computed once and kept.")


Url = Annotated[str, typer.Option("--url", metavar="URL", envvar="POSTTRAIN_REWARD_URL", help="The service's address.")]
DEFAULT_URL = "http://127.0.0.1:8400"


@app.command()
def serve(
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings, as in stream=verdicts.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8400,
    file: Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE", help="YAML with settings.")] = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C. The index is SQLite, or PostgreSQL as POSTTRAIN_REWARD_DATABASE says."""
    from posttrain.reward.service import create_app
    from posttrain.service import serve as serve_app

    app = create_app(service_settings(RewardSettings, file, overrides, where="reward", database=DATABASE_VARIABLE))
    serve_app(app, host=host, port=port, on_stop=app.state.desk.begin_to_end, field="--port")


@app.command()
def status(url: Url = DEFAULT_URL) -> None:
    """Show the verifiers and what is stored."""
    with _client(url) as client:
        found = client.status()
    grid = Table(box=None, header_style="bold")
    for name in ("verifier", "lane", "waiting"):
        grid.add_column(name)
    for view in found.verifiers:
        grid.add_row(view.name, view.lane or "–", str(view.waiting))
    console = Console(highlight=False)
    console.print(grid)
    console.print("verdicts: " + (", ".join(f"{n} {status}" for status, n in sorted(found.stored.items())) or "none"))
    if found.unstreamed:
        console.print(f"not yet in the stream: {found.unstreamed}")


@app.command()
def ask(
    verifier: Annotated[str, typer.Argument(metavar="VERIFIER", help="exact, numeric, math, …")],
    completion: Annotated[str, typer.Argument(metavar="COMPLETION", help="What the policy wrote.")],
    answer: Annotated[str, typer.Option(help="The right answer.")] = "",
    metadata: Annotated[str, typer.Option(metavar="JSON", help="What the verifier needs beside.")] = "{}",
    url: Url = DEFAULT_URL,
) -> None:
    """Ask for one verdict and print it as JSON."""
    from posttrain.contract.digest import digest_bytes
    from posttrain.reward.api import Ask

    details = json_object(metadata, field="--metadata")
    question = Ask.model_validate(
        {"task": "by-hand", "trajectory": digest_bytes(completion.encode()), "verifier": verifier,
         "completion": completion, "answer": answer, "metadata": details}
    )  # fmt: skip
    with _client(url) as client:
        typer.echo(client.verdict(question).model_dump_json(indent=2))


@app.command()
def replay(
    verifier: Annotated[str | None, typer.Option(help="Only verdicts of this verifier.")] = None,
    version: Annotated[str | None, typer.Option(help="Only verdicts of this version of it.")] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Compute stored verdicts again and print what comes out otherwise. Ends with 1 if anything does."""
    from posttrain.reward.api import ReplayRequest

    compared = different = 0
    with _client(url) as client:
        for page in client.replay(ReplayRequest(verifier=verifier, version=version)):
            compared += page.compared
            different += len(page.differences)
            for d in page.differences:
                typer.echo(
                    f"{d.key}  {d.verifier} {d.version}: {d.status} {d.reward} -> "
                    f"{d.other_version}: {d.other_status} {d.other_reward}"
                )
    typer.echo(f"{compared} verdicts computed again, {compared - different} the same")
    if different:
        raise typer.Exit(1)


def _client(url: str) -> RewardClient:
    from posttrain.reward.client import RewardClient

    return RewardClient(url, patience=3.0, field="--url")

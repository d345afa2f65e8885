"""`posttrain etha …`: versions of weights, by hand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from posttrain.cli.options import group, service_settings
from posttrain.errors import UserError
from posttrain.etha.coordinator.settings import CoordinatorSettings
from posttrain.units import duration

if TYPE_CHECKING:
    from posttrain.etha.coordinator.client import EthaClient
    from posttrain.etha.publisher import Publisher

app = group("Etha: every inference rank gets exactly its shard of the new weights.")

DEFAULT_URL = "http://127.0.0.1:8700"
DATABASE_VARIABLE = "POSTTRAIN_ETHA_DATABASE"
Url = Annotated[
    str, typer.Option("--url", metavar="URL", envvar="POSTTRAIN_ETHA_URL", help="The coordinator's address.")
]
Checkpoint = Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="A directory of safetensors files.")]
Version = Annotated[int, typer.Argument(metavar="VERSION", min=1)]


@app.command()
def serve(
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings, as in pause=wait.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8700,
    file: Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE", help="YAML with settings.")] = None,
) -> None:
    """Run the coordinator until SIGTERM or Ctrl-C. Its state is in a file of SQLite and outlives it."""
    from posttrain.etha.coordinator.service import create_app
    from posttrain.service import serve as serve_app

    app = create_app(service_settings(CoordinatorSettings, file, overrides, where="etha", database=DATABASE_VARIABLE))
    serve_app(app, host=host, port=port, on_stop=app.state.server.close_waits, field="--port")


@app.command()
def status(url: Url = DEFAULT_URL) -> None:
    """Show versions, replicas and publishers."""
    with _client(url) as client:
        found = client.versions()
    console = Console(highlight=False)
    moving = f"; version {found.moving} is on its way" if found.moving is not None else ""
    console.print(f"version to serve: {found.target or 'none was pushed yet'}{moving}")
    _print(console, ("replica", "phase", "version", "asked", "ranks", "received", "why"), [
        (r.replica, r.phase, "–" if r.version is None else str(r.version), "yes" if r.traffic else "no",
         f"{r.present}/{r.ranks}", _megabytes(r.moved), r.reason)
        for r in found.replicas
    ])  # fmt: skip
    _print(console, ("publisher", "ranks", "can send"), [
        (p.publisher, f"{p.present}/{p.ranks}", ", ".join(map(str, p.offers)) or "–") for p in found.publishers
    ])  # fmt: skip
    _print(console, ("version", "state", "took", "why"), [
        (str(v.version), v.state, duration(v.ended - v.since if v.ended is not None else None), v.reason)
        for v in found.versions[-10:]
    ])  # fmt: skip


@app.command()
def plan(
    replica: Annotated[str | None, typer.Argument(help="This replica; all of them without a name.")] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Show what goes from whom to whom when a version is pushed."""
    with _client(url) as client:
        names = [replica] if replica else [view.replica for view in client.versions().replicas]
        if not names:
            raise UserError("no replica has joined yet", field="--url", value=url)
        plans = [client.plan_of(name) for name in names]
    console = Console(highlight=False)
    for made in plans:
        console.print(
            f"{made.replica}: {_megabytes(made.nbytes)} of {made.tensors} tensors from {made.sources} ranks of "
            f"{made.publisher} to {made.ranks}, in {made.transfers} transfers and {made.buckets} buckets"
        )
        _print(console, ("", "rank", "bytes"), [
            *(("sends", str(rank), _megabytes(n)) for rank, n in enumerate(made.by_source)),
            *(("gets", str(rank), _megabytes(n)) for rank, n in enumerate(made.by_rank)),
        ])  # fmt: skip


@app.command()
def push(
    checkpoint: Checkpoint,
    version: Annotated[
        int | None, typer.Option(min=1, help="Above every one before. Default: the highest and one.")
    ] = None,
    url: Url = DEFAULT_URL,
    keep: Annotated[
        bool, typer.Option("--keep", help="Stay until Ctrl-C, for replicas that come late and for roll backs.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds for the version to get through.")] = 3600.0,
    transport: Annotated[str, typer.Option(help="shm, process_group or cuda_ipc, as the replicas have.")] = "shm",
) -> None:
    """Push a checkpoint into the replicas, and wait until those that hold it serve it."""
    from posttrain.etha.checkpoint import checkpoint as read
    from posttrain.etha.publisher import Publisher

    with _client(url) as client:
        held = read(_existing(checkpoint), field="CHECKPOINT")
        before = client.versions()
        number = version if version is not None else before.highest + 1
        publisher = Publisher(url, held.layout, held.tensors, group="checkpoint", transport=transport, keep=0)
        publisher.start()
        try:
            _push(client, publisher, number, timeout)
            if keep:
                publisher.offer(number)
                typer.echo(f"version {number} can be sent to replicas that come late until Ctrl-C")
                while not publisher.replaced:
                    time.sleep(1)
                raise UserError("another process publishes a checkpoint now", field="--url", value=url)
        except KeyboardInterrupt:
            typer.echo("")
        finally:
            publisher.close()


@app.command()
def verify(checkpoint: Checkpoint, url: Url = DEFAULT_URL, timeout: float = 300.0) -> None:
    """Have every rank read again what it received, and compare it with the checkpoint, byte by byte by digests."""
    from posttrain.etha.checkpoint import checkpoint as read
    from posttrain.etha.checkpoint import digest

    with _client(url) as client:
        held = read(_existing(checkpoint), field="CHECKPOINT")
        asked, until = client.check(), time.monotonic() + timeout
        while None in asked.ranks.values() and time.monotonic() < until:
            time.sleep(0.1)
            asked = client.checks()
        rows, good = [], bool(asked.ranks)
        for key, told in asked.ranks.items():
            if told is None or told.version is None:
                rows.append((key, "–", "does not answer" if told is None else "holds nothing"))
            else:
                same = digest(held, client.wants(key)) == told.digest
                rows.append((key, str(told.version), "the same" if same else "DIFFERENT"))
            good = good and rows[-1][2] == "the same"
    _print(Console(highlight=False), ("rank", "version", "bytes"), rows)
    if not rows:
        typer.echo("no replica has joined yet", err=True)
    raise typer.Exit(0 if good else 1)


@app.command()
def rollback(version: Version, url: Url = DEFAULT_URL) -> None:
    """Serve an earlier version again, which a publisher must still keep."""
    with _client(url) as client:
        client.roll_back(version)
    typer.echo(f"version {version} goes to the replicas; see `posttrain etha status`")


@app.command()
def abort(version: Version, url: Url = DEFAULT_URL) -> None:
    """Give up a version that is on its way; the one before goes on being served."""
    with _client(url) as client:
        client.abort(version)
    typer.echo(f"version {version} is aborted")


def _push(client: EthaClient, publisher: Publisher, number: int, timeout: float) -> None:
    """Push, with a bar for each replica."""
    from concurrent.futures import ThreadPoolExecutor

    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
               TextColumn("{task.fields[phase]}"))  # fmt: skip
    started = time.monotonic()
    before = {view.replica: view for view in client.versions().replicas}
    with ThreadPoolExecutor(1) as pool, Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        pushing = pool.submit(publisher.push, number, timeout=timeout, until="serving")
        bars = {}
        for name in before:
            needed = client.plan_of(name).nbytes
            bars[name] = progress.add_task(f"{name} → {number}", total=needed, phase="")
        while True:
            over = pushing.done()
            for view in client.versions().replicas:
                if view.replica in bars:
                    done = view.moved - before[view.replica].moved
                    progress.update(bars[view.replica], completed=done, phase=view.phase)
            if over:
                break
            time.sleep(0.1)
        outcome = pushing.result()
    missed = f"; not yet: {', '.join(outcome.pending)}" if outcome.pending else ""
    took = duration(time.monotonic() - started)
    typer.echo(f"version {number} is served by {', '.join(outcome.serving) or 'nobody'} after {took}{missed}")


def _client(url: str) -> EthaClient:
    from posttrain.etha.coordinator.client import EthaClient

    return EthaClient(url, patience=5.0, field="--url")


def _existing(directory: Path) -> Path:
    if not directory.is_dir():
        raise UserError("no such directory", field="CHECKPOINT", value=str(directory))
    return directory


def _print(console: Console, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    if rows:
        grid = Table(box=None, header_style="bold")
        for name in columns:
            grid.add_column(name, overflow="fold")
        for row in rows:
            grid.add_row(*row)
        console.print(grid)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count < 1e9 else f"{count / 1e9:,.2f} GB"

"""`posttrain stream …`: streams by hand. What a stream guarantees is in docs/lakestream.md.

URIs are directories or s3://BUCKET/PATH; S3 is reached by the usual AWS variables or by `--option`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import chain, islice
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
    import pyarrow as pa

    from posttrain.lakestream import Lag, Policy, Stream

app = group("Streams: a Lance table as lake and queue.")


Uri = Annotated[str, typer.Argument(metavar="URI", help="A directory, or s3://BUCKET/PATH.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="Storage option, as in aws_endpoint=http://…; may be repeated."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
BATCH = 2500
PATIENCE = 20.0  # seconds that a person waits for a store that does not answer


@app.command()
def create(
    uri: Uri,
    schema: Annotated[str | None, typer.Option(help="tasks, experience, verdicts, timings or evaluations.")] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:TYPE", help="A column of an own schema, as in seq:int64; with ! it must not be null."
        ),
    ] = None,
    max_lag_rows: Annotated[int, typer.Option(help="Rows unread at which producers wait; 0: never.")] = 0,
    max_lag_commits: Annotated[int, typer.Option(help="Commits unread at which producers wait; 0: never.")] = 0,
    option: Options = None,
) -> None:
    """Create a stream; nothing happens where it is there with the same schema."""
    from posttrain.lakestream import SCHEMAS, Settings, Stream

    if (schema is None) == (column is None):
        raise UserError("give one of --schema and --column", field="--schema", value=schema)
    if schema is not None and schema not in SCHEMAS:
        raise UserError("no such schema", field="--schema", value=schema, remedy=f"known: {', '.join(SCHEMAS)}")
    wanted = SCHEMAS[schema] if schema else _schema(column or [])
    bounds = Settings(max_lag_rows, max_lag_commits)
    made = Stream.create(uri, wanted, settings=bounds, storage_options=_options(option), timeout=PATIENCE)
    typer.echo(f"{made.uri}: {', '.join(made.schema.names)}")


@app.command()
def describe(uri: Uri, as_json: Json = False, option: Options = None) -> None:
    """Show producers with epoch and cursor, consumers with watermark and lag, fragments, versions, last commits."""
    found = _open(uri, option).describe()
    if as_json:
        typer.echo(json.dumps(asdict(found), ensure_ascii=False))
        return
    console, now = Console(highlight=False), time.time()
    console.print(Text(f"{found.uri}  {'closed' if found.closed else 'open'}", "bold"))
    console.print(
        f"{found.schema}: {', '.join(f'{name} {kind}' for name, kind in found.columns.items())}\n"
        f"{found.rows} rows, {found.bytes} bytes in {found.fragments} fragments; version {found.version}, "
        f"{found.versions} kept; maintained {_ago(found.maintained_at, now)}"
    )
    if found.removed_rows:
        console.print(f"{found.removed_rows} rows below offset {found.removed_below} were removed by retention")
    _print(
        console, ("producer", "epoch", "cursor", "commits", "rows", "last commit"),
        [(p.name, p.epoch, json.dumps(p.cursor), p.commits, p.rows, _ago(p.at, now)) for p in found.producers],
    )  # fmt: skip
    _print_lags(console, found.consumers, now)
    _print(console, ("version", "commit"), found.commits)


@app.command()
def tail(
    uri: Uri,
    rows: Annotated[int, typer.Option("--rows", "-n", min=0, help="How many of the last rows.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the stream is closed.")] = False,
    offset: Annotated[int | None, typer.Option(help="Begin at this offset instead.")] = None,
    columns: Annotated[str | None, typer.Option(metavar="A,B", help="Columns to show.")] = None,
    where: Annotated[str | None, typer.Option("--filter", metavar="SQL", help="Rows to show.")] = None,
    option: Options = None,
) -> None:
    """Print the last rows as JSON lines, and with --follow those that come. Reads only."""
    opened, names = _open(uri, option, stays=follow), columns.split(",") if columns else None
    snapshot = opened.snapshot()
    begin = offset
    if begin is None:
        begin = snapshot.end if snapshot.rows == 0 or rows == 0 else snapshot.offset(max(0, snapshot.rows - rows))
    stop = None if follow else snapshot.end
    for batch in opened.consumer(group=None, offset=begin, columns=names, filter=where, max_latency=0.2, stop=stop):
        for row in batch.to_pylist():
            typer.echo(json.dumps(row, ensure_ascii=False, default=str))


@app.command()
def append(
    uri: Uri,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSON lines, Parquet (.parquet), or - for JSON lines from stdin.")
    ],
    producer: Annotated[str | None, typer.Option(help="Name to append under. Default: the file's.")] = None,
    option: Options = None,
) -> None:
    """Append the rows of a file, each once: run again it goes on after the rows that were committed.

    The cursor counts the rows, so a name stands for one file. From stdin all rows are appended.
    """
    from posttrain.lakestream import BadRow
    from posttrain.lakestream.rows import conform

    name = producer or ("stdin" if file == "-" else Path(file).name)
    batches = _batches(file)
    opened = _open(uri, option)
    begin = list(islice(batches, 1))
    for rows in begin:  # before a producer is made for a file that is none of this stream's
        conform(rows, opened.schema)
    writer = opened.producer(name)
    done = writer.cursor or 0
    if not isinstance(done, int):
        raise UserError("its cursor is no count of rows", field="--producer", value=name, remedy="give another name")
    skip, count = 0 if file == "-" else done, 0
    for batch in chain(begin, batches):
        size = len(batch)
        if count + size > skip:
            first = max(0, skip - count)
            fresh = batch[first:]
            done += len(fresh)
            try:
                writer.append(fresh, done)
            except BadRow as bad:
                raise bad.counted_from(count + first) from None
        count += size
    typer.echo(f"{max(0, count - skip)} rows appended by {name!r}, cursor {done}")


@app.command()
def lag(uri: Uri, as_json: Json = False, option: Options = None) -> None:
    """Show how far each consumer's acknowledgement is behind."""
    found = _open(uri, option).lag()
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in found]))
        return
    if not found:
        typer.echo("no consumer has made itself known")
    _print_lags(Console(highlight=False), found, time.time())


@app.command()
def close(uri: Uri, option: Options = None) -> None:
    """Commit the barrier: nothing is appended after it, consumers end at it."""
    opened = _open(uri, option)
    opened.close()
    typer.echo(f"{opened.uri} is closed")


@app.command()
def maintain(
    uri: Uri,
    every: Annotated[
        int, typer.Option(metavar="COMMITS", help="Run when so many versions came since the last run.")
    ] = 100,
    keep: Annotated[float, typer.Option(metavar="SECONDS", help="How long a version is kept for its readers.")] = 600.0,
    retain: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Remove rows that all have read and that are older.")
    ] = None,
    archive: Annotated[str | None, typer.Option(metavar="URI", help="Stream that takes the rows removed.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay, and run whenever it is due.")] = False,
    option: Options = None,
) -> None:
    """Compact, clean up old versions behind a fence, remove rows by retention. Safe beside everyone else."""
    from posttrain.lakestream import Policy

    opened, policy = (
        _open(uri, option, stays=follow),
        Policy(every_commits=every, keep_versions=keep, retain=retain, archive=archive),
    )
    _maintain_once(opened, policy, force=True)
    while follow and not opened.closed:
        time.sleep(1.0)
        _maintain_once(opened, policy, force=False)


@app.command()
def verify(
    uri: Uri,
    producer: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column with the producer's name.")] = None,
    sequence: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column with 0, 1, 2, … of each producer.")
    ] = None,
    option: Options = None,
) -> None:
    """Check the invariants of a stored stream; ends with 1 where one is broken."""
    if (producer is None) != (sequence is None):
        raise UserError("goes with the other", field="--producer, --sequence", remedy="give both or neither")
    columns = {"producer": producer, "sequence": sequence} if producer and sequence else None
    wrong = _open(uri, option).verify(columns)
    for line in wrong:
        typer.echo(line)
    if wrong:
        raise typer.Exit(1)
    typer.echo("sound")


def _open(uri: str, given: list[str] | None, *, stays: bool = False) -> Stream:
    """The stream; who `stays` waits for its store as long as any producer does, others as long as a person would."""
    from posttrain.lakestream import Stream
    from posttrain.lakestream.stream import TIMEOUT

    return Stream.open(uri, storage_options=_options(given), timeout=TIMEOUT if stays else PATIENCE)


def _options(given: list[str] | None) -> dict[str, str] | None:
    if not given:
        return None
    for item in given:
        if "=" not in item:
            raise UserError("is no option", field="--option", value=item, remedy="write KEY=VALUE")
    return dict(item.split("=", 1) for item in given)


def _schema(columns: list[str]) -> pa.Schema:
    import pyarrow as pa

    fields = []
    for column in columns:
        name, _, kind = column.partition(":")
        try:
            if not name:
                raise ValueError
            fields.append(pa.field(name, pa.type_for_alias(kind.removesuffix("!")), nullable=not kind.endswith("!")))
        except ValueError:
            raise UserError(
                "is no column", field="--column", value=column, remedy="write NAME:TYPE, as in seq:int64"
            ) from None
    return pa.schema(fields)


def _batches(file: str) -> Iterator[Any]:
    """The rows of `file`, some at a time. UserError where it cannot be read."""
    if file != "-" and not Path(file).is_file():
        raise UserError("no such file", field="FILE", value=file)
    if file.endswith(".parquet"):
        import pyarrow as pa
        from pyarrow import parquet

        try:
            return iter(parquet.ParquetFile(file).iter_batches(BATCH))
        except pa.ArrowInvalid as problem:
            raise UserError("is no Parquet file", field="FILE", value=file, remedy=str(problem)) from None
    return _json_lines(sys.stdin if file == "-" else open(file, encoding="utf-8", errors="surrogateescape"), file)


def _json_lines(lines: Iterable[str], file: str) -> Iterator[list[Any]]:
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    while batch := [_json(line, f"{file}, line {number}") for number, line in islice(numbered, BATCH)]:
        yield batch


def _json(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        raise UserError("is no JSON", field=where) from None


def _maintain_once(opened: Stream, policy: Policy, *, force: bool) -> None:
    done = opened.maintain(policy, force=force)
    if done.due:
        typer.echo(
            f"{done.compacted_fragments} fragments compacted to leave {done.fragments}, {done.removed_rows} rows and "
            f"{done.removed_versions} versions ({done.removed_bytes} bytes) removed in {duration(done.seconds)}"
            + "".join(f"; left out {what}" for what in done.skipped)
        )


def _print_lags(console: Console, lags: Iterable[Lag], now: float) -> None:
    rows = [(x.group, f"{x.index} of {x.count}", x.offset, x.rows, x.commits, _ago(x.at, now)) for x in lags]
    _print(console, ("group", "consumer", "offset", "rows behind", "commits behind", "acknowledged"), rows)


def _print(console: Console, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(column)
    for row in rows:
        grid.add_row(*(Text(str(cell)) for cell in row))
    if grid.row_count:
        console.print()
        console.print(grid)


def _ago(at: float, now: float) -> str:
    return f"{duration(max(0.0, now - at))} ago" if at else "never"

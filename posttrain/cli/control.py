"""`posttrain stop, retry`: orders to a run of this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from posttrain.cli.embedded import Embedded
from posttrain.cli.options import DEFAULT_WORKSPACE, ProfileName, RunName, Workspace, existing
from workflows.profile import load_profile

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def stop(
    run: RunName,
    now: Annotated[bool, typer.Option("--now", help="Do not even run the exit handler.")] = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Stop a run. What runs is ended, nothing new starts, and the exit handler writes its report."""
    embedded = Embedded(existing(workspace), load_profile("laptop"))
    engine = embedded.engine
    (engine.terminate if now else engine.stop)(run)
    if not engine.store(run).held():  # nobody drives it: the order waits for someone who does
        embedded.drive(run)


@app.command()
def retry(run: RunName, profile: ProfileName = "laptop", workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Run again what failed in a run that ended, and what follows it. Steps that succeeded stay as they are."""
    embedded = Embedded(existing(workspace), load_profile(profile))
    embedded.engine.retry(run)
    raise typer.Exit(embedded.drive(run))

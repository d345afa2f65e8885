"""`posttrain stop, resume, retry`: orders to a run, on this machine or on a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from posttrain.argo.status import ended_services
from posttrain.cli.options import DEFAULT_WORKSPACE, ProfileName, RunName, Workspace
from posttrain.cli.places import Namespace, On, OnOption, place
from posttrain.errors import UserError

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def stop(
    run: RunName,
    now: Annotated[bool, typer.Option("--now", help="Do not even run the exit handler.")] = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
    on: OnOption = On.local,
    namespace: Namespace = None,
) -> None:
    """Stop a run. What runs is ended, nothing new starts, and the exit handler writes its report."""
    place(on, workspace, namespace).stop(run, now=now)


@app.command()
def resume(
    run: RunName,
    profile: ProfileName = "laptop",
    workspace: Workspace = DEFAULT_WORKSPACE,
    on: OnOption = On.local,
    namespace: Namespace = None,
) -> None:
    """Go on with a run: with one that waits for an approval, and on this machine with one whose engine was
    interrupted or killed. Steps that ended do not run again. Follows it to the end."""
    raise typer.Exit(place(on, workspace, namespace, profile).resume(run))


@app.command()
def retry(
    run: RunName,
    restart_successful: Annotated[
        bool, typer.Option("--restart-successful", help="Run steps that succeeded again, too: those of the selector.")
    ] = False,
    selector: Annotated[
        str,
        typer.Option("--node-field-selector", metavar="FIELD=VALUE", help="Which: displayName=sft, say; `,` is and."),
    ] = "",
    profile: ProfileName = "laptop",
    workspace: Workspace = DEFAULT_WORKSPACE,
    on: OnOption = On.local,
    namespace: Namespace = None,
) -> None:
    """Run again what failed in a run that ended, and what follows it. Steps that succeeded stay as they are, except
    a service that what failed had waited for and, with --restart-successful, those that the selector names, with what
    follows them."""
    if restart_successful != bool(selector):
        raise UserError("go together", field="--restart-successful and --node-field-selector", remedy="give both")
    where = place(on, workspace, namespace, profile)
    if not selector and (services := ended_services(where.get(run))):
        if len(services) > 1:  # a selector names one, or all of a kind
            raise UserError(
                f"{', '.join(services)} ended with the run, and what failed needs them", field="--node-field-selector",
                remedy="give one that names them, as templateName=serve, and --restart-successful",
            )  # fmt: skip
        typer.echo(f"{services[0]} ended with the run: it starts again, too", err=True)
        selector = f"displayName={services[0]}"
    raise typer.Exit(where.retry(run, selector))

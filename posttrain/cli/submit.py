"""`posttrain submit`: a route or a manifest to a cluster, through the Argo server or kubectl."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from posttrain.argo import Cluster, connect, wait
from posttrain.cli.checks import is_manifest, read_manifest
from posttrain.cli.define import resolved
from posttrain.cli.follow import Follower, outcome
from posttrain.cli.options import Files, Name, Overrides, Preset, ProfileName, Set
from posttrain.errors import UserError

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def submit(
    what: Annotated[str, typer.Argument(metavar="ROUTE|FILE", help="A route, or the path of a manifest; - is stdin.")],
    overrides: Overrides = None,
    profile: ProfileName = "cluster",
    preset: Preset = None,
    file: Files = None,
    set_: Set = None,
    name: Name = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Default: ARGO_NAMESPACE, or default.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow it until it ends; the exit code says how.")] = False,
) -> None:
    """Submit to the Argo server that ARGO_SERVER names (ARGO_TOKEN, ARGO_NAMESPACE, ARGO_SECURE and
    ARGO_INSECURE_SKIP_VERIFY are honoured), or through `kubectl create` where it is not set."""
    if is_manifest(what):
        if overrides or set_ or preset or file:
            raise UserError("a manifest takes no configuration", field="FILE", value=what, remedy="submit a ROUTE")
        manifest = read_manifest(what).document
    else:
        manifest = resolved(what, profile, preset, file, overrides, set_).render(name)
    cluster = connect(namespace=namespace)
    cluster.lint(manifest)
    made = cluster.create(manifest)
    created = made["metadata"]["name"]
    typer.echo(f"submitted {manifest['kind']} {created} to {cluster.where}")
    if watch and manifest["kind"] == "Workflow":
        raise typer.Exit(_follow(cluster, created))


def _follow(cluster: Cluster, name: str) -> int:
    follower = Follower(name, None)
    last: dict[str, Any] = {}
    with follower.drawing():
        for last in wait(cluster, name):
            follower.show(last)
    return outcome(last, name)

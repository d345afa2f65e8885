"""`posttrain submit`: a route or a manifest to a cluster, through the Argo server or kubectl."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from posttrain.argo import Absent, Cluster
from posttrain.cli.checks import is_manifest, read_manifest
from posttrain.cli.define import resolved
from posttrain.cli.options import Files, Name, Overrides, Preset, ProfileName, Set
from posttrain.cli.places import Namespace, Remote
from posttrain.errors import UserError

app = typer.Typer(pretty_exceptions_enable=False)
JSON = dict[str, Any]


@app.command()
def submit(
    what: Annotated[str, typer.Argument(metavar="ROUTE|FILE", help="A route, or the path of a manifest; - is stdin.")],
    overrides: Overrides = None,
    profile: ProfileName = "cluster",
    preset: Preset = None,
    file: Files = None,
    set_: Set = None,
    name: Name = None,
    namespace: Namespace = None,
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
    remote = Remote(namespace)
    remote.cluster.lint(manifest)
    name, said = _put(remote.cluster, manifest)
    typer.echo(f"{said} {manifest['kind']} {name} to {remote.cluster.where}")
    if watch and manifest["kind"] == "Workflow":
        raise typer.Exit(remote.watch(name))


def _put(cluster: Cluster, manifest: JSON) -> tuple[str, str]:
    """The object's name, and what was done. A schedule or a template takes the place of the one of its name."""
    kind = manifest["kind"]
    if kind != "Workflow":
        try:
            cluster.get(manifest["metadata"]["name"], kind)
        except Absent:
            pass
        else:
            return cluster.replace(manifest)["metadata"]["name"], "submitted anew"
    return cluster.create(manifest)["metadata"]["name"], "submitted"

"""`posttrain submit`: a route or a manifest to a cluster, through the Argo server or kubectl."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from posttrain.argo import Absent, Cluster
from posttrain.cli.checks import is_manifest, parameters_of, read_manifest
from posttrain.cli.define import resolved
from posttrain.cli.options import Files, Name, Overrides, Preset, ProfileName, Set
from posttrain.cli.places import Namespace, Remote
from posttrain.engine.objects import with_parameters
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
    ARGO_INSECURE_SKIP_VERIFY are honoured), or through `kubectl create` where it is not set. Of a manifest, KEY=VALUE
    sets a workflow parameter."""
    if is_manifest(what):
        if preset or file:
            raise UserError("belongs to a route", field="--preset and --file", remedy="give KEY=VALUE parameters")
        read = read_manifest(what)
        manifest = _laid_over(read.document, parameters_of(read, [*(overrides or []), *(set_ or [])]), name)
    else:
        manifest = resolved(what, profile, preset, file, overrides, set_).render(name)
    remote = Remote(namespace)
    remote.cluster.lint(manifest)
    name, said = _put(remote.cluster, manifest)
    typer.echo(f"{said} {manifest['kind']} {name} to {remote.cluster.where}")
    if watch and manifest["kind"] == "Workflow":
        raise typer.Exit(remote.watch(name))


def _laid_over(document: JSON, parameters: dict[str, str], name: str | None) -> JSON:
    """The manifest with values for its parameters, and under a name that was chosen for it."""
    metadata, spec = document["metadata"], document["spec"]
    if name:
        metadata = {key: value for key, value in metadata.items() if key != "generateName"} | {"name": name}
    if "workflowSpec" in spec:
        spec = spec | {"workflowSpec": _given(spec["workflowSpec"], parameters)}
    else:
        spec = _given(spec, parameters)
    return document | {"metadata": metadata, "spec": spec}


def _given(spec: JSON, parameters: dict[str, str]) -> JSON:
    return spec | {"arguments": with_parameters(spec.get("arguments") or {}, parameters)} if parameters else spec


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

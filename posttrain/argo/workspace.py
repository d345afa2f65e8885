"""What a run left on the cluster's claim, brought here: records, curves, summaries; no data, no weights.

Nothing outside a cluster can read a claim, so a pod like the run's own writes the files to its log as
an archive. It needs no right beside those of a submitter.
"""

from __future__ import annotations

import base64
import binascii
import io
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from posttrain.argo.cluster import Cluster
from posttrain.argo.logs import read_logs
from posttrain.argo.wait import wait
from posttrain.errors import UserError

JSON = dict[str, Any]

LARGEST = "8192k"  # of a file that is brought; a curve of a million points is larger
_BEGIN, _END = "-----BEGIN FILES-----", "-----END FILES-----"
_SCRIPT = f"""cd "$1"; shift
files=$(mktemp)
find "$@" -type f '(' -name '*.json' -o -name '*.jsonl' ')' -size -{LARGEST} > "$files" || exit
echo; echo {_BEGIN}; tar -czf - -T "$files" | base64; echo {_END}"""


@contextmanager
def fetched(cluster: Cluster, workflow: JSON, directories: Iterable[str]) -> Iterator[Path]:
    """A directory that holds, for a while, the small files of `directories` in the workspace of `workflow`.

    Raises UserError where the pod that reads them fails.
    """
    reader = reading(workflow, list(directories))
    name = cluster.create(reader)["metadata"]["name"]
    try:
        *_, last = wait(cluster, name, every=1.0)
        lines = [line for _, line in read_logs(cluster, last, lambda _: True)]
    finally:
        cluster.delete(name)
    if last["status"]["phase"] != "Succeeded":
        said = next((line for line in reversed(lines) if line.strip()), last["status"].get("message", ""))
        raise UserError(f"the workspace could not be read: {said}", field=cluster.where)
    with TemporaryDirectory(prefix="posttrain-") as directory:
        _unpack(lines, Path(directory))
        yield Path(directory)


def reading(workflow: JSON, directories: list[str]) -> JSON:
    """The manifest of the workflow that writes them to its log; image, volumes and user are the run's. Pure."""
    spec = workflow["spec"]
    step = next((t for t in spec.get("templates", []) if "--workspace" in t.get("container", {}).get("args", [])), None)
    if step is None:
        raise UserError(
            "has no step of posttrain, and so no workspace", field="RUN", value=workflow["metadata"]["name"]
        )
    container, arguments = step["container"], step["container"]["args"]
    kept = ("image", "imagePullPolicy", "securityContext", "volumeMounts")
    shared = ("volumes", "securityContext", "serviceAccountName", "imagePullSecrets")
    command = ["sh", "-c", _SCRIPT, "sh", arguments[arguments.index("--workspace") + 1], *directories]
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"generateName": "posttrain-read-", "labels": {"app.kubernetes.io/part-of": "posttrain"}},
        "spec": {key: spec[key] for key in shared if key in spec}
        | {
            "entrypoint": "read",
            "activeDeadlineSeconds": 600,
            "templates": [
                {
                    "name": "read",
                    "container": {key: container[key] for key in kept if key in container} | {"command": command},
                }
            ],
        },
    }


def _unpack(lines: list[str], directory: Path) -> None:
    try:
        start = lines.index(_BEGIN)
        packed = base64.b64decode("".join(lines[start + 1 : lines.index(_END, start)]))
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
            archive.extractall(directory, filter="data")
    except (ValueError, binascii.Error, tarfile.TarError) as problem:
        raise UserError(f"what the pod wrote is no archive: {problem}", field="log") from None

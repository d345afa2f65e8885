"""Artifacts between pods: archives, directories, the engine's store, S3, and what must be refused."""

from __future__ import annotations

import io
import socket
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from posttrain.engine import artifacts
from posttrain.engine.artifacts import ArtifactError
from posttrain.engine.podspec import PodStatus
from tests.engine.pods.conftest import Pods, files, parameter

MAKE_TREE = "mkdir -p /tmp/tree/deep/er; echo top > /tmp/tree/a; echo low > /tmp/tree/deep/er/b; : > /tmp/tree/empty"
READ_TREE = 'echo "$(cat /in/tree/a) $(cat /in/tree/deep/er/b) $(test -f /in/tree/empty && echo yes)" > /tmp/line'


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def kept(status: PodStatus, name: str) -> dict:
    assert status.phase == "Succeeded", status
    return next(a for a in status.outputs["artifacts"] if a["name"] == name)


@pytest.mark.parametrize("archive", [None, {"tar": {"compressionLevel": 0}}, {"none": {}}, {"zip": {}}])
def test_a_directory_goes_from_pod_to_pod(pods: Pods, store: str, archive: dict | None) -> None:
    declared = {"name": "tree", "path": "/tmp/tree", **({"archive": archive} if archive else {})}
    made = pods.sh(MAKE_TREE, outputs={"artifacts": [declared]}, store=store, artifact_prefix="run/pod")
    artifact = kept(made, "tree")
    assert artifact["s3"]["key"].startswith("run/pod/tree")
    read = pods.sh(READ_TREE, inputs=[{**artifact, "path": "/in/tree"}], outputs=files(line="/tmp/line"), store=store)
    assert parameter(read, "line") == "top low yes"


@pytest.mark.parametrize("archive", [None, {"none": {}}, {"zip": {}}])
def test_a_file_goes_from_pod_to_pod(pods: Pods, store: str, archive: dict | None) -> None:
    declared = {"name": "letter", "path": "/out/letter", **({"archive": archive} if archive else {})}
    made = pods.sh("echo dear reader > /out/letter", outputs={"artifacts": [declared]}, store=store)
    read = pods.sh(
        "cat /in/post > /tmp/line",
        inputs=[{**kept(made, "letter"), "path": "/in/post"}],
        store=store,
        outputs=files(line="/tmp/line"),
    )
    assert parameter(read, "line") == "dear reader"


def test_a_failing_pod_keeps_its_artifacts(pods: Pods, store: str) -> None:
    status = pods.sh(
        "echo last words > /tmp/trace; exit 3",
        outputs={"artifacts": [{"name": "trace", "path": "/tmp/trace"}]},
        store=store,
    )
    assert status.phase == "Failed" and [a["name"] for a in status.outputs["artifacts"]] == ["trace"]


def test_a_promised_artifact_that_is_missing(pods: Pods, store: str) -> None:
    promised = {"name": "promised", "path": "/tmp/promised"}
    status = pods.sh("true", outputs={"artifacts": [promised]}, store=store)
    assert (status.phase, status.outputs) == ("Error", {"exitCode": "0"})
    assert (
        status.message
        == "wait: Error (exit code 64): artifact promised failed to save: open /tmp/promised: no such file or directory"
    )
    optional = pods.sh("true", outputs={"artifacts": [{**promised, "optional": True}]}, store=store)
    assert (optional.phase, optional.outputs) == ("Succeeded", {"exitCode": "0"})


def test_inputs_that_are_missing(pods: Pods, store: str) -> None:
    absent = {"name": "letter", "path": "/tmp/in", "s3": {"key": "not/there"}}
    status = pods.sh("true", inputs=[absent], store=store)
    assert status.phase == "Error" and "exitCode" not in status.outputs
    assert (
        status.message
        == "init: Error (exit code 64): artifact letter failed to load: The specified key does not exist."
    )
    assert (
        pods.sh("! test -e /tmp/in", inputs=[{"name": "letter", "path": "/tmp/in", "optional": True}]).phase
        == "Succeeded"
    )


def test_raw_with_mode(pods: Pods) -> None:
    tool = {"name": "tool", "path": "/opt/tool", "mode": 0o700, "raw": {"data": "#!/bin/sh\necho tool says $1\n"}}
    text = {"name": "text", "path": "/opt/text", "raw": {"data": "ünï"}}
    script = 'test -x /opt/text && kind=tool || kind=plain; echo "$(/opt/tool hi), $(cat /opt/text), $kind" > /tmp/line'
    assert (
        parameter(pods.sh(script, inputs=[tool, text], outputs=files(line="/tmp/line")), "line")
        == "tool says hi, ünï, plain"
    )


def test_artifacts_on_a_mounted_volume(pods: Pods, store: str, tmp_path: Path) -> None:
    (tmp_path / "desk").mkdir()
    before = {"name": "before", "path": "/desk/before", "raw": {"data": "one"}}
    fields = {
        "main": {"volumeMounts": [{"name": "desk", "mountPath": "/desk"}]},
        "volumes": {"desk": str(tmp_path / "desk")},
        "outputs": {"artifacts": [{"name": "after", "path": "/desk/after"}]},
        "store": store,
    }
    once = pods.sh('echo "$(cat /desk/before)+1" > /desk/after', inputs=[before], **fields)
    again = {**kept(once, "after"), "path": "/desk/before"}
    assert pods.sh('echo "$(cat /desk/before)+1" > /desk/after', inputs=[again], **fields).phase == "Succeeded"
    assert (tmp_path / "desk/after").read_text() == "one+1+1\n"


def test_an_archive_cannot_write_outside_its_place(tmp_path: Path) -> None:
    for number, entry in enumerate(["../escaped", "/tmp/posttrain-escaped", "link/escaped"]):
        store = tmp_path / f"store-{number}"
        store.mkdir()
        with tarfile.open(store / "evil.tgz", "w:gz") as archive:
            if entry.startswith("link"):
                link = tarfile.TarInfo("link")
                link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
                archive.addfile(link)
            info = tarfile.TarInfo(entry)
            info.size = 4
            archive.addfile(info, io.BytesIO(b"evil"))
        place = tmp_path / f"place-{number}" / "in"
        try:
            artifacts.fetch({"name": "x", "s3": {"key": "evil.tgz"}}, str(place), store=str(store))
        except ArtifactError as problem:
            assert "cannot be unpacked" in str(problem) and not place.exists()
        assert not (tmp_path / "escaped").exists() and not Path("/tmp/posttrain-escaped").exists()


@pytest.mark.parametrize("key", ["../outside", "a/../../outside", "/../outside", ".", ""])
def test_a_key_cannot_lead_out_of_the_store(tmp_path: Path, key: str) -> None:
    (tmp_path / "outside").write_text("secret")
    store = str(tmp_path / "store")
    for act in (
        lambda a: artifacts.fetch(a, str(tmp_path / "in"), store=store),
        lambda a: artifacts.delete(a, store=store),
    ):
        with pytest.raises(ArtifactError, match="leads out"):
            act({"name": "x", "s3": {"key": key}})
    assert (tmp_path / "outside").read_text() == "secret"


def test_delete_and_sub_path(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    source = tmp_path / "tree"
    (source / "deep").mkdir(parents=True)
    (source / "deep/b").write_text("low")
    kept = artifacts.save(str(source), {"name": "tree", "path": "/t", "archive": {"none": {}}}, store=store, prefix="p")
    artifacts.fetch({**kept, "subPath": "deep/b"}, str(tmp_path / "b"), store=store)
    assert (tmp_path / "b").read_text() == "low"
    artifacts.delete(kept, store=store)
    artifacts.delete(kept, store=store)
    with pytest.raises(ArtifactError, match="does not exist"):
        artifacts.fetch(kept, str(tmp_path / "again"), store=store)


def test_saving_again_replaces_what_stood_there(tmp_path: Path) -> None:
    store, source = str(tmp_path / "store"), tmp_path / "file"
    for text in ("one", "two"):
        source.write_text(text)
        kept = artifacts.save(str(source), {"name": "f", "path": "/f"}, store=store, prefix="p")
    artifacts.fetch(kept, str(tmp_path / "in"), store=store)
    assert (tmp_path / "in").read_text() == "two"
    assert sorted(p.name for p in (tmp_path / "store" / "p").iterdir()) == ["f.tgz"]


def test_s3(pods: Pods, s3: dict) -> None:
    prefix = f"{pods.driver}/parts"
    for colour in ("red", "blue"):
        location = {**s3, "key": f"{prefix}/{colour}"}
        declared = {"name": "part", "path": "/tmp/part", "archive": {"none": {}}, "s3": location}
        part = kept(pods.sh(f"echo is {colour} > /tmp/part", outputs={"artifacts": [declared]}), "part")
        assert part["s3"] == {
            "endpoint": s3["endpoint"],
            "insecure": True,
            "bucket": "kept",
            "key": f"{prefix}/{colour}",
        }
    whole = {"name": "parts", "path": "/in/parts", "s3": {**s3, "key": prefix}}
    read = pods.sh(
        'echo "$(cat /in/parts/red), $(cat /in/parts/blue)" > /tmp/line',
        inputs=[whole],
        outputs=files(line="/tmp/line"),
    )
    assert parameter(read, "line") == "is red, is blue"

    tree = {"name": "tree", "path": "/tmp/tree", "s3": {**s3, "key": f"{pods.driver}/tree.tgz"}}
    assert kept(pods.sh(MAKE_TREE, outputs={"artifacts": [tree]}), "tree")["s3"]["key"] == f"{pods.driver}/tree.tgz"
    again = pods.sh(READ_TREE, inputs=[{**tree, "path": "/in/tree"}], outputs=files(line="/tmp/line"))
    assert parameter(again, "line") == "top low yes"

    artifacts.delete(tree)
    gone = pods.sh("true", inputs=[{**tree, "path": "/in/tree"}])
    assert gone.message == "init: Error (exit code 64): artifact tree failed to load: The specified key does not exist."


def test_an_s3_server_that_is_not_there_is_one_line(pods: Pods) -> None:
    with closing(socket.socket()) as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        location = {
            "endpoint": address,
            "insecure": True,
            "bucket": "b",
            "key": "k",
            "accessKey": "a",
            "secretKey": "hush",
        }
        status = pods.sh("true", inputs=[{"name": "x", "path": "/in/x", "s3": location}])
    assert status.phase == "Error" and address in status.message and "hush" not in status.message

"""Artifacts: files and directories kept between pods, in the engine's own store, in S3, or written out raw.

A location is an Argo artifact with one of these keys:

    raw: {data}                                 the content itself
    store: KEY                                  a path in the engine's own store, a directory
    s3: {bucket, key, endpoint, insecure, region, accessKey, secretKey, sessionToken}
                                                the keys may be left out: boto3 then looks where it always does

Invariants: an object stands under its key only when it is whole; no key leads out of the store; an
archive from elsewhere cannot write outside its destination; credentials are in no result.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

JSON = dict[str, Any]
_ENDINGS = {"tar": ".tgz", "zip": ".zip", "none": ""}
CREDENTIALS = ("accessKey", "secretKey", "sessionToken")


class ArtifactError(Exception):
    """One line that says why an artifact could not be kept or fetched."""


def save(source: str, artifact: JSON, *, store: str | None = None, prefix: str = "") -> JSON:
    """Keep the file or directory `source`; returns the artifact as an output carries it, with its location.

    Without a location of its own the artifact goes to the store as `prefix/NAME`, with the archive's ending.
    """
    form = _archive(artifact)
    location = {key: artifact[key] for key in ("s3", "store") if artifact.get(key)}
    if not location:
        location = {
            "store": posixpath.join(prefix, artifact["name"] + {"tar": ".tgz", "zip": ".zip", "none": ""}[form])
        }
    with tempfile.TemporaryDirectory(prefix="artifact-", dir=_scratch(source, store)) as scratch:
        packed = _pack(source, form, Path(scratch), artifact)
        if "s3" in location:
            _upload(location["s3"], packed)
        else:
            _keep(_in_store(store, location["store"]), packed)
    kept = {k: v for k, v in artifact.items() if k not in ("s3", "store", "from", "fromExpression", "optional")}
    return {**kept, **without_credentials(location)}


def fetch(artifact: JSON, destination: str, *, store: str | None = None) -> None:
    """Put the artifact at `destination`, unpacked as its `archive` says (found out where it says nothing).

    Raises ArtifactError where nothing stands under its key. `subPath` is looked for below the key.
    """
    target = Path(destination)
    target.parent.mkdir(parents=True, exist_ok=True)
    if "raw" in artifact:
        target.write_text(artifact["raw"].get("data", ""), encoding="utf-8")
    else:
        with tempfile.TemporaryDirectory(prefix=".artifact-", dir=target.parent) as scratch:
            _unpack(_bring(artifact, Path(scratch), store), target, artifact, Path(scratch))
    if artifact.get("mode") is not None:
        _set_mode(target, int(artifact["mode"]), recurse=bool(artifact.get("recurseMode")))


def delete(artifact: JSON, *, store: str | None = None) -> None:
    """Remove what stands under the artifact's key; nothing happens where nothing does."""
    if "s3" in artifact:
        client, bucket = _s3(artifact["s3"]), artifact["s3"]["bucket"]
        for key in [artifact["s3"]["key"], *_keys_below(client, bucket, artifact["s3"]["key"])]:
            client.delete_object(Bucket=bucket, Key=key)
    elif "store" in artifact:
        path = _in_store(store, artifact["store"])
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def without_credentials(location: JSON) -> JSON:
    """The location as it may be shown."""
    if "s3" not in location:
        return location
    return {**location, "s3": {k: v for k, v in location["s3"].items() if k not in CREDENTIALS}}


def _archive(artifact: JSON) -> str:
    given = artifact.get("archive") or {}
    return next((form for form in ("none", "zip", "tar") if form in given), "tar")


def _pack(source: str, form: str, scratch: Path, artifact: JSON) -> Path:
    name = os.path.basename(source)
    if form == "none":
        return Path(source)
    packed = scratch / "packed"
    if form == "zip":
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
            for path in [Path(source), *sorted(Path(source).rglob("*"))]:
                out.write(path, posixpath.join(name, path.relative_to(source).as_posix()).rstrip("./") or name)
        return packed
    level = ((artifact.get("archive") or {}).get("tar") or {}).get("compressionLevel")
    if level == 0:
        with tarfile.open(packed, "w") as out:
            out.add(source, arcname=name)
    else:
        with tarfile.open(packed, "w:gz", compresslevel=6 if level in (None, -1) else level) as out:
            out.add(source, arcname=name)
    return packed


def _unpack(brought: Path, target: Path, artifact: JSON, scratch: Path) -> None:
    given = artifact.get("archive") or {}
    form = "none" if brought.is_dir() else next((f for f in ("none", "zip", "tar") if f in given), _guess(brought))
    if form == "none":
        _put(brought, target)
        return
    inside = scratch / "inside"
    inside.mkdir()
    try:
        if form == "zip":
            with zipfile.ZipFile(brought) as archive:
                archive.extractall(inside)  # drops drive letters, `..` and leading slashes by itself
        else:
            with tarfile.open(brought) as archive:
                archive.extractall(inside, filter="data")
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as problem:
        raise ArtifactError(f"cannot be unpacked: {problem}") from None
    entries = list(inside.iterdir())
    _put(entries[0] if len(entries) == 1 else inside, target)


def _guess(path: Path) -> str:
    if tarfile.is_tarfile(path):
        return "tar"
    return "zip" if zipfile.is_zipfile(path) else "none"


def _put(source: Path, target: Path) -> None:
    """Move `source` to `target`; a directory that already stands there (a mount, say) is filled."""
    if target.is_dir() and source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    else:
        if target.is_dir():
            raise ArtifactError(f"{target.name} is a directory, the artifact a file")
        shutil.move(source, target)


def _bring(artifact: JSON, scratch: Path, store: str | None) -> Path:
    """A copy of the object under the artifact's key, in `scratch`."""
    copy = scratch / "brought"
    if "store" in artifact:
        kept = _in_store(store, posixpath.join(artifact["store"], artifact.get("subPath") or ""))
        if not kept.exists():
            raise ArtifactError("The specified key does not exist.")
        shutil.copytree(kept, copy, symlinks=True) if kept.is_dir() else shutil.copy2(kept, copy)
    elif "s3" in artifact:
        location = artifact["s3"]
        _download(location | {"key": posixpath.join(location["key"], artifact.get("subPath") or "").rstrip("/")}, copy)
    else:
        raise ArtifactError("has no location that the engine carries (raw, s3)")
    return copy


def _keep(final: Path, packed: Path) -> None:
    final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".keep-", dir=final.parent) as beside:
        copy = Path(beside) / "it"
        shutil.copytree(packed, copy, symlinks=True) if packed.is_dir() else shutil.copy2(packed, copy)
        if final.is_dir():
            shutil.rmtree(final)
        os.replace(copy, final)


def _in_store(store: str | None, key: str) -> Path:
    if store is None:
        raise ArtifactError("there is no artifact store")
    path = Path(os.path.normpath(os.path.join(store, key.lstrip("/"))))
    if Path(store) not in path.parents:
        raise ArtifactError(f"key {key!r} leads out of the artifact store")
    return path


def _scratch(source: str, store: str | None) -> str:
    """Where an archive is packed: on the disk that it will stay on, where there is one."""
    if store is None:
        return os.path.dirname(source)
    os.makedirs(store, exist_ok=True)
    return store


def _set_mode(path: Path, mode: int, *, recurse: bool) -> None:
    path.chmod(mode)
    for below in path.rglob("*") if recurse and path.is_dir() else ():
        below.chmod(mode)


def _s3(location: JSON):
    import boto3  # 0.3 s, wanted by few pods
    from botocore.config import Config

    scheme = "http" if location.get("insecure") else "https"
    endpoint = location.get("endpoint")
    return boto3.client(
        "s3",
        endpoint_url=endpoint if not endpoint or "://" in endpoint else f"{scheme}://{endpoint}",
        region_name=location.get("region") or "us-east-1",
        aws_access_key_id=location.get("accessKey"),
        aws_secret_access_key=location.get("secretKey"),
        aws_session_token=location.get("sessionToken"),
        config=Config(s3={"addressing_style": "path" if endpoint else "auto"}, retries={"max_attempts": 5}),
    )


def _upload(location: JSON, packed: Path) -> None:
    client, bucket, key = _s3(location), location["bucket"], location["key"]
    files = {packed: key} if packed.is_file() else {p: _below(key, packed, p) for p in packed.rglob("*") if p.is_file()}
    with _in_one_line():
        for path, name in files.items():
            client.upload_file(str(path), bucket, name)


def _download(location: JSON, copy: Path) -> None:
    client, bucket, key = _s3(location), location["bucket"], location["key"]
    with _in_one_line():
        below = list(_keys_below(client, bucket, key))
        if not below:
            client.download_file(bucket, key, str(copy))
        for name in below:
            path = Path(os.path.normpath(copy / name[len(key.rstrip("/")) + 1 :]))
            if copy not in path.parents:
                raise ArtifactError(f"key {name!r} leads out of the artifact")
            path.parent.mkdir(parents=True, exist_ok=True)
            client.download_file(bucket, name, str(path))


def _keys_below(client: Any, bucket: str, key: str) -> Iterator[str]:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key.rstrip("/") + "/")
    return (item["Key"] for page in pages for item in page.get("Contents", []) if not item["Key"].endswith("/"))


def _below(key: str, root: Path, path: Path) -> str:
    return posixpath.join(key, path.relative_to(root).as_posix())


@contextmanager
def _in_one_line() -> Iterator[None]:
    """Turns what boto3 raises into an ArtifactError."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as problem:
        code = problem.response.get("Error", {}).get("Code", "")
        missing = code in ("404", "NoSuchKey")
        raise ArtifactError("The specified key does not exist." if missing else f"S3 says {code}: {problem}") from None
    except (Boto3Error, BotoCoreError) as problem:
        raise ArtifactError(str(problem)) from None

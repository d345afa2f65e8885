"""Objects in S3 by boto3, which is loaded by the few pods that need it (0.3 s).

A location is {bucket, key, endpoint, insecure, region, accessKey, secretKey, sessionToken}; boto3 looks
for credentials where it always does when none are given. A key with objects below it is a directory.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from posttrain.engine.archives import ArtifactError

JSON = dict[str, Any]
CREDENTIALS = ("accessKey", "secretKey", "sessionToken")
MISSING = "The specified key does not exist."


def upload(location: JSON, source: Path) -> None:
    """Put a file under the key, or the files of a directory below it."""
    client, bucket, key = _client(location), location["bucket"], location["key"]
    files = {source: key} if source.is_file() else {p: _below(key, source, p) for p in source.rglob("*") if p.is_file()}
    with _in_one_line():
        for path, name in files.items():
            client.upload_file(str(path), bucket, name)


def download(location: JSON, target: Path) -> None:
    """Fetch the object, or the directory, to `target`. Raises ArtifactError where there is neither."""
    client, bucket, key = _client(location), location["bucket"], location["key"]
    with _in_one_line():
        below = list(_keys_below(client, bucket, key))
        if not below:
            client.download_file(bucket, key, str(target))
        for name in below:
            path = Path(os.path.normpath(target / name[len(key.rstrip("/")) + 1 :]))
            if target not in path.parents:
                raise ArtifactError(f"key {name!r} leads out of the artifact")
            path.parent.mkdir(parents=True, exist_ok=True)
            client.download_file(bucket, name, str(path))


def delete(location: JSON) -> None:
    client, bucket, key = _client(location), location["bucket"], location["key"]
    with _in_one_line():
        for name in [key, *_keys_below(client, bucket, key)]:
            client.delete_object(Bucket=bucket, Key=name)


def _client(location: JSON):
    import boto3
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
        raise ArtifactError(MISSING if missing else f"S3 says {code}: {problem}") from None
    except (Boto3Error, BotoCoreError) as problem:
        raise ArtifactError(str(problem)) from None

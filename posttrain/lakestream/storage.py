"""Where a stream is: a local directory, or S3 with the options that Lance's store wants.

Options come from the caller, else from the usual AWS variables. They hold secrets: never logged or shown.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from posttrain.lakestream.errors import StreamError

# A request that hangs must end well before the deadline of an append, which then tries again itself.
_PATIENCE = {"timeout": "60s", "connect_timeout": "5s", "client_max_retries": "3", "client_retry_timeout": "20"}
_VARIABLES = {
    "AWS_ACCESS_KEY_ID": "aws_access_key_id",
    "AWS_SECRET_ACCESS_KEY": "aws_secret_access_key",
    "AWS_SESSION_TOKEN": "aws_session_token",
    "AWS_REGION": "aws_region",
    "AWS_DEFAULT_REGION": "aws_region",
    "AWS_ENDPOINT_URL": "aws_endpoint",
    "AWS_ENDPOINT": "aws_endpoint",
    "AWS_ENDPOINT_URL_S3": "aws_endpoint",
}


def is_remote(uri: str) -> bool:
    return "://" in uri and not uri.startswith("file://")


def normalise(uri: str | Path) -> str:
    """The URI as it is opened: local paths absolute, no slash at the end. UserError for what Lance cannot hold."""
    text = str(uri)
    if not text.strip():
        raise StreamError("is empty", field="uri", remedy="give a directory or s3://BUCKET/PATH")
    if is_remote(text):
        scheme = text.split("://", 1)[0]
        if scheme != "s3":
            raise StreamError(
                "has a scheme that is not supported", field="uri", value=text, remedy="use s3:// or a path"
            )
        return text.rstrip("/")
    return str(Path(text.removeprefix("file://")).absolute())


def options(uri: str, given: Mapping[str, str] | None, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Lance's storage options for `uri`: those given, else those of the environment; none for a directory."""
    if not is_remote(uri):
        return {}
    if given is not None:
        found = {key.lower(): str(value) for key, value in given.items()}
    else:
        found = {option: environment[name] for name, option in _VARIABLES.items() if environment.get(name)}
    endpoint = found.get("aws_endpoint") or found.get("endpoint")
    if endpoint:
        found.setdefault("aws_region", "us-east-1")
        found.setdefault("aws_virtual_hosted_style_request", "false")
        if endpoint.startswith("http://"):
            found.setdefault("allow_http", "true")
    return _PATIENCE | found


def name_of(uri: str) -> str:
    """The stream's name in metrics and events: the last part of the URI."""
    return uri.rstrip("/").rsplit("/", 1)[-1].removesuffix(".lance")

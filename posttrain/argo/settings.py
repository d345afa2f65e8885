"""Where the Argo server is, from the variables that the `argo` command reads too.

ARGO_SERVER                    host:port; a scheme and a path are understood as well
ARGO_TOKEN                     `Bearer …`, or the bare token
ARGO_NAMESPACE                 default: default
ARGO_SECURE                    true (https, the default) or false (http)
ARGO_INSECURE_SKIP_VERIFY      true: take any certificate
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from posttrain.errors import UserError

DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True)
class Settings:
    """`server` is a URL, or None where only kubectl is left. The token never appears in a repr."""

    server: str | None
    namespace: str
    token: str | None = field(default=None, repr=False)
    verify: bool = True


def read_settings(environment: Mapping[str, str], *, namespace: str | None = None) -> Settings:
    """The settings in `environment`. UserError for a switch that is neither true nor false."""
    server = environment.get("ARGO_SERVER", "").strip().rstrip("/") or None
    secure = _switch(environment, "ARGO_SECURE", default=True)
    if server and "://" not in server:
        server = f"{'https' if secure else 'http'}://{server}"
    return Settings(
        server=server,
        namespace=namespace or environment.get("ARGO_NAMESPACE") or DEFAULT_NAMESPACE,
        token=environment.get("ARGO_TOKEN") or None,
        verify=not _switch(environment, "ARGO_INSECURE_SKIP_VERIFY", default=False),
    )


def _switch(environment: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = environment.get(name, "").strip().lower()
    if not text:
        return default
    if text in ("true", "1", "t", "yes"):
        return True
    if text in ("false", "0", "f", "no"):
        return False
    raise UserError("is neither true nor false", field=name, value=text)

"""Where the Argo server is, from the variables that the `argo` command reads too.

ARGO_SERVER                    host:port; a scheme, a path and NAME:PASSWORD@ are understood as well
ARGO_TOKEN                     `Bearer …`, `Basic …`, or the bare token
ARGO_NAMESPACE                 default: default
ARGO_SECURE                    true (https, the default) or false (http)
ARGO_INSECURE_SKIP_VERIFY      true: take any certificate
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from posttrain.errors import UserError

DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True)
class Settings:
    """`server` is a URL that may be shown, or None where only kubectl is left; `authorization` is the header's value,
    which never appears in a repr."""

    server: str | None
    namespace: str
    authorization: str | None = field(default=None, repr=False)
    verify: bool = True

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": self.authorization} if self.authorization else {}


def read_settings(environment: Mapping[str, str], *, namespace: str | None = None) -> Settings:
    """The settings in `environment`. UserError for a switch that is neither true nor false, and for what is no address;
    what an address may hide is in no message."""
    given = environment.get("ARGO_SERVER", "").strip()
    scheme, _, rest = given.rpartition("://")
    login, _, address = rest.rpartition("@")  # whatever stands before the host is the login, odd letters and all
    address = address.rstrip("/")
    if "?" in address or "#" in address or (given and not address):
        raise UserError("is no address", field="ARGO_SERVER", remedy="write HOST:PORT, and a token into ARGO_TOKEN")
    secure = _switch(environment, "ARGO_SECURE", default=True)
    token = environment.get("ARGO_TOKEN", "").strip()
    if not (token.isascii() and token.isprintable()):  # the client would say so, and print it
        raise UserError("holds letters that no token has", field="ARGO_TOKEN")
    authorization = token if " " in token or not token else f"Bearer {token}"
    return Settings(
        server=f"{scheme or ('https' if secure else 'http')}://{address}" if address else None,
        namespace=namespace or environment.get("ARGO_NAMESPACE") or DEFAULT_NAMESPACE,
        authorization=authorization or _basic(login),
        verify=not _switch(environment, "ARGO_INSECURE_SKIP_VERIFY", default=False),
    )


def _basic(login: str) -> str | None:
    """HTTP's Basic authorization of NAME:PASSWORD as a URL holds it."""
    return f"Basic {b64encode(unquote(login).encode()).decode()}" if login else None


def _switch(environment: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = environment.get(name, "").strip().lower()
    if not text:
        return default
    if text in ("true", "1", "t", "yes"):
        return True
    if text in ("false", "0", "f", "no"):
        return False
    raise UserError("is neither true nor false", field=name, value=text)

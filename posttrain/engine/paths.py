"""Where a container's paths lie on the host. Pure but for looking at symlinks.

A container sees a root of its own: `root`, a directory of the pod, with the host's directories
read-only under it, and `mounts` (volumes, image roots) over both. Both drivers of `isolation.py`
use one `Layout`: bubblewrap makes it real, path mapping rewrites the paths in the texts that a
container is given. Outputs are read through the same `Layout`, so that they are found either way.
"""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass
from functools import cached_property

SCRIPT = "/argo/staging/script"
TERMINATION_LOG = "/dev/termination-log"
_LINKS = 40  # as many as the kernel follows before it says ELOOP


@dataclass(frozen=True)
class Mount:
    """`host` (a directory or file) is seen at `path`."""

    path: str
    host: str
    read_only: bool = False


@dataclass(frozen=True)
class Layout:
    """`declared` are the paths of artifacts and output parameters: places the container must be able to write to."""

    root: str
    mounts: tuple[Mount, ...] = ()
    declared: tuple[str, ...] = ()

    def mounted(self, path: str) -> Mount | None:
        """The mount that `path` lies in, the innermost one."""
        return next((m for m in self._innermost_first if path == m.path or path.startswith(m.path + "/")), None)

    def place(self, path: str) -> str:
        """The host path where the container's `path` is made: in a mount or in its own root."""
        mount = self.mounted(path)
        return self.root + path if mount is None else mount.host + path[len(mount.path) :]

    def find(self, path: str) -> str:
        """The host path of what the container sees at `path`, symlinks followed as the container follows them.

        Where nothing is there it is where a new file would be made. Raises OSError for a ring of symlinks.
        """
        done, parts, links = "", [p for p in posixpath.normpath(path).split("/") if p], 0
        while parts:
            step = f"{done}/{parts.pop(0)}"
            host = self._seen(step)
            if not os.path.islink(host) or self._is_mount(step):
                done = step
                continue
            links += 1
            if links > _LINKS:
                raise OSError(f"too many symbolic links in {path}")
            target = posixpath.normpath(posixpath.join(done or "/", os.readlink(host)))
            parts = [p for p in target.split("/") if p] + parts
            done = ""
        return self._seen(done or "/")

    def rewrite(self, text: str) -> str:
        """`text` with every path of a mount, of /tmp or /srv, or of a declared path replaced by its host path."""
        return self._pattern.sub(lambda found: self.place(found.group(0)), text)

    def _seen(self, path: str) -> str:
        place = self.place(path)
        return path if self.mounted(path) is None and not os.path.lexists(place) and os.path.lexists(path) else place

    def _is_mount(self, path: str) -> bool:
        return any(m.path == path for m in self.mounts)

    @cached_property
    def _innermost_first(self) -> list[Mount]:
        return sorted(self.mounts, key=lambda m: -len(m.path))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        own = ("/tmp", "/var/tmp", "/srv", SCRIPT, TERMINATION_LOG)
        paths = sorted({*own, *self.declared, *(m.path for m in self.mounts)}, key=lambda p: (-len(p), p))
        # A path begins where no other path or variable runs into it (`$DIR/tmp`, `a/tmp`) and ends at a whole name.
        return re.compile(r"(?<![\w.\-/})\]*?~])(?:" + "|".join(map(re.escape, paths)) + r")(?![\w.\-])")


def clean(path: str) -> str:
    """`path` absolute and without `.`, `..` or a slash at its end."""
    return posixpath.normpath(posixpath.join("/", path))

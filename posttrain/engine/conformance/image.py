"""What the cases' image holds, on this machine: the applets of a statically linked busybox."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from posttrain.errors import UserError

IMAGE = "conformance:1"


def busybox_image(directory: Path) -> dict[str, dict[str, str]]:
    """An image mapping for settings, made in `directory`. Raises UserError that says what is lacking."""
    busybox = shutil.which("busybox")
    if busybox is None:
        raise UserError(
            "there is no busybox", remedy="install one that is linked statically: apt install busybox-static"
        )
    applets = directory / "bin"
    applets.mkdir(parents=True, exist_ok=True)
    shutil.copy2(busybox, applets / "busybox")
    made = subprocess.run([applets / "busybox", "--install", "-s", applets], capture_output=True, text=True)
    if made.returncode or not (applets / "sh").is_symlink():
        raise UserError(f"busybox does not install its applets: {made.stderr.strip()}", field=busybox)
    for link in applets.iterdir():
        if link.is_symlink():  # wherever the directory is mounted
            link.unlink()
            link.symlink_to("busybox")
    return {IMAGE: {"/bin": str(applets)}}

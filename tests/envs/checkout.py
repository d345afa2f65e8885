"""A small checkout with the real envs/install and envs/run, whose environments hold wheels made here.

Nothing is fetched: uv looks in a folder of wheels only. The installed uv is shared with the environment that the
tests run in, where that was made by envs/install.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ["install", "run", "paths.sh", "tools.txt", "build.txt"]


class Checkout:
    def __init__(self, base: Path):
        self.base, self.root = base / "checkout", base / "environments"
        self.envs, self.wheels = self.base / "envs", base / "wheels"
        for directory in (self.envs / "site", self.root, self.wheels, self.base / "bin"):
            directory.mkdir(parents=True)
        for name in SCRIPTS:
            shutil.copy2(ROOT / "envs" / name, self.envs / name)
        (self.envs / "site" / "laid_beside.py").write_text("here = True\n")
        for name in ("control", "cpu", "dev", "train", "rollout", "torch-cuda"):
            (self.envs / f"{name}.txt").write_text("")
            (self.envs / f"{name}.in").write_text("")
        shutil.copy2(ROOT / "pixi.toml", self.base)
        shutil.copy2(ROOT / "pixi.lock", self.base)
        tools = Path(sys.prefix).parents[1] / "tools"
        if tools.is_dir():
            (self.root / "tools").symlink_to(tools)
        others = {k: v for k, v in os.environ.items() if not k.startswith(("POSTTRAIN_", "VLLM_", "HF_", "UV_"))}
        self.variables = others | {
            "POSTTRAIN_ENVS": str(self.root),
            "UV_CACHE_DIR": str(base / "cache"),
            "UV_FIND_LINKS": str(self.wheels),
            "UV_NO_INDEX": "1",
        }
        self.lock("control", {"probe": "1.0"})

    def lock(self, environment: str, packages: dict[str, str]) -> None:
        """Make a wheel of each package and lock the environment to them."""
        lines = [f"{name}=={version} --hash=sha256:{self.wheel(name, version)}" for name, version in packages.items()]
        (self.envs / f"{environment}.txt").write_text("\n".join(lines) + "\n")
        (self.envs / f"{environment}.in").write_text(f"# try: {', '.join(packages)}\n")

    def wheel(self, name: str, version: str, *, tag: str = "py3-none-any") -> str:
        """Make a wheel of one module; its digest."""
        path = self.wheels / f"{name}-{version}-{tag}.whl"
        info = f"{name}-{version}.dist-info"
        files = {
            f"{name}.py": f"version = {version!r}\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
        }
        with zipfile.ZipFile(path, "w") as wheel:
            record = ""
            for file, text in files.items():
                wheel.writestr(zipfile.ZipInfo(file), text)
                seen = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
                record += f"{file},sha256={seen},{len(text)}\n"
            wheel.writestr(zipfile.ZipInfo(f"{info}/RECORD"), record + f"{info}/RECORD,,\n")
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def start(self, script: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.envs / script, *arguments], env=self.variables | variables, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def call(self, script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        process = self.start(script, *arguments, **variables)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def where(self, environment: str = "control") -> Path:
        return Path(self.call("install", "--where", environment).stdout.strip())

"""torch in `cpu`: the build that pip finds, as long as it is locked; PyPI's needs its CUDA libraries beside it."""

from __future__ import annotations

import sys

import pytest

from tests.envs.checkout import Checkout

TAG = f"cp{sys.version_info.major}{sys.version_info.minor}-none-any"
PLAIN, CPU = "1.0", "1.0+cpu"


class Index:
    """Two builds of one version, of which pip prefers the CPU's; the lock may know either."""

    def __init__(self, checkout: Checkout):
        self.checkout = checkout
        self.hashes = {version: checkout.wheel("torch", version, tag=TAG) for version in (PLAIN, CPU)}
        self.page = checkout.base / "index.html"
        checkout.variables |= {"PIP_FIND_LINKS": str(self.page), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}
        checkout.lock("torch-cuda", {"cudart": "13.0"})
        (checkout.envs / "cpu.in").write_text("# try: probe, torch\n")

    def offer(self, *versions: str) -> None:
        links = [(self.checkout.wheels / f"torch-{v}-{TAG}.whl", self.hashes[v]) for v in versions]
        self.page.write_text(
            "".join(f'<a href="file://{path}#sha256={digest}">{path.name}</a>' for path, digest in links)
        )

    def lock(self, *versions: str) -> None:
        probe = self.checkout.wheel("probe", "1.0")
        hashes = "".join(f" \\\n    --hash=sha256:{self.hashes[v]}" for v in versions)
        text = f"# written\nprobe==1.0 \\\n    --hash=sha256:{probe}\ntorch==1.0{hashes}\n"
        (self.checkout.envs / "cpu.txt").write_text(text)

    def installed(self) -> tuple[str, bool]:
        """torch's version, and whether its CUDA libraries are there."""
        show = "import importlib.util, torch; print(torch.version, importlib.util.find_spec('cudart') is not None)"
        version, cuda = self.checkout.call("run", "cpu", "python", "-c", show).stdout.split()
        return version, cuda == "True"


@pytest.fixture
def index(checkout: Checkout) -> Index:
    return Index(checkout)


@pytest.mark.parametrize(
    ("offered", "locked", "taken"),
    [((PLAIN, CPU), (PLAIN, CPU), CPU), ((PLAIN,), (PLAIN, CPU), PLAIN), ((PLAIN, CPU), (PLAIN,), PLAIN)],
    ids=["the CPU's is preferred", "PyPI's serves too", "one that is not locked is passed over"],
)
def test_the_build_that_is_taken(index: Index, offered: tuple[str, ...], locked: tuple[str, ...], taken: str) -> None:
    index.offer(*offered)
    index.lock(*locked)
    done = index.checkout.call("install", "cpu")
    assert done.returncode == 0, done.stderr
    assert index.installed() == (taken, taken == PLAIN)
    assert ("is not locked in envs/cpu.txt" in done.stderr) == (CPU in offered and CPU not in locked)


def test_none_that_is_locked_is_told(index: Index) -> None:
    index.offer(CPU)
    index.lock(PLAIN)
    done = index.checkout.call("install", "cpu")
    assert done.returncode == 1
    assert "no wheel of torch 1.0" in done.stderr.splitlines()[-1]
    assert not (index.checkout.where("cpu") / "environment").exists()

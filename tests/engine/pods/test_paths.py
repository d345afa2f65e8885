"""Where a container's paths lie: mounts, symlinks as the container follows them, and rewritten texts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.engine.paths import Layout, Mount, clean

LAYOUT = Layout("/pod", (Mount("/workspace", "/host/ws"), Mount("/workspace/deep", "/host/deep")), ("/out/x",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat /tmp/x>/workspace/deep/y", "cat /pod/tmp/x>/host/deep/y"),
        ("--out=/workspace 'a' \"/out/x\"", "--out=/host/ws 'a' \"/pod/out/x\""),
        ("PATH=/workspace/bin:/usr/bin:/workspace/deep/bin", "PATH=/host/ws/bin:/usr/bin:/host/deep/bin"),
        ("$DIR/tmp ${DIR}/tmp a/tmp ~/tmp http://h/tmp /workspace2 /out/xy /tmp.d", None),
        ("/host/ws/tmp /pod/tmp", None),
    ],
)
def test_rewrite(text: str, expected: str | None) -> None:
    assert LAYOUT.rewrite(text) == (text if expected is None else expected)


@given(st.text(st.sampled_from("/tmpworkspace x=:'"), max_size=40))
def test_rewriting_twice_changes_nothing_more(text: str) -> None:
    assert LAYOUT.rewrite(LAYOUT.rewrite(text)) == LAYOUT.rewrite(text)


@given(st.lists(st.sampled_from(["workspace", "deep", "tmp", "a"]), min_size=1, max_size=5))
def test_the_innermost_mount_holds_a_path(parts: list[str]) -> None:
    path = "/" + "/".join(parts)
    inside = [m for m in LAYOUT.mounts if path == m.path or path.startswith(m.path + "/")]
    expected = max(inside, key=lambda m: len(m.path), default=None)
    assert LAYOUT.mounted(path) == expected
    assert LAYOUT.place(path) == (expected.host + path[len(expected.path) :] if expected else "/pod" + path)


@pytest.mark.parametrize(
    ("given_", "cleaned"), [("/a/", "/a"), ("a/../b", "/b"), ("/../../x", "/x"), ("/", "/"), ("", "/")]
)
def test_clean(given_: str, cleaned: str) -> None:
    assert clean(given_) == cleaned


def test_symlinks_are_followed_in_the_containers_terms(tmp_path: Path) -> None:
    root, volume = tmp_path / "root", tmp_path / "volume"
    for directory in (root / "tmp", volume / "models"):
        directory.mkdir(parents=True)
    (volume / "models/one").write_text("weights")
    layout = Layout(str(root), (Mount("/workspace", str(volume)),))
    os.symlink("/workspace/models/one", root / "tmp/latest")
    os.symlink("models", volume / "all")
    os.symlink("/etc", root / "tmp/etc")
    os.symlink("ring", root / "tmp/ring")
    assert layout.find("/tmp/latest") == str(volume / "models/one")
    assert layout.find("/workspace/all/one") == str(volume / "models/one")
    assert layout.find("/tmp/etc/passwd") == "/etc/passwd"  # of the host, as no file of its own hides it
    assert layout.find("/tmp/new/file") == str(root / "tmp/new/file")
    with pytest.raises(OSError, match="symbolic links"):
        layout.find("/tmp/ring/x")

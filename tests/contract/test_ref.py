"""References: one short string, the same on every machine, that never leads out of the workspace."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from posttrain.contract.ref import Ref
from posttrain.errors import UserError

names = st.text(st.characters(blacklist_characters="#@/\n", blacklist_categories=["Cs", "Cc", "Zs"]), min_size=1)
paths = st.lists(names.filter(lambda n: n not in (".", "..")), min_size=1, max_size=4).map("/".join)
digests = st.text("0123456789abcdef", min_size=64, max_size=64).map("sha256:".__add__)
refs = st.builds(Ref, paths, st.none() | st.integers(0, 10**9), st.none() | digests)


@given(refs)
def test_a_ref_reads_back_as_itself(ref: Ref) -> None:
    assert Ref.parse(str(ref)) == ref


@given(st.text())
def test_whatever_is_read_spells_itself(text: str) -> None:
    try:
        ref = Ref.parse(text)
    except UserError as problem:
        assert "reference: " in str(problem) and "\n" not in str(problem)
    else:
        assert str(ref) == text.strip()


@given(refs, st.sampled_from(["/workspace", "/mnt/other"]))
def test_it_is_found_below_the_workspace(ref: Ref, workspace: str) -> None:
    assume("://" not in ref.uri)
    assert Path(ref.locate(Path(workspace))).is_relative_to(workspace)


@pytest.mark.parametrize("text", ["/etc/passwd", "../other", "lake/../../other@3", "a/..", "/"])
def test_it_never_leads_out_of_the_workspace(text: str) -> None:
    with pytest.raises(UserError, match=r"^evaluate\.model: leads out of the workspace"):
        Ref.parse(text, field="evaluate.model")


@pytest.mark.parametrize("text", ["", "  ", "a#sha256:12", "a#md5:00", "a##", "#sha256:" + "0" * 64])
def test_what_is_no_reference_is_told(text: str) -> None:
    with pytest.raises(UserError, match="is not a reference"):
        Ref.parse(text)


def test_a_uri_with_a_scheme_is_kept() -> None:
    ref = Ref.parse("s3://bucket/lake/a.lance@12")
    assert (ref.uri, ref.version) == ("s3://bucket/lake/a.lance", 12)
    assert ref.locate(Path("/workspace")) == "s3://bucket/lake/a.lance"

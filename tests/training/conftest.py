"""What the tests of training share: a tiny model, tables of sums, a step's context."""

from __future__ import annotations

import pytest

from tests.training.support import make_workspace


@pytest.fixture(scope="session")
def workspace(tmp_path_factory):
    """models/tiny and lake/{train,validation}.lance. Read only: steps run in copies (`support.fork`)."""
    return make_workspace(tmp_path_factory.mktemp("workspace"))

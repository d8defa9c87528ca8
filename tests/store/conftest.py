"""What the tests of stores share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that nothing interrupted: a module's `kernel()` of its `X`, in blocks of `TILE`, by one process."""
    path = tmp_path_factory.mktemp("whole") / "k.zarr"
    request.module.kernel().gram(request.module.X, store=path, tile=request.module.TILE)
    return path

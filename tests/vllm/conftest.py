# SPDX-License-Identifier: Apache-2.0
import pytest
import tiny_models


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Name -> folder of each tiny model."""
    root = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(tiny_models.CONFIGS):
        tiny_models.write(name, root / name, seed)
    return {name: root / name for name in tiny_models.CONFIGS}

# SPDX-License-Identifier: Apache-2.0
"""The Python examples of docs/compile.md and of the operators' part of docs/pytorch.md run as they stand."""
import pathlib
import re

import pytest

torch = pytest.importorskip("torch")

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def examples(page, heading=None):
    text = (DOCS / page).read_text()
    if heading is not None:
        text = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.M | re.S)[1]
    return re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)


@pytest.mark.parametrize(("page", "heading"), [("compile.md", None), ("pytorch.md", "Operators")])
def test_examples_run(page, heading):
    found = examples(page, heading)
    assert found
    scope = {}
    for each in found:
        exec(compile(each, page, "exec"), scope)

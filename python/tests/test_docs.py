# SPDX-License-Identifier: Apache-2.0
"""The Python examples of the documentation run, each page's in order."""
import pathlib
import re

import pytest

DOCS = pathlib.Path(__file__).resolve().parent.parent.parent / "docs"


@pytest.mark.parametrize("page", ["python", "pytorch", "compile"])
def test_the_examples_of_a_page_run(page):
    if page != "python":
        pytest.importorskip("torch")
    text = (DOCS / f"{page}.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    assert len(blocks) >= 2
    names = {"__name__": f"docs.{page}"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page}.md, example {number + 1}", "exec"), names)

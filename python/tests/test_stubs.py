# SPDX-License-Identifier: Apache-2.0
"""The type stubs are those of the spec, and name what the package has."""
import ast
import importlib.util
import pathlib

import tileops_cpp

PYTHON = pathlib.Path(__file__).resolve().parent.parent
spec = importlib.util.spec_from_file_location("make_stubs", PYTHON / "make_stubs.py")
make_stubs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_stubs)


def test_the_stubs_are_current():
    for path, text in make_stubs.stubs().items():
        assert path.read_text() == text, f"{path.name}: run python/make_stubs.py"


def test_the_stubs_parse_and_name_what_is_there():
    for path in (PYTHON / "tileops_cpp").glob("*.pyi"):
        ast.parse(path.read_text())
    top = ast.parse((PYTHON / "tileops_cpp" / "__init__.pyi").read_text())
    named = {node.name for node in top.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    named |= {a.asname for node in top.body if isinstance(node, ast.ImportFrom) for a in node.names if a.asname}
    assert len(named) > 30 and [name for name in named if not hasattr(tileops_cpp, name)] == []
    public = {name for name in vars(tileops_cpp) if not name.startswith("_")}
    modules = {name for name in public if type(getattr(tileops_cpp, name)).__name__ == "module"}
    assert public - modules - named == set()

# SPDX-License-Identifier: Apache-2.0
"""The op classes, made from the spec at import: a module a family."""
import inspect
import json
import types

from tileops_cpp import _core, _op, _sums

_OPTIONS = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
    for name, default in (
        ("target", None),
        ("implementation", None),
        ("device", None),
        ("validate_inputs", False),
        ("kernel_config", None),
    )
]

# Entry name -> class.
classes = {}


def _tensor_doc(tensor):
    marks = [
        text
        for mark, text in (
            ("optional", "optional"),
            ("keyword_only", "by keyword"),
            ("mutated", "written"),
            ("buffer_out", "a buffer may be given by keyword"),
        )
        if tensor[mark]
    ]
    words = f"{tensor['dtype_text']} {tensor['shape_text']}" + "".join(f", {m}" for m in marks)
    return f"    {tensor['name']}: {words}. {tensor['doc']}".rstrip()


def _doc(entry):
    lines = [entry["summary"], ""]
    sections = (
        ("Parameters", [f"    {p['name']}: {p['type']['text']}. {p['doc']}" for p in entry["params"]]),
        ("Inputs", [_tensor_doc(tensor) for tensor in entry["inputs"]]),
        ("Outputs", [_tensor_doc(tensor) for tensor in entry["outputs"]]),
        ("Stages", [f"    {s['name']}: {s['op'] or s['kernel']}" for s in entry["stages"]]),
    )
    for title, section in sections:
        if section:
            lines += [title + ":", *section, ""]
    return "\n".join(lines).rstrip() + "\n"


def _init(entry):
    name = entry["name"]
    params = [param["name"] for param in entry["params"]]
    signature = _sums.signature_of(entry["params"], _OPTIONS)

    def __init__(self, *args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments
        values = {param: given.pop(param) for param in params if param in given}
        how = _op.options(*(given.get(p.name, p.default) for p in _OPTIONS))
        self._bind(_core.make_op(name, values, how))

    __init__.__qualname__ = f"{name}.__init__"
    __init__.__signature__ = signature.replace(
        parameters=[
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY),
            *signature.parameters.values(),
        ]
    )
    return __init__


def _make(entry, module):
    body = {
        "__doc__": _doc(entry),
        "__module__": module.__name__,
        "__init__": _init(entry),
        "spec": entry,
    }
    return type(entry["name"], (_op.Op,), body)


def load():
    """Modules of the families that have a class, filled with it."""
    modules = {}
    for name in _core.op_class_names():
        if name in classes:
            continue
        entry = json.loads(_core.entry_json(name))
        family = entry["family"]
        module = modules.setdefault(family, types.ModuleType(f"tileops_cpp.{family}"))
        classes[name] = _make(entry, module)
        setattr(module, name, classes[name])
    for module in modules.values():
        module.__doc__ = f"The ops of the {module.__name__.rpartition('.')[2]} family."
        for cls in _sums._classes.values():
            setattr(module, cls.__name__, cls)
        module.__all__ = sorted(name for name in vars(module) if not name.startswith("_"))
    return list(modules.values())

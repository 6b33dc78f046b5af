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
_OPTIONS_DOC = (
    "    target: str or None. What shall serve: a registered target, or builtin.",
    "    implementation: str or None. The one implementation that may serve.",
    "    device: str or None. Where calls without tensors run.",
    "    validate_inputs: bool. Check the contents of metadata at each call.",
    "    kernel_config: dict or None. Tuning configuration to force.",
)


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


def _doc(entry, injected):
    params = [f"    {p['name']}: {p['type']['text']}. {p['doc']}".rstrip() for p in entry["params"]]
    params += [f"    {name}: an instance to use instead of the op's own." for name in injected]
    sections = (
        ("Parameters", [*params, *_OPTIONS_DOC]),
        ("Inputs", [_tensor_doc(tensor) for tensor in entry["inputs"]]),
        ("Outputs", [_tensor_doc(tensor) for tensor in entry["outputs"]]),
        ("Stages", [f"    {s['name']}: {s['op'] or s['kernel']}" for s in entry["stages"]]),
    )
    lines = [entry["summary"], ""]
    for title, section in sections:
        if section:
            lines += [title + ":", *section, ""]
    return "\n".join(lines).rstrip() + "\n"


def signature_of(entry, injected):
    """The constructor's signature: parameters of the spec, injected instances, options."""
    instances = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in injected
    ]
    return _sums.signature_of(entry["params"], instances + _OPTIONS)


def _init(entry, injected):
    name = entry["name"]
    params = [param["name"] for param in entry["params"]]
    signature = signature_of(entry, injected)

    def __init__(self, *args, **kwargs):
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{name}: {error}; it takes {signature}") from None
        values = {param: given[param] for param in params if param in given}
        instances = {each: given[each] for each in injected if given.get(each) is not None}
        options = _op.options_for(self, given)
        self._bind(_core.make_op(name, values, options, instances))

    __init__.__qualname__ = f"{name}.__init__"
    self_parameter = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = signature.replace(
        parameters=[self_parameter, *signature.parameters.values()]
    )
    return __init__


def _make(entry, module):
    name = entry["name"]
    injected = tuple(_core.injected_names(name))
    body = {
        "__doc__": _doc(entry, injected),
        "__module__": module.__name__,
        "__init__": _init(entry, injected),
        "spec": entry,
        "spec_name": name,
        "injected": injected,
        "tunable": _core.is_tunable(name),
    }
    return type(name, (_op.Op,), body)


def load():
    """Modules of the families that have a class, filled with the classes."""
    modules = {}
    for name in _core.op_class_names():
        entry = json.loads(_core.entry_json(name))
        family = entry["family"]
        module = modules.setdefault(family, types.ModuleType(f"tileops_cpp.{family}"))
        _op.classes[name] = _make(entry, module)
        setattr(module, name, _op.classes[name])
    for cls in _op.classes.values():
        cls.delegate_types = types.MappingProxyType(
            {s["name"]: _op.classes[s["op"]] for s in cls.spec["stages"] if s["op"]}
        )
    for family, module in modules.items():
        module.__doc__ = f"The ops of the {family} family."
    return modules

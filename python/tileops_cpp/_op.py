# SPDX-License-Identifier: Apache-2.0
"""Op: the base class of every op object, and of composites written in Python."""
import contextlib
import sys
import threading
import typing
import weakref

from tileops_cpp import _core

CallRecord = _core.CallRecord


def _never():
    return False


# Whether a call is being traced by torch.compile.
is_compiling = _never


def _watch_torch():
    """Once torch is in the process, calls ask it whether they are compiled."""
    global is_compiling
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    if is_compiling is _never and compiler is not None:
        is_compiling = compiler.is_compiling
        _core.set_is_compiling(is_compiling)


class Cost(typing.NamedTuple):
    """The price of a call by its spec's formula: operations and compulsory bytes."""

    flops: float
    bytes: float


class HeldDelegate(typing.NamedTuple):
    """A sub-op as enumeration shows it."""

    stage: str
    identity: object
    op: "Op"


# Entry name -> its class. Key of an instance -> the instance, while it lives.
classes = {}
_instances = weakref.WeakValueDictionary()
# What a composite builds its sub-op with, until the first op of that class takes it.
_building = threading.local()


@contextlib.contextmanager
def inheriting(cls, options):
    """The next `cls` that this thread constructs gets these options where it is given none."""
    outer = getattr(_building, "heir", None)
    _building.heir = (cls, options)
    try:
        yield
    finally:
        _building.heir = outer


def options_for(op, given):
    """The options of an instance: inherited from the composite that builds it, else the defaults;
    over them those that are given."""
    heir = getattr(_building, "heir", None)
    made = _core.OpOptions()
    if heir is not None and type(op) is heir[0]:
        made, _building.heir = heir[1], None
    for name in ("target", "implementation", "device", "validate_inputs", "kernel_config"):
        value = given.get(name)
        if value is not None:
            setattr(made, name, str(value) if name == "device" else value)
    return made


class Op:
    """A callable object with a spec.

    The library's ops derive from it. So can a composite written in Python, whose class is named as
    its entry in a spec file that ``load_spec`` read:

        class SmoothFwdOp(tileops_cpp.Op):
            delegate_types = {"mean": WindowMeanFwdOp}

            def __init__(self, window, *, target=None):
                super().__init__(window=window, target=target)
                self.mean = self.delegate_for("mean", None, window=window)

            def forward(self, x):
                return self.mean(self.mean(x))

    ``forward`` gets the call's tensors as the caller gave them: by position, those that the entry
    calls keyword-only by name; absent ones are None, or not named. It returns the outputs in the
    entry's order, those that the parameters leave out not counted. Parameters that ``__init__`` is
    not given are read from attributes of the same names.

    Thread safety: one instance may be called from several threads at once, on different streams.
    """

    spec_name: typing.ClassVar[str] = ""
    # Stage -> class, in the order of the entry's composition.
    delegate_types: typing.ClassVar[typing.Mapping[str, type]] = {}
    # Constructor parameters that take an instance.
    injected: typing.ClassVar[typing.Sequence[str]] = ()
    # False: an op with nothing to tune.
    tunable: typing.ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if cls.__call__ is Op.__call__:
            _core.serve_calls(cls)
        if "forward" in vars(cls):
            _declare(cls)

    def __init__(self, **params):
        how = {name: params.pop(name) for name in _OPTION_NAMES if name in params}
        if not self.spec_name:
            raise TypeError(f"{type(self).__name__}: a composite defines forward")
        for param in _core.param_names(self.spec_name):
            if param not in params and param in vars(self):
                params[param] = vars(self)[param]
        options = options_for(self, how)
        self._bind(_core.make_python_op(self, self.spec_name, params, options))

    def _bind(self, handle):
        _watch_torch()
        self._handle = handle
        self._key = handle.key  # a traced call reads attributes of Python alone
        self._call = _core.caller(handle)
        _instances[self._key] = self

    # What tracers read. An eager call comes to the same in C++ (serve_calls).
    def __call__(self, *args, **kwargs):
        if is_compiling():
            return self._traced(*args, **kwargs)
        return self._call(*args, **kwargs)

    def _traced(self, *args, **kwargs):
        from tileops_cpp import compile

        return compile.traced(self, *args, **kwargs)

    def delegate_for(self, stage, identity, given=None, /, **params):
        """The sub-op held under (stage, identity): ``given``, else one that is built once from
        ``params`` with this op's target. The only way to hold a sub-op.

        identity: a number, str, dtype, sum-type value or tuple of them that covers every argument
        which changes what is built; None where the arguments are settled at construction.
        Errors: RuntimeError (the rules of holding), those of the sub-op's constructor.
        """
        if is_compiling():
            from tileops_cpp import compile

            return compile.traced_delegate(self, stage, identity, given, params)
        cls = self.delegate_types.get(stage)

        def make():
            with inheriting(cls, _core.inherited_options(self._handle)):
                return cls(**params)

        return _core.delegate_for(self._handle, stage, identity, given, make)

    @property
    def key(self) -> str:
        """Names this instance in traced graphs; never handed out again."""
        return self._key

    @property
    def name(self) -> str:
        """The name of the op's spec entry."""
        return self.spec_name

    @property
    def params(self) -> dict:
        """The parameters by name, defaults filled in."""
        return self._handle.params

    @property
    def target(self) -> typing.Optional[str]:
        """The target that the op was asked to be served by; None where it was not."""
        return self._handle.options.target or None

    @property
    def tuned(self) -> bool:
        """Whether the op is in tuned mode."""
        return self._handle.tuned

    def last_call(self) -> CallRecord:
        """The record of the last completed call. Errors: RuntimeError before any."""
        return self._handle.last_call()

    def eval_roofline(self) -> Cost:
        """The price of the last call. Errors: RuntimeError before any, SpecError."""
        return self._handle.eval_roofline()

    def explain(self):
        """What serves the last call, stage by stage, and why not the others."""
        return self._handle.explain()

    def serving_target(self) -> typing.Optional[str]:
        """Who serves: "builtin", a target's name, or None while undecided."""
        return self._handle.serving_target()

    def held_delegates(self) -> typing.List[HeldDelegate]:
        """Held sub-ops: in stage order, then in build order."""
        return [HeldDelegate(*held) for held in self._handle.held_delegates()]

    def iter_kernels(self) -> typing.Iterator:
        """Every kernel of every entry, then those of the held sub-ops, each once."""
        return iter(self._handle.iter_kernels())

    def built_entries(self, interface: typing.Optional[str] = None) -> list:
        """Entries of one of the op's kernel interfaces, or of all. Errors: ValueError."""
        names = self._handle.interfaces if interface is None else [interface]
        return [entry for name in names for entry in self._handle.built_entries(name)]

    def kernel_config(self) -> list:
        """Configurations in use: (implementation, config, origin) of each entry that has one; the origin is
        default, table, tuned or forced."""
        return self._handle.kernel_config()

    def request_tune(self) -> None:
        """Puts this op and everything that it holds in tuned mode; idempotent."""
        self._handle.request_tune()

    def trace(self, *args, **kwargs):
        """The graph of leaf calls that a call with tensors of these facts makes; nothing runs."""
        return _core.trace(self._handle, *args, **kwargs)

    def __repr__(self):
        values = ", ".join(f"{name}={value!r}" for name, value in self.params.items())
        return f"{type(self).__name__}({values})"


_OPTION_NAMES = ("target", "implementation", "device", "validate_inputs", "kernel_config")


def _declare(cls):
    """Makes a class with a forward of Python's known by its entry's name."""
    if "spec_name" not in vars(cls):
        cls.spec_name = cls.__name__
    stages = [(stage, held.spec_name) for stage, held in cls.delegate_types.items()]
    parent = next((base.spec_name for base in cls.__mro__[1:] if getattr(base, "spec_name", "")), "")

    def make(params, options):
        with inheriting(cls, options):
            return cls(**params)

    _core.declare_class(
        cls.spec_name, stages, list(cls.injected), cls.tunable, parent, _origin(cls), make
    )
    classes[cls.spec_name] = cls


def _origin(cls):
    """Where a class is written: one that is run again (in a notebook) replaces itself."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _object_of(handle):
    """The Op object of a handle: the one that lives, else a fresh one of the entry's class."""
    found = _instances.get(handle.key)
    if found is None:
        cls = classes[handle.name]
        found = cls.__new__(cls)
        found._bind(handle)
    return found


_core.set_op_objects(_object_of)

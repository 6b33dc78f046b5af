# SPDX-License-Identifier: Apache-2.0
from typing import Any, Dict, List, Optional, Tuple

from tileops_cpp import moe as moe
from tileops_cpp._kernel_types import register_kernel_type as register_kernel_type
from tileops_cpp._kernel_types import unregister_kernel_type as unregister_kernel_type
from tileops_cpp._op import Cost as Cost
from tileops_cpp._op import HeldDelegate as HeldDelegate
from tileops_cpp._op import Op as Op
from tileops_cpp._specs import load_spec as load_spec
from tileops_cpp._specs import load_spec_text as load_spec_text
from tileops_cpp._specs import validate_spec as validate_spec
from tileops_cpp._sums import GatedActivation as GatedActivation
from tileops_cpp._sums import MGroupedLayout as MGroupedLayout
from tileops_cpp._sums import RoutingEpilogue as RoutingEpilogue
from tileops_cpp._targets import BuildRequest as BuildRequest
from tileops_cpp._targets import LoadFailure as LoadFailure
from tileops_cpp._targets import default_target as default_target
from tileops_cpp._targets import load_backend as load_backend
from tileops_cpp._targets import load_backends as load_backends
from tileops_cpp._targets import load_failures as load_failures
from tileops_cpp._targets import loaded_backends as loaded_backends
from tileops_cpp._targets import register_target_builder as register_target_builder
from tileops_cpp._targets import register_target_detector as register_target_detector
from tileops_cpp._targets import set_default_target as set_default_target
from tileops_cpp._targets import target_names as target_names
from tileops_cpp._targets import unregister_target as unregister_target
from tileops_cpp._targets import unregister_target_builder as unregister_target_builder
from tileops_cpp._targets import unregister_target_detector as unregister_target_detector

__version__: str

class Error(RuntimeError): ...
class OpNotAvailableError(Error): ...
class AmbiguousSelectionError(Error): ...
class AmbiguousTargetError(Error): ...
class BackendError(Error): ...
class SpecError(Error): ...
class BuildError(Error): ...

class Tensor:
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    dtype: str
    device: str
    data_ptr: int
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Optional[Tuple[int, int]] = None,
        dl_device: Optional[Tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> Tuple[int, int]: ...
    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any: ...

class TensorFacts:
    dtype: str
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    device: str

class CallRecord:
    op: str
    device: str
    effect_branch: str
    indices: Dict[str, Any]
    tensors: Dict[str, Optional[TensorFacts]]
    traffic: Tuple[int, int]
    written: List[str]
    stages: Dict[str, List[CallRecord]]
    served_by: str
    kernels: List[Tuple[str, str, Any]]
    elapsed_us: Optional[float]
    def index(self, name: str) -> int: ...
    def value(self, name: str) -> Any: ...
    def metadata(self, input: str) -> Tensor: ...
    def eval_roofline(self) -> Cost: ...

class Explanation:
    op: str
    stage: str
    target: str
    choices: List[Any]
    stages: List[Explanation]
    def text(self) -> str: ...

class Graph:
    def text(self) -> str: ...
    def dot(self) -> str: ...
    def json(self) -> str: ...

class Diagnostic:
    code: str
    source: str
    line: int
    entry: str
    field: str
    message: str

def set_call_timing(on: bool) -> None: ...

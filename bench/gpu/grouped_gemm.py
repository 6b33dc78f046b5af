# SPDX-License-Identifier: Apache-2.0
"""Launches the sm_90a grouped GEMM kernels as grouped_gemm_sm90_params.h says, on torch tensors."""
import ctypes
import dataclasses

import torch

import driver
import nvrtc

INCLUDE = "tileops/ops/moe/grouped_gemm/grouped_gemm_sm90.cuh"
SPACE = "tileops::grouped_gemm::"
TYPES = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2}
ACTIVATIONS = {"none": 0, "silu_and_mul": 1, "gelu_and_mul": 2, "gelu_tanh_and_mul": 3,
               "swigluoai": 4}
KINDS = {"psum": 0, "segments": 1, "masked": 2}


@dataclasses.dataclass(frozen=True)
class Config:
    in_type: torch.dtype = torch.bfloat16
    out_type: torch.dtype = torch.bfloat16
    activation: str = "none"
    bias: bool = False
    tile_features: int = 128
    tile_rows: int = 128
    stages: int = 6
    ctas: int = 2
    ping_pong: bool = False
    load: int = 0  # 0 TMA, 1 any strides

    def smem_bytes(self):
        ring = self.stages * (self.tile_features + self.tile_rows) * 128
        free = 232448 - 1024 - ring
        return ring + 2 * next(s for s in (32768, 16384, 8192) if 2 * s <= free) + 1024

    def name(self):
        enum = lambda kind, value: f"static_cast<{SPACE}{kind}>({value})"
        return (f"{SPACE}sm90_kernel<{SPACE}Config<{enum('ElementType', TYPES[self.in_type])}, "
                f"{enum('ElementType', TYPES[self.out_type])}, "
                f"{enum('ActivationKind', ACTIVATIONS[self.activation])}, "
                f"{'true' if self.bias else 'false'}, {self.tile_features}, {self.tile_rows}, "
                f"{self.stages}, {self.ctas}, {'true' if self.ping_pong else 'false'}, {enum('LoadKind', self.load)}>>")

    def tile(self):
        load = " a"[self.load].strip()
        return f"{self.tile_features}x{self.tile_rows}x{self.stages}c{self.ctas}{'p' if self.ping_pong else ''}{load}"


class Params(ctypes.Structure):
    _fields_ = [("weights", ctypes.c_uint64 * 16), ("tokens_large", ctypes.c_uint64 * 16),
                ("tokens_small", ctypes.c_uint64 * 16),
                ("out_large", ctypes.c_uint64 * 16), ("out_small", ctypes.c_uint64 * 16),
                ("out", ctypes.c_void_p), ("out_row_stride", ctypes.c_int64),
                ("bias", ctypes.c_void_p), ("bias_expert_stride", ctypes.c_int64),
                ("metadata", ctypes.c_void_p), ("partial_sums", ctypes.c_void_p),
                ("partial_flags", ctypes.c_void_p), ("work_counters", ctypes.c_void_p),
                ("rows_written", ctypes.c_void_p), ("rows_awaited", ctypes.c_void_p),
                ("group_kind", ctypes.c_int32), ("num_experts", ctypes.c_int32),
                ("alignment", ctypes.c_int32), ("max_m", ctypes.c_int32),
                ("num_rows", ctypes.c_int32), ("num_features", ctypes.c_int32),
                ("num_k_tiles", ctypes.c_int32), ("lone_tile_k_tiles", ctypes.c_int32),
                ("split_cost_k_tiles", ctypes.c_int32),
                ("swiglu_alpha", ctypes.c_float), ("swiglu_limit", ctypes.c_float),
                ("metadata_stride", ctypes.c_int32), ("num_writers", ctypes.c_int32),
                ("k", ctypes.c_int32), ("a", ctypes.c_void_p), ("a_row_stride", ctypes.c_int64),
                ("b", ctypes.c_void_p)] + [
                    (name, ctypes.c_int64) for name in (
                        "a_expert_stride", "a_k_stride", "b_expert_stride", "b_row_stride",
                        "b_k_stride", "out_expert_stride", "out_feature_stride",
                        "bias_row_stride")] + [("up_distance", ctypes.c_int32),
                                               ("num_writers_and_reads", ctypes.c_int32),
                                               ("num_row_counters", ctypes.c_int32),
                                               ("pad", ctypes.c_int32 * 9)]


class SegmentsParams(ctypes.Structure):
    _fields_ = [("ids", ctypes.c_void_p), ("ids_stride", ctypes.c_int64),
                ("segments", ctypes.c_void_p),
                ("num_rows", ctypes.c_int32), ("num_experts", ctypes.c_int32)]


_cubins = {}
_functions = {}


def _compile(config):
    return nvrtc.compile_kernel(INCLUDE, [config.name(), SPACE + "per_row_segments"])


def build(configs):
    """Compiles all configs that are missing, several at a time."""
    import concurrent.futures
    missing = [c for c in dict.fromkeys(configs) if c not in _cubins]
    with concurrent.futures.ProcessPoolExecutor(8) as pool:
        for config, result in zip(missing, pool.map(_compile, missing)):
            if "C75" in result[2]:
                print("WARNING", config, result[2][:200], flush=True)
            _cubins[config] = result


def functions(config):
    if config not in _functions:
        if config not in _cubins:
            _cubins[config] = _compile(config)
        cubin, names, _, _ = _cubins[config]
        module = driver.Module(cubin)
        _functions[config] = (module.function(names[0], config.smem_bytes()),
                              module.function(names[1]), module)
    return _functions[config]


_workspace = {}


def workspace(config, grid, is_second=False):
    key = (config.tile_features, config.tile_rows, grid, is_second)
    if key not in _workspace:
        _workspace[key] = (torch.empty(grid * config.tile_features * config.tile_rows, device="cuda"),
                           torch.zeros(grid * config.tile_features // 64 + 3, dtype=torch.int32, device="cuda"))
    return _workspace[key]


class Call:
    """One prepared call: out[rows of e] = a[rows of e] @ b[e].T, launched by calling it."""

    def __init__(self, config, a, b, metadata, out, kind="psum", alignment=1, max_m=0, bias=None,
                 programmatic=False, split_cost=None, grid=None, after=None):
        experts, n, k = b.shape
        gated = config.activation != "none"
        rows = a.shape[0]
        p = Params()
        self._strided(p, a, b, out, k)
        size = 2
        lda, ldb, ldeb = a.stride(0) * size, b.stride(1) * size, b.stride(0) * size
        if config.load == 0:
            p.tokens_large = driver.tensor_map(a, [k, rows], [lda], [64, 64])
            p.tokens_small = driver.tensor_map(a, [k, rows], [lda], [64, 16])
        f = n // 2
        if config.load == 1:
            pass
        elif not gated:
            p.weights = driver.tensor_map(b, [k, n, experts], [ldb, ldeb], [64, 128, 1])
        else:
            near, half = (ldb, f * ldb) if config.activation != "swigluoai" else (2 * ldb, ldb)
            p.weights = driver.tensor_map(b, [k, 8, 2, f // 8, experts],
                                          [near, half, 8 * near, ldeb], [64, 8, 2, 8, 1])
        if out.dtype != torch.float32 and config.load == 0:
            features = f if gated else n
            box, swizzle = (32, 2) if gated else (64, 3)
            ldo = out.stride(0) * size
            p.out_large = driver.tensor_map(out, [features, rows], [ldo], [box, 32], swizzle)
            p.out_small = driver.tensor_map(out, [features, rows], [ldo], [box, 16], swizzle)
        p.out, p.out_row_stride = out.data_ptr(), out.stride(0)
        if bias is not None:
            p.bias, p.bias_expert_stride = bias.data_ptr(), bias.stride(0)
            p.bias_row_stride = bias.stride(1)
        p.metadata, p.metadata_stride = metadata.data_ptr(), metadata.stride(0)
        sms = torch.cuda.get_device_properties(0).multi_processor_count
        self.grid = (grid or sms) // config.ctas * config.ctas
        sums, flags = workspace(config, self.grid, after is not None)
        p.partial_sums, p.partial_flags = sums.data_ptr(), flags.data_ptr()
        p.work_counters = flags.data_ptr() + self.grid * config.tile_features // 64 * 4
        p.group_kind, p.num_experts, p.alignment, p.max_m = KINDS[kind], experts, alignment, max_m
        p.num_rows, p.num_features, p.num_k_tiles = rows, f if gated else n, max(1, -(-k // 64))
        waits_for_memory = config.tile_rows <= 128 and not config.ping_pong
        p.lone_tile_k_tiles = p.num_k_tiles * (40 if waits_for_memory else 100) // 100
        own_cost = 28 if config.ping_pong else 4 + config.tile_rows // 32
        p.split_cost_k_tiles = own_cost if split_cost is None else split_cost
        p.up_distance = 1 if config.activation == "swigluoai" else f
        p.swiglu_alpha, p.swiglu_limit = 1.702, 7.0
        self.params, self.config, self.programmatic = p, config, programmatic
        if after is not None:
            self._await_rows_of(after)
        self.keep = (a, b, metadata, out, bias)

    def _await_rows_of(self, before):
        """This launch begins while `before`, the launch right before it, still runs: device::AwaitedRows."""
        counters = torch.zeros(1 << 16, dtype=torch.int32, device="cuda")
        first, second = before.params, self.params
        first.rows_written = second.rows_awaited = counters.data_ptr()
        first.num_row_counters = second.num_row_counters = counters.numel() - 1
        second.num_writers = before.ctas_of_row_tile() * (1 if before.config.ping_pong else 2)
        second.num_writers_and_reads = (second.num_writers +
                                        self.ctas_of_row_tile() * second.num_k_tiles)
        self.counters = counters

    def ctas_of_row_tile(self):
        gated = self.config.activation != "none"
        of_cluster = self.config.tile_features // (2 if gated else 1) * self.config.ctas
        return -(-self.params.num_features // of_cluster) * self.config.ctas

    @staticmethod
    def _strided(p, a, b, out, k):
        p.a, p.b, p.k = a.data_ptr(), b.data_ptr(), k
        p.a_row_stride, p.a_k_stride = a.stride()
        p.b_expert_stride, p.b_row_stride, p.b_k_stride = b.stride()
        p.out_feature_stride = out.stride(1)

    def __call__(self):
        driver.launch(functions(self.config)[0], self.grid, 384, self.config.smem_bytes(),
                      self.params, self.config.ctas, self.programmatic)


def per_row_segments(config, ids, experts):
    segments = torch.full((experts, 2), -1, dtype=torch.int32, device="cuda")
    p = SegmentsParams(ids.data_ptr(), ids.stride(0), segments.data_ptr(), ids.numel(), experts)
    if ids.numel():
        driver.launch(functions(config)[1], (ids.numel() + 255) // 256, 256, 0, p)
    return segments


def reference(a, b, first_rows, counts, activation="none", bias=None):
    """{expert: float32 rows}; a, b as given, float32 (no tf32) products."""
    result = {}
    for expert, (first, count) in enumerate(zip(first_rows, counts)):
        if count == 0:
            continue
        rows = a[first:first + count].float() @ b[expert].float().T
        if bias is not None:
            rows += bias[expert].float()
        result[expert] = activate(rows, activation)
    return result


def activate(rows, activation):
    if activation == "none":
        return rows
    if activation == "swigluoai":
        gate, up = rows[:, 0::2].clamp(max=7.0), rows[:, 1::2].clamp(-7.0, 7.0)
        return gate * torch.sigmoid(1.702 * gate) * (up + 1)
    gate, up = rows.chunk(2, dim=1)
    functional = torch.nn.functional
    act = {"silu_and_mul": functional.silu, "gelu_and_mul": functional.gelu,
           "gelu_tanh_and_mul": lambda x: functional.gelu(x, approximate="tanh")}[activation]
    return act(gate) * up

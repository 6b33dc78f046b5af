// SPDX-License-Identifier: Apache-2.0
// torch.ops.tileops_cpp: every leaf op class as operators of PyTorch, an operator for each effect
// branch, through LibTorch's stable ABI: built once, it loads in torch 2.11 and later. Its symbols
// are those of libtorch_cpu, which must be in the process. No Python here.
#define TORCH_TARGET_VERSION (((0ULL + 2) << 56) | ((0ULL + 11) << 48))
#include <dlfcn.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tileops/core/allocator.h"
#include "tileops/core/error.h"
#include "tileops/core/stream.h"
#include "tileops/op/op.h"
#include "tileops/op/op_class.h"
#include "torch_adapter_schema.h"

namespace tileops::torch_adapter {
namespace {

using TorchTensor = torch::stable::Tensor;
using torch::stable::detail::from;
using torch::stable::detail::to;

constexpr size_t kMaxOperators = 512;

[[noreturn]] void fail(ErrorKind kind, const std::string& message) { throw Error(kind, message); }

// ---- Tensors, either way without a copy

struct DTypeCode {
  int32_t torch;
  DType ours;
};
const std::array<DTypeCode, kNumDTypes>& dtype_codes() {
  static const std::array<DTypeCode, kNumDTypes> codes{
      {{aoti_torch_dtype_float64(), DType::kF64},
       {aoti_torch_dtype_float32(), DType::kF32},
       {aoti_torch_dtype_float16(), DType::kF16},
       {aoti_torch_dtype_bfloat16(), DType::kBF16},
       {aoti_torch_dtype_float8_e4m3fn(), DType::kE4M3},
       {aoti_torch_dtype_float8_e5m2(), DType::kE5M2},
       {aoti_torch_dtype_int64(), DType::kI64},
       {aoti_torch_dtype_int32(), DType::kI32},
       {aoti_torch_dtype_int16(), DType::kI16},
       {aoti_torch_dtype_int8(), DType::kI8},
       {aoti_torch_dtype_uint8(), DType::kU8},
       {aoti_torch_dtype_bool(), DType::kBool}}};
  return codes;
}

int32_t torch_dtype(DType dtype) {
  for (const DTypeCode& code : dtype_codes()) {
    if (code.ours == dtype) return code.torch;
  }
  fail(ErrorKind::kInternal, "a dtype that torch has no code for");
}

int32_t torch_device_type(Device device) {
  return device.type == DeviceType::kCUDA ? aoti_torch_device_type_cuda()
                                          : aoti_torch_device_type_cpu();
}

int32_t torch_device_index(Device device) {
  return device.type == DeviceType::kCUDA ? device.index : -1;
}

DType dtype_of(const TorchTensor& tensor, const Operator& op, const std::string& name) {
  int32_t torch = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &torch));
  for (const DTypeCode& code : dtype_codes()) {
    if (code.torch == torch) return code.ours;
  }
  fail(ErrorKind::kDType,
       op.entry->name() + ": " + name + " has a dtype of torch's that the library does not know");
}

/// A view of a torch tensor, which must outlive it.
Tensor view_of(const TorchTensor& tensor, const Operator& op, const std::string& name) {
  int64_t rank = 0, *sizes = nullptr, *strides = nullptr;
  int32_t device_type = 0, device_index = 0;
  void* data = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(tensor.get(), &rank));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(tensor.get(), &sizes));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(tensor.get(), &strides));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(tensor.get(), &data));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &device_type));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(tensor.get(), &device_index));
  if (rank > kMaxRank) {
    fail(ErrorKind::kShape, op.entry->name() + ": " + name + " has " + std::to_string(rank) +
                                " dimensions; a tensor has at most " + std::to_string(kMaxRank));
  }
  const auto size = static_cast<size_t>(rank);
  const bool is_cuda = device_type == aoti_torch_device_type_cuda();
  return Tensor::from_blob(data, Shape(std::span(sizes, size)), Strides(std::span(strides, size)),
                           dtype_of(tensor, op, name),
                           is_cuda ? Device{DeviceType::kCUDA, device_index} : kCpuDevice, nullptr);
}

TorchTensor empty_tensor(const Shape& shape, const Strides& strides, int32_t dtype, Device device) {
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(shape.size(), shape.begin(), strides.begin(),
                                                  dtype, torch_device_type(device),
                                                  torch_device_index(device), &handle));
  return TorchTensor(handle);
}

/// Torch's memory, as tensors of bytes: its caching and its graphs' pools see all of it.
class TorchAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes, Stream stream) override {
    const TorchTensor block =
        empty_tensor({static_cast<int64_t>(bytes)}, {1}, aoti_torch_dtype_uint8(), stream.device);
    void* data = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(block.get(), &data));
    const std::lock_guard lock(mutex_);
    blocks_.emplace(data, block);
    return data;
  }

  void deallocate(void* data, size_t, Stream) noexcept override {
    std::optional<TorchTensor> freed;  // outside the lock
    const std::lock_guard lock(mutex_);
    const auto it = blocks_.find(data);
    freed = std::move(it->second);
    blocks_.erase(it);
  }

  /// The block that begins at `data`, if it is one of ours.
  std::optional<TorchTensor> block_at(void* data) const {
    const std::lock_guard lock(mutex_);
    const auto it = blocks_.find(data);
    return it == blocks_.end() ? std::nullopt : std::optional(it->second);
  }

 private:
  mutable std::mutex mutex_;  // guards blocks_
  std::unordered_map<void*, TorchTensor> blocks_;
};

const std::shared_ptr<TorchAllocator>& torch_allocator() {
  static const auto& allocator = *new std::shared_ptr<TorchAllocator>(new TorchAllocator);
  return allocator;
}

/// A result as torch's tensor: in torch's own storage where it lies in a block of torch's, else on
/// memory that the tensor keeps alive (a target may allocate for itself).
TorchTensor to_torch(const Tensor& tensor) {
  const int32_t dtype = torch_dtype(tensor.dtype());
  const Shape& shape = tensor.shape();
  const Strides& strides = tensor.strides();
  if (tensor.num_elements() == 0) return empty_tensor(shape, strides, dtype, tensor.device());
  AtenTensorHandle handle = nullptr;
  auto* base = static_cast<std::byte*>(tensor.storage()->data());
  if (const auto block = torch_allocator()->block_at(base)) {
    TORCH_ERROR_CODE_CHECK(
        aoti_torch__alloc_from_pool(block->get(), static_cast<std::byte*>(tensor.data()) - base,
                                    dtype, shape.size(), shape.begin(), strides.begin(), &handle));
    return TorchTensor(handle);
  }
  const auto drop = [](void*, void* held) { delete static_cast<Tensor*>(held); };
  auto held = std::make_unique<Tensor>(tensor);
  TORCH_ERROR_CODE_CHECK(
      torch_from_blob(tensor.data(), shape.size(), shape.begin(), strides.begin(), 0, dtype,
                      torch_device_type(tensor.device()), torch_device_index(tensor.device()),
                      &handle, aoti_torch_layout_strided(), nullptr, 0, drop, held.get()));
  held.release();
  return TorchTensor(handle);
}

// ---- Where a node runs

void* current_cuda_stream(int32_t device_index) {
  using Getter = AOTITorchError (*)(int32_t, void**);
  static const auto getter = [] {
    void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return library == nullptr
               ? nullptr
               : reinterpret_cast<Getter>(dlsym(library, "aoti_torch_get_current_cuda_stream"));
  }();
  if (getter == nullptr) fail(ErrorKind::kDevice, "this torch is built without CUDA");
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(getter(device_index, &stream));
  return stream;
}

/// The call's device, torch's current stream of it, and torch's memory.
class Place {
 public:
  explicit Place(Device device) : allocator_(device.type, torch_allocator()) {
    if (device.type != DeviceType::kCUDA) return;
    device_.emplace(device.index);
    stream_.emplace(Stream{device, current_cuda_stream(device.index)});
  }

 private:
  AllocatorGuard allocator_;
  std::optional<torch::stable::accelerator::DeviceGuard> device_;
  std::optional<StreamGuard> stream_;
};

// ---- Nodes

/// A string off the stack. Torch's to<std::string> loses the one that it copies into.
std::string take_string(StableIValue value) {
  const auto drop = [](StringHandle handle) { torch_delete_string(handle); };
  const std::unique_ptr<StringOpaque, decltype(drop)> handle(to<StringHandle>(value), drop);
  size_t length = 0;
  const char* data = nullptr;
  TORCH_ERROR_CODE_CHECK(torch_string_length(handle.get(), &length));
  TORCH_ERROR_CODE_CHECK(torch_string_c_str(handle.get(), &data));
  return {data, length};
}

/// A node's arguments, taken off torch's stack; the views are of the torch tensors beside them.
struct Arguments {
  std::string key;
  std::array<std::optional<TorchTensor>, spec::kMaxTensors> tensors;
  std::array<Tensor, spec::kMaxTensors> inputs;
  std::array<Tensor, Results::kMaxResults> outs;
  Device device = kCpuDevice;

  Arguments(const Operator& op, StableIValue* stack) : key(take_string(stack[0])) {
    const auto decls = op.entry->inputs();
    for (size_t i = 0; i < decls.size(); ++i) {  // all of it: what is left on the stack leaks
      tensors[i] = decls[i].optional ? to<std::optional<TorchTensor>>(stack[1 + i])
                                     : std::optional(to<TorchTensor>(stack[1 + i]));
    }
    const size_t first_out = decls.size();
    for (size_t i = 0; i < op.out_slots.size(); ++i) {
      tensors[first_out + i] = to<TorchTensor>(stack[1 + first_out + i]);
    }
    for (size_t i = 0; i < decls.size(); ++i) {
      if (!tensors[i]) continue;
      inputs[i] = view_of(*tensors[i], op, decls[i].name);
      if (inputs[i].device().type == DeviceType::kCUDA) device = inputs[i].device();
    }
    for (size_t i = 0; i < op.out_slots.size(); ++i) {
      const auto output = static_cast<size_t>(op.branch.outs[i]);
      outs[op.out_slots[i]] =
          view_of(*tensors[first_out + i], op, op.entry->outputs()[output].name);
    }
  }
};

void check_branch(const Operator& op, const std::string& key, const Results& results) {
  for (int j = 0; j < results.size(); ++j) {
    const auto& omitted = op.branch.omitted;
    const bool is_omitted = std::find(omitted.begin(), omitted.end(), j) != omitted.end();
    if (results[j].defined() != is_omitted) continue;
    fail(ErrorKind::kValue, op.name + ": the call of " + key +
                                (is_omitted ? " gives " : " gives no ") +
                                op.entry->outputs()[static_cast<size_t>(j)].name +
                                "; call the operator of that branch");
  }
}

void run_node(const Operator& op, StableIValue* stack) {
  const Arguments arguments(op, stack);
  const tileops::Op& instance = instance_of(arguments.key);
  if (instance.name() != op.entry->name()) {
    fail(ErrorKind::kValue, op.name + ": the key " + arguments.key + " is of a " + instance.name() +
                                "; the operator is " + op.entry->name() + "'s");
  }
  Results results;
  {
    const Place place(arguments.device);
    results = instance.call_as_node({{arguments.inputs.data(), op.entry->inputs().size()},
                                     {arguments.outs.data(), op.num_outs}});
  }
  check_branch(op, arguments.key, results);
  for (size_t i = 0; i < op.fresh.size(); ++i) stack[i] = from(to_torch(results[op.fresh[i]]));
}

/// MemoryError with a text.
class OutOfMemory final : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// Torch gives Python the class that stands for a standard one: the rest are RuntimeErrors.
[[noreturn]] void rethrow(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::kValue:
    case ErrorKind::kShape:
    case ErrorKind::kDevice:
      throw std::invalid_argument(error.what());  // ValueError
    case ErrorKind::kOutOfMemory:
      throw OutOfMemory(error.what());
    default:
      throw std::runtime_error(error.what());
  }
}

// A kernel of torch's stable ABI is a bare function: a slot of its own tells it its operator.
std::array<const Operator*, kMaxOperators> operators{};

template <size_t kSlot>
void kernel(StableIValue* stack, uint64_t, uint64_t) {
  try {
    run_node(*operators[kSlot], stack);
  } catch (const Error& error) {
    rethrow(error);
  }
}

template <size_t... kSlots>
constexpr auto kernels(std::index_sequence<kSlots...>) {
  return std::array<void (*)(StableIValue*, uint64_t, uint64_t), sizeof...(kSlots)>{
      &kernel<kSlots>...};
}

// ---- Registration

/// Libraries stay open: one that is closed takes its operators away.
TorchLibraryHandle library(const std::string& ns, const char* dispatch_key) {
  static auto& open = *new std::unordered_map<std::string, TorchLibraryHandle>;
  const std::string key = dispatch_key == nullptr ? "" : dispatch_key;
  const auto [it, is_new] = open.try_emplace(ns + "/" + key, nullptr);
  if (!is_new) return it->second;
  if (dispatch_key == nullptr) {
    TORCH_ERROR_CODE_CHECK(
        aoti_torch_library_init_fragment(ns.c_str(), __FILE__, __LINE__, &it->second));
  } else {
    TORCH_ERROR_CODE_CHECK(
        aoti_torch_library_init_impl(ns.c_str(), dispatch_key, __FILE__, __LINE__, &it->second));
  }
  return it->second;
}

void register_operator(Operator op) {
  static constexpr auto kKernels = kernels(std::make_index_sequence<kMaxOperators>());
  static size_t count = 0;
  if (count == kMaxOperators) {
    fail(ErrorKind::kState, op.name + ": more than " + std::to_string(kMaxOperators) +
                                " operators; torch can be given no further one");
  }
  const size_t colons = op.name.find("::");
  const std::string ns = op.name.substr(0, colons), name = op.name.substr(colons + 2);
  TORCH_ERROR_CODE_CHECK(aoti_torch_library_def(library(ns, nullptr), schema_of(op).c_str()));
  for (const char* key : {"CPU", "CUDA"}) {
    TORCH_ERROR_CODE_CHECK(
        torch_library_impl(library(ns, key), name.c_str(), kKernels[count], TORCH_ABI_VERSION));
  }
  operators[count++] = new Operator(std::move(op));  // as long as the process
}

}  // namespace
}  // namespace tileops::torch_adapter

/// Registers the leaf classes that are declared and not registered yet; null, or what went wrong.
/// The text lives until this thread's next call.
extern "C" __attribute__((visibility("default"))) const char* tileops_torch_register() noexcept {
  using namespace tileops;
  static std::mutex mutex;  // one registers at a time
  static auto& registered = *new std::set<std::string>;
  thread_local std::string fault;
  const std::lock_guard lock(mutex);
  try {
    for (const std::string& name : op_class_names()) {
      const std::shared_ptr<const spec::Entry> entry = op_class(name).entry();
      if (!entry->has_compile_boundary() || registered.contains(name)) continue;
      for (torch_adapter::Operator& op : torch_adapter::operators_of(entry)) {
        torch_adapter::register_operator(std::move(op));
      }
      registered.insert(name);
    }
    return nullptr;
  } catch (const std::exception& error) {
    fault = error.what();
    return fault.c_str();
  }
}

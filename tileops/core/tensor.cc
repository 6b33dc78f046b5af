// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/tensor.h"

#include <cstddef>
#include <utility>

#include "tileops/core/allocator.h"
#include "tileops/core/check.h"
#include "tileops/core/launch_batch.h"

namespace tileops {
namespace {

int64_t checked_bytes(int64_t elements, DType dtype, const Shape& shape) {
  int64_t bytes = 0;
  TILEOPS_CHECK(ErrorKind::kShape, !__builtin_mul_overflow(elements, dtype_bytes(dtype), &bytes),
                "{}{} takes more bytes than int64 can count", dtype_name(dtype), to_string(shape));
  return bytes;
}

/// Where there is no more, what this thread's put-off launches hold back is given back first.
void* allocate(Allocator& from, size_t bytes, Stream on) {
  try {
    return from.allocate(bytes, on);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kOutOfMemory || LaunchBatch::current() == nullptr) throw;
  }
  submit_launches();
  return from.allocate(bytes, on);
}

/// Memory of an allocator, which a guard may have lent: one block on the heap.
struct AllocatedStorage : Storage {
  AllocatedStorage(int64_t bytes, Device device, Allocator& from, Stream on,
                   std::shared_ptr<Allocator> held)
      : Storage(allocate(from, static_cast<size_t>(bytes), on), bytes, device, nullptr),
        allocator(from),
        stream(on),
        guarded(std::move(held)) {}
  ~AllocatedStorage() {
    const auto size = static_cast<size_t>(bytes());
    LaunchBatch* batch = LaunchBatch::current();
    if (batch != nullptr && device().type != DeviceType::kCPU) {
      batch->give_back_later({&allocator, std::move(guarded), data(), size, stream});
    } else {
      allocator.deallocate(data(), size, stream);
    }
  }
  Allocator& allocator;
  Stream stream;
  std::shared_ptr<Allocator> guarded;
};

std::shared_ptr<Storage> allocate_storage(int64_t bytes, Device device) {
  if (bytes == 0 || device.type == DeviceType::kMeta) {
    return std::make_shared<Storage>(nullptr, bytes, device, nullptr);
  }
  std::shared_ptr<Allocator> guarded = AllocatorGuard::current(device.type);
  Allocator& allocator = guarded != nullptr ? *guarded : allocator_for(device.type);
  return std::make_shared<AllocatedStorage>(bytes, device, allocator, current_stream(device),
                                            std::move(guarded));
}

/// Another's memory, with what keeps it alive: one block on the heap.
struct LentStorage : Storage {
  LentStorage(void* data, int64_t bytes, Device device, std::shared_ptr<const void> held)
      : Storage(data, bytes, device, nullptr), owner(std::move(held)) {}
  std::shared_ptr<const void> owner;
};

void check_on_cpu(const char* who, const Tensor& tensor) {
  TILEOPS_CHECK(ErrorKind::kValue, tensor.defined(), "{}: the tensor is absent", who);
  TILEOPS_CHECK(ErrorKind::kDevice, tensor.device().type == DeviceType::kCPU,
                "{}: the tensor must be on the cpu, got {}", who, to_string(tensor));
}

}  // namespace

Storage::Storage(void* data, int64_t bytes, Device device, Deleter deleter)
    : data_(data), bytes_(bytes), device_(device), deleter_(std::move(deleter)) {}

Storage::~Storage() {
  if (deleter_) deleter_(data_);
}

Tensor::Tensor(std::shared_ptr<Storage> storage, int64_t offset_bytes, const Shape& shape,
               const Strides& strides, int64_t num_elements, DType dtype)
    : storage_(std::move(storage)),
      offset_bytes_(offset_bytes),
      shape_(shape),
      strides_(strides),
      num_elements_(num_elements),
      dtype_(dtype) {
  if (num_elements_ != 0 && storage_->data() != nullptr) {
    data_ = static_cast<std::byte*>(storage_->data()) + offset_bytes;
  }
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  const Contiguous contiguous(shape);
  const int64_t bytes = checked_bytes(contiguous.num_elements, dtype, shape);
  return Tensor(allocate_storage(bytes, device), 0, shape, contiguous.strides,
                contiguous.num_elements, dtype);
}

Tensor Tensor::from_values(const Shape& shape, DType dtype, std::span<const double> values) {
  TILEOPS_CHECK(ErrorKind::kShape, std::cmp_equal(values.size(), tileops::num_elements(shape)),
                "from_values: shape {} needs {} values, got {}", to_string(shape),
                tileops::num_elements(shape), values.size());
  Tensor tensor = empty(shape, dtype);
  auto* element = tensor.data_as<std::byte>();
  for (const double value : values) {
    store_element(dtype, element, value);
    element += dtype_bytes(dtype);
  }
  return tensor;
}

Tensor Tensor::from_blob(void* data, const Shape& shape, const Strides& strides, DType dtype,
                         Device device, std::shared_ptr<const void> owner) {
  const int64_t bytes = checked_bytes(extent_elements(shape, strides), dtype, shape);
  if (bytes == 0 || device.type == DeviceType::kMeta) data = nullptr;
  const auto address = reinterpret_cast<uintptr_t>(data);
  if (bytes != 0 && device.type != DeviceType::kMeta) {
    TILEOPS_CHECK(ErrorKind::kValue, data != nullptr, "from_blob: null data for {}{}",
                  dtype_name(dtype), to_string(shape));
    TILEOPS_CHECK(ErrorKind::kValue, address % static_cast<uintptr_t>(dtype_bytes(dtype)) == 0,
                  "from_blob: data at {:#x} is not aligned to the {} bytes of {}", address,
                  dtype_bytes(dtype), dtype_name(dtype));
    TILEOPS_CHECK(ErrorKind::kShape, address <= UINTPTR_MAX - static_cast<uintptr_t>(bytes),
                  "from_blob: {} bytes from {:#x} on reach beyond the address space", bytes,
                  address);
  }
  auto storage = std::make_shared<LentStorage>(data, bytes, device, std::move(owner));
  return Tensor(std::move(storage), 0, shape, strides, tileops::num_elements(shape), dtype);
}

int Tensor::resolve_dim(const char* who, int dim) const {
  TILEOPS_CHECK(ErrorKind::kValue, defined(), "{}: the tensor is absent", who);
  TILEOPS_CHECK(ErrorKind::kShape, dim >= -rank() && dim < rank(),
                "{}: there is no dimension {} in {}", who, dim, to_string(*this));
  return dim < 0 ? dim + rank() : dim;
}

int64_t Tensor::size(int i) const { return shape_[resolve_dim("size", i)]; }
int64_t Tensor::stride(int i) const { return strides_[resolve_dim("stride", i)]; }

bool Tensor::is_contiguous() const {
  if (num_elements_ == 0) return true;
  int64_t expected = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape_[i] == 1) continue;
    if (strides_[i] != expected) return false;
    expected *= shape_[i];
  }
  return true;
}

Tensor Tensor::contiguous() const {
  TILEOPS_CHECK(ErrorKind::kValue, defined(), "contiguous: the tensor is absent");
  if (is_contiguous()) return *this;
  if (device().type == DeviceType::kMeta) return empty(shape_, dtype_, device());
  return to(dtype_);
}

Tensor Tensor::to(DType dtype) const {
  check_on_cpu("to", *this);
  Tensor copy = empty(shape_, dtype);
  copy_elements(*this, copy);
  return copy;
}

double Tensor::at(std::initializer_list<int64_t> index) const {
  check_on_cpu("at", *this);
  const Dims indices(index);
  bool is_inside = indices.size() == rank();
  int64_t offset = 0;
  for (int i = 0; is_inside && i < rank(); ++i) {
    is_inside = indices[i] >= 0 && indices[i] < shape_[i];
    if (is_inside) offset += indices[i] * strides_[i];
  }
  TILEOPS_CHECK(ErrorKind::kShape, is_inside, "at: there is no element {} in {}",
                to_string(indices), to_string(*this));
  return load_element(dtype_, data_as<std::byte>() + offset * dtype_bytes(dtype_));
}

bool Tensor::overlaps(const Tensor& other) const {
  if (num_elements_ == 0 || other.num_elements_ == 0) return false;
  if (data_ == nullptr || other.data_ == nullptr) {
    if (storage_ != other.storage_) return false;
  }
  const auto first_byte = [](const Tensor& t) {
    return reinterpret_cast<uintptr_t>(t.storage_->data()) +
           static_cast<uintptr_t>(t.offset_bytes_);
  };
  const auto extent_bytes = [](const Tensor& t) {
    return static_cast<uintptr_t>(extent_elements(t.shape_, t.strides_) * dtype_bytes(t.dtype_));
  };
  const uintptr_t mine = first_byte(*this), others = first_byte(other);
  const Tensor& lower = mine <= others ? *this : other;
  const uintptr_t distance = mine <= others ? others - mine : mine - others;
  const auto rest_of_storage =
      static_cast<uintptr_t>(lower.storage_->bytes() - lower.offset_bytes_);
  return distance < rest_of_storage && distance < extent_bytes(lower);
}

bool Tensor::is_same_view(const Tensor& other) const {
  return storage_ == other.storage_ && offset_bytes_ == other.offset_bytes_ &&
         shape_ == other.shape_ && strides_ == other.strides_ && dtype_ == other.dtype_;
}

std::string to_string(const Tensor& tensor) {
  if (!tensor.defined()) return "absent";
  const std::string strides =
      tensor.is_contiguous() ? "" : fmt::format(" strides {}", to_string(tensor.strides()));
  return fmt::format("{}{}{} on {}", dtype_name(tensor.dtype()), to_string(tensor.shape()), strides,
                     to_string(tensor.device()));
}

}  // namespace tileops

// SPDX-License-Identifier: Apache-2.0
// A managed tensor with any fields is imported, and its deleter called once, or refused with one
// line and left alone; what was imported stands every view.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "tileops/core/dlpack.h"
#include "tileops/core/error.h"

namespace {

using tileops::Tensor;
namespace dlpack = tileops::dlpack;

constexpr size_t kBufferBytes = 256;
constexpr int64_t kMaxCopied = 4096;  // elements; expanded tensors can be larger than memory

void require(bool holds) {
  if (!holds) std::abort();
}

/// Takes values off the front of the input; zeros past its end.
class Reader {
 public:
  Reader(const uint8_t* bytes, size_t size) : bytes_(bytes), size_(size) {}
  template <class T>
  T take() {
    T value{};
    const size_t count = std::min(sizeof(T), size_);
    std::memcpy(&value, bytes_, count);
    bytes_ += count;
    size_ -= count;
    return value;
  }
  /// A size or stride: small where the selecting byte says so.
  int64_t take_dim() {
    const auto selector = take<uint8_t>();
    return selector < 0xf0 ? selector & 0x0f : take<int64_t>();
  }

 private:
  const uint8_t* bytes_;
  size_t size_;
};

/// The error's line is checked; whether there was none.
template <class Call>
bool succeeds(Call&& call) {
  try {
    call();
    return true;
  } catch (const tileops::Error& error) {
    const std::string_view text = error.what();
    require(error.kind() != tileops::ErrorKind::kInternal);
    require(!text.empty() && text.find('\n') == text.npos);
    return false;
  }
}

void view(const Tensor& tensor, Reader& reader) {
  const int a = reader.take<int8_t>();
  const int b = reader.take<int8_t>();
  const int64_t start = reader.take_dim();
  const int64_t length = reader.take_dim();
  const tileops::Shape shape{reader.take_dim(), reader.take_dim()};
  const tileops::Strides strides{reader.take_dim(), reader.take_dim()};
  succeeds([&] { require(tensor.transpose(a, b).num_elements() == tensor.num_elements()); });
  succeeds([&] { tensor.overlaps(tensor.narrow(a, start, length)); });
  succeeds([&] { tensor.overlaps(tensor.select(b, start)); });
  succeeds([&] { require(tensor.reshape(shape).num_elements() == tensor.num_elements()); });
  succeeds([&] { tensor.overlaps(tensor.as_strided(shape, strides, start)); });
}

struct Producer {
  std::unique_ptr<uint8_t[]> buffer{new uint8_t[kBufferBytes]()};
  std::vector<int64_t> shape, strides;
  int num_deleted = 0;
};

void fill(dlpack::DLTensor& tensor, Producer& producer, Reader& reader) {
  const auto flags = reader.take<uint8_t>();
  tensor.data = (flags & 1) != 0 ? nullptr : producer.buffer.get();
  tensor.byte_offset = (flags & 2) != 0 ? reader.take<uint64_t>() : reader.take<uint8_t>();
  tensor.device = {(flags & 4) != 0 ? reader.take<int32_t>() : dlpack::kCpu, reader.take<int8_t>()};
  tensor.dtype = {reader.take<uint8_t>(), reader.take<uint8_t>(),
                  (flags & 8) != 0 ? reader.take<uint16_t>() : uint16_t{1}};
  tensor.ndim = (flags & 16) != 0 ? reader.take<int32_t>() : reader.take<uint8_t>() % 10;
  // As many as there can be, and no more, so that reads beyond them are seen.
  const int32_t count = std::clamp(tensor.ndim, 0, 16);
  for (int32_t i = 0; i < count; ++i) producer.shape.push_back(reader.take_dim());
  for (int32_t i = 0; i < count; ++i) producer.strides.push_back(reader.take_dim());
  producer.shape.shrink_to_fit();
  producer.strides.shrink_to_fit();
  tensor.shape = (flags & 32) != 0 ? nullptr : producer.shape.data();
  tensor.strides = (flags & 64) != 0 ? nullptr : producer.strides.data();
}

void read(const Tensor& tensor, const Producer& producer) {
  if (tensor.device().type != tileops::DeviceType::kCPU || tensor.num_elements() > kMaxCopied)
    return;
  const auto begin = reinterpret_cast<uintptr_t>(producer.buffer.get());
  const auto first = reinterpret_cast<uintptr_t>(tensor.data());
  const auto bytes = static_cast<uint64_t>(tensor.storage()->bytes());
  if (tensor.num_elements() != 0 &&
      (first < begin || first - begin > kBufferBytes || bytes > kBufferBytes - (first - begin))) {
    return;
  }
  require(tensor.to(tileops::DType::kF64).num_elements() == tensor.num_elements());
}

template <class Managed>
void import(Reader& reader) {
  Producer producer;
  Managed managed{};
  managed.manager_ctx = &producer;
  managed.deleter = [](Managed* self) { ++static_cast<Producer*>(self->manager_ctx)->num_deleted; };
  if constexpr (requires { managed.version; }) {
    managed.version.major = reader.take<uint8_t>() % 3;
    managed.flags = reader.take<uint8_t>();
  }
  fill(managed.dl_tensor, producer, reader);
  const bool is_imported = succeeds([&] {
    Tensor tensor = dlpack::import_managed(&managed);
    require(producer.num_deleted == 0);
    tileops::to_string(tensor);
    read(tensor, producer);
    view(tensor, reader);
    const Tensor again = dlpack::import_managed(dlpack::export_managed_versioned(tensor));
    require(again.data() == tensor.data() && again.shape() == tensor.shape());
    tensor = {};
    require(producer.num_deleted == 0);
  });
  require(producer.num_deleted == (is_imported ? 1 : 0));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  Reader reader(bytes, size);
  if (reader.take<uint8_t>() % 2 == 0) {
    import <dlpack::DLManagedTensor>(reader);
  } else {
    import <dlpack::DLManagedTensorVersioned>(reader);
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Any bytes are a checked set of tensors or one line of an error.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "tileops/core/error.h"
#include "tileops/core/safetensors.h"

namespace {

using tileops::Tensor;

void require(bool holds) {
  if (!holds) std::abort();
}

void parse(const uint8_t* bytes, size_t size) {
  std::shared_ptr<uint8_t[]> image(new uint8_t[size]);  // exact, so that reads beyond it are seen
  if (size != 0) std::memcpy(image.get(), bytes, size);
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
  try {
    tensors = tileops::parse_safetensors(image.get(), size, "x", image, &metadata);
  } catch (const tileops::Error& error) {
    const std::string_view text = error.what();
    require(error.kind() == tileops::ErrorKind::kIo && text.starts_with("x: "));
    require(text.find('\n') == text.npos && text.size() < 1000);
    return;
  }
  image.reset();
  int64_t data_bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    require(tensor.is_contiguous());
    const int64_t element = tileops::dtype_bytes(tensor.dtype());
    const int64_t tensor_bytes = tensor.num_elements() * element;
    data_bytes += tensor_bytes;
    require((tensor.data() == nullptr) == (tensor_bytes == 0));
    if (tensor_bytes == 0) continue;
    require(reinterpret_cast<uintptr_t>(tensor.data()) % static_cast<uintptr_t>(element) == 0);
    tileops::load_element(tensor.dtype(), tensor.data());
    tileops::load_element(tensor.dtype(), tensor.data_as<std::byte>() + tensor_bytes - element);
  }
  require(data_bytes <= static_cast<int64_t>(size));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  parse(bytes, size);
  // Once more with a header length that fits, so that mutations reach the JSON and the offsets.
  if (size < 9) return 0;
  std::vector<uint8_t> fitting(bytes, bytes + size);
  uint64_t length = 0;
  std::memcpy(&length, bytes, sizeof(length));
  length %= size - 7;
  std::memcpy(fitting.data(), &length, sizeof(length));
  if (!std::equal(fitting.begin(), fitting.end(), bytes)) parse(fitting.data(), size);
  return 0;
}

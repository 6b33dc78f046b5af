// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "tileops/core/check.h"
#include "tileops/core/file_descriptor.h"
#include "tileops/core/safetensors.h"
#include "tileops/core/safetensors_header.h"

namespace tileops {
namespace {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using safetensors::printable;

int64_t bytes_of(const Tensor& tensor) {
  return tensor.num_elements() * dtype_bytes(tensor.dtype());
}

void check_tensors(const std::string& path, const NamedTensors& tensors) {
  std::set<std::string_view> seen;
  for (const auto& [name, tensor] : tensors) {
    TILEOPS_CHECK(ErrorKind::kValue, name != "__metadata__",
                  "{}: a tensor cannot be named __metadata__", path);
    TILEOPS_CHECK(ErrorKind::kValue, seen.insert(name).second, "{}: tensor {}: appears twice", path,
                  printable(name));
    TILEOPS_CHECK(ErrorKind::kValue, tensor.defined(), "{}: tensor {}: is absent", path,
                  printable(name));
    TILEOPS_CHECK(ErrorKind::kDevice, tensor.device().type == DeviceType::kCPU,
                  "{}: tensor {}: must be on the cpu to be written, got {}", path, printable(name),
                  to_string(tensor));
  }
}

/// The tensors in the order of their data: widest dtype first, so that each is aligned.
std::vector<size_t> data_order(const NamedTensors& tensors) {
  std::vector<size_t> order;
  for (size_t i = 0; i < tensors.size(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return dtype_bytes(tensors[a].second.dtype()) > dtype_bytes(tensors[b].second.dtype());
  });
  return order;
}

std::string quoted(const std::string& path, const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    using Handler = nlohmann::json::error_handler_t;
    raise(ErrorKind::kValue, "{}: the name {} is not UTF-8", path,
          nlohmann::json(text).dump(-1, ' ', false, Handler::replace));
  }
}

/// The length and the JSON, padded with spaces so that the data begins at a multiple of 8 bytes.
std::string header_text(const std::string& path, const NamedTensors& tensors,
                        const std::vector<size_t>& order,
                        const std::map<std::string, std::string>& metadata) {
  std::vector<int64_t> begins(tensors.size());
  int64_t end = 0;
  for (const size_t i : order) {
    begins[i] = end;
    end += bytes_of(tensors[i].second);
  }
  std::string fields;
  for (const auto& [key, value] : metadata) {
    fields +=
        fmt::format("{}{}:{}", fields.empty() ? "" : ",", quoted(path, key), quoted(path, value));
  }
  std::string json = "{";
  if (!metadata.empty()) json += fmt::format("\"__metadata__\":{{{}}}", fields);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    json += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        json.size() > 1 ? "," : "", quoted(path, name),
                        safetensors::format_dtype_name(tensor.dtype()),
                        fmt::join(tensor.shape(), ","), begins[i], begins[i] + bytes_of(tensor));
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');
  const uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + json;
}

/// A file beside `path` that takes its place when committed, and is removed when not.
class ReplacementFile {
 public:
  explicit ReplacementFile(const std::string& path)
      : path_(path),
        temporary_(fmt::format("{}.tmp.{}.{}", path, ::getpid(), next_number())),
        file_(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
    check(file_.is_open(), "cannot be created");
  }
  ~ReplacementFile() {
    if (!is_committed_ && file_.is_open()) ::unlink(temporary_.c_str());
  }
  ReplacementFile(const ReplacementFile&) = delete;
  ReplacementFile& operator=(const ReplacementFile&) = delete;

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      check(written > 0, "cannot be written");
      bytes.remove_prefix(static_cast<size_t>(written));
    }
  }

  void commit() {
    check(::fsync(file_.get()) == 0, "cannot be written");
    check(std::rename(temporary_.c_str(), path_.c_str()) == 0, "cannot be replaced");
    is_committed_ = true;
  }

 private:
  static uint64_t next_number() {
    static constinit std::atomic<uint64_t> number = 0;
    return ++number;
  }
  void check(bool holds, const char* fault) const {
    TILEOPS_CHECK(ErrorKind::kIo, holds, "{}: {}: {}", path_, fault, std::strerror(errno));
  }

  std::string path_;
  std::string temporary_;
  FileDescriptor file_;
  bool is_committed_ = false;
};

}  // namespace

void write_safetensors(const std::string& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata) {
  check_tensors(path, tensors);
  const std::vector<size_t> order = data_order(tensors);
  const std::string header = header_text(path, tensors, order, metadata);
  ReplacementFile file(path);
  file.write(header);
  for (const size_t i : order) {
    const Tensor tensor = tensors[i].second.contiguous();
    file.write({tensor.data_as<const char>(), static_cast<size_t>(bytes_of(tensor))});
  }
  file.commit();
}

}  // namespace tileops

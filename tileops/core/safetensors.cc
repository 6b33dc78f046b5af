// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "tileops/core/check.h"
#include "tileops/core/file_descriptor.h"
#include "tileops/core/safetensors_header.h"

namespace tileops {
namespace {

struct Image {
  std::shared_ptr<const void> data;
  size_t bytes = 0;
};

Image map_file(const std::string& path) {
  // Not to block where the path is a pipe.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  TILEOPS_CHECK(ErrorKind::kIo, file.is_open(), "{}: cannot be opened: {}", path,
                std::strerror(errno));
  struct stat facts {};
  TILEOPS_CHECK(ErrorKind::kIo, ::fstat(file.get(), &facts) == 0, "{}: cannot be read: {}", path,
                std::strerror(errno));
  TILEOPS_CHECK(ErrorKind::kIo, S_ISREG(facts.st_mode), "{}: is not a regular file", path);
  const auto bytes = static_cast<size_t>(facts.st_size);
  if (bytes == 0) return {};
  // Private and writable: writes go to copies of the pages, never to the file.
  void* data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
  TILEOPS_CHECK(ErrorKind::kIo, data != MAP_FAILED, "{}: cannot be mapped: {}", path,
                std::strerror(errno));
  return {std::shared_ptr<const void>(
              data, [bytes](const void* p) { ::munmap(const_cast<void*>(p), bytes); }),
          bytes};
}

Tensor tensor_of(const safetensors::Entry& entry, const std::byte* data,
                 const std::shared_ptr<const void>& owner) {
  const std::byte* first = data + entry.begin;
  const auto alignment = static_cast<uintptr_t>(dtype_bytes(entry.dtype));
  if (reinterpret_cast<uintptr_t>(first) % alignment == 0) {
    return Tensor::from_blob(const_cast<std::byte*>(first), entry.shape,
                             contiguous_strides(entry.shape), entry.dtype, kCpuDevice, owner);
  }
  Tensor copy = Tensor::empty(entry.shape, entry.dtype);
  if (copy.data() != nullptr) std::memcpy(copy.data(), first, entry.end - entry.begin);
  return copy;
}

std::map<std::string, Tensor> tensors_of(const safetensors::Header& header, const void* image,
                                         const std::shared_ptr<const void>& owner) {
  const std::byte* data = static_cast<const std::byte*>(image) + header.data_offset;
  std::map<std::string, Tensor> tensors;
  for (const safetensors::Entry& entry : header.entries) {
    tensors.emplace(entry.name, tensor_of(entry, data, owner));
  }
  return tensors;
}

}  // namespace

std::map<std::string, Tensor> parse_safetensors(const void* data, size_t bytes,
                                                const std::string& source,
                                                const std::shared_ptr<const void>& owner,
                                                std::map<std::string, std::string>* metadata) {
  safetensors::Header header =
      safetensors::parse_header({static_cast<const char*>(data), bytes}, source);
  std::map<std::string, Tensor> tensors = tensors_of(header, data, owner);
  if (metadata != nullptr) *metadata = std::move(header.metadata);
  return tensors;
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  const Image image = map_file(path);
  safetensors::Header header =
      safetensors::parse_header({static_cast<const char*>(image.data.get()), image.bytes}, path);
  SafetensorsFile file;
  file.path_ = path;
  file.tensors_ = tensors_of(header, image.data.get(), image.data);
  for (safetensors::Entry& entry : header.entries) file.names_.push_back(std::move(entry.name));
  file.metadata_ = std::move(header.metadata);
  return file;
}

Tensor SafetensorsFile::tensor(const std::string& name) const {
  const auto it = tensors_.find(name);
  if (it != tensors_.end()) return it->second;
  std::string held;
  for (const std::string& there : names_) {
    held += (held.empty() ? "" : ", ") + safetensors::printable(there);
  }
  raise(ErrorKind::kIo, "{}: there is no tensor {}; it holds: {}", path_,
        safetensors::printable(name), held.empty() ? "none" : held);
}

}  // namespace tileops

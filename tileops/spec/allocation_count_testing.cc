// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/allocation_count_testing.h"

#include <cstdlib>
#include <new>

namespace {
thread_local int64_t count = 0;
}  // namespace

void* operator new(size_t size) {
  ++count;
  if (void* data = std::malloc(size)) return data;
  throw std::bad_alloc();
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++count;
  return std::malloc(size);
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }

namespace tileops::spec {

int64_t allocation_count() { return count; }

}  // namespace tileops::spec

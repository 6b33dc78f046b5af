// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/workspace.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "tileops/core/check.h"

namespace tileops {
namespace {

/// Smaller tensors (metadata, which records keep) come from the allocator, and hold no block.
constexpr size_t kSmallBytes = 64 << 10;
constexpr size_t kMaxKeptBlocks = 2;

/// Blocks that wait for the next call, largest last. Never destroyed: tensors may outlive globals.
class KeptBlocks {
 public:
  KeptBlocks() { blocks_.reserve(kMaxKeptBlocks + 1); }

  Tensor take(int64_t bytes) {
    {
      std::lock_guard lock(mutex_);
      const auto it = std::find_if(blocks_.begin(), blocks_.end(), [&](const Tensor& block) {
        return block.num_elements() >= bytes;
      });
      if (it != blocks_.end()) {
        Tensor block = std::move(*it);
        blocks_.erase(it);
        return block;
      }
    }
    total_bytes_.fetch_add(bytes);
    return Tensor::empty({bytes}, DType::kU8);
  }

  void give_back(Tensor block) {
    std::lock_guard lock(mutex_);
    const auto at = std::find_if(blocks_.begin(), blocks_.end(), [&](const Tensor& each) {
      return each.num_elements() >= block.num_elements();
    });
    blocks_.insert(at, std::move(block));
    if (blocks_.size() <= kMaxKeptBlocks) return;
    total_bytes_.fetch_sub(blocks_.front().num_elements());
    blocks_.erase(blocks_.begin());
  }

  void release() {
    std::lock_guard lock(mutex_);
    for (const Tensor& block : blocks_) total_bytes_.fetch_sub(block.num_elements());
    blocks_.clear();
  }

  int64_t total_bytes() const { return total_bytes_.load(); }

 private:
  std::mutex mutex_;  // guards blocks_
  std::vector<Tensor> blocks_;
  std::atomic<int64_t> total_bytes_{0};
};

KeptBlocks& kept_blocks() {
  static KeptBlocks& blocks = *new KeptBlocks;
  return blocks;
}

/// Hands out one block from its start; nothing is reused while anything of it is in use. A kept
/// block goes back when neither the guard nor a tensor uses it any more.
class BlockAllocator final : public Allocator {
 public:
  BlockAllocator(Tensor block, bool is_kept)
      : block_(std::move(block)),
        is_kept_(is_kept),
        outer_(AllocatorGuard::current(block_.device().type)),
        plain_(outer_ != nullptr ? outer_.get() : &allocator_for(block_.device().type)) {}

  void* allocate(size_t bytes, Stream stream) override {
    if (is_kept_ && bytes < kSmallBytes) return plain_->allocate(bytes, stream);
    const auto size = padded_bytes(static_cast<int64_t>(bytes));
    const int64_t at = used_bytes_.fetch_add(size);
    if (at + size <= usable_bytes()) {
      num_users_.fetch_add(1);
      return first() + at;
    }
    TILEOPS_CHECK(ErrorKind::kValue, is_kept_, "workspace: {} bytes hold no {} more after {}",
                  block_.num_elements(), size, at);
    return plain_->allocate(bytes, stream);
  }

  void deallocate(void* data, size_t bytes, Stream stream) noexcept override {
    const auto* byte = static_cast<std::byte*>(data);
    const bool is_of_block = num_users_ > 0 && byte >= first() && byte < first() + usable_bytes();
    if (is_of_block) {
      release();
    } else {
      plain_->deallocate(data, bytes, stream);
    }
  }

  /// One user less: a tensor of the block, or the guard.
  void release() noexcept {
    if (num_users_.fetch_sub(1) == 1 && is_kept_) kept_blocks().give_back(std::move(block_));
  }

 private:
  std::byte* first() const {
    auto* data = block_.data_as<std::byte>();
    return data + (-reinterpret_cast<uintptr_t>(data) & 255);
  }
  int64_t usable_bytes() const {
    return block_.num_elements() - (first() - block_.data_as<std::byte>());
  }

  Tensor block_;
  bool is_kept_;
  std::shared_ptr<Allocator> outer_;
  Allocator* plain_;  // serves what the block does not
  std::atomic<int64_t> used_bytes_{0};
  std::atomic<int64_t> num_users_{1};
};

constinit thread_local const WorkspaceScope* innermost_scope = nullptr;

void check_workspace(const char* op, const Tensor& workspace, Device device, int64_t bytes) {
  TILEOPS_CHECK(ErrorKind::kValue,
                workspace.dtype() == DType::kU8 && workspace.is_contiguous() &&
                    workspace.num_elements() >= bytes,
                "{}: workspace must be contiguous uint8 of at least {} bytes, got {}", op, bytes,
                to_string(workspace));
  TILEOPS_CHECK(ErrorKind::kDevice, workspace.device() == device,
                "{}: workspace is on {}, the call on {}", op, to_string(workspace.device()),
                to_string(device));
}

}  // namespace

WorkspaceScope::WorkspaceScope(const Tensor& workspace)
    : workspace_(workspace), outer_(innermost_scope) {
  if (workspace_.defined()) innermost_scope = this;
}

WorkspaceScope::~WorkspaceScope() { innermost_scope = outer_; }

Tensor WorkspaceScope::current() {
  return innermost_scope == nullptr ? Tensor() : innermost_scope->workspace_;
}

IntermediatesGuard::IntermediatesGuard(const char* op, Device device, int64_t bytes) {
  Tensor block = WorkspaceScope::current();
  const bool is_kept = !block.defined();
  if (is_kept) {
    if (device.type != DeviceType::kCPU || bytes < static_cast<int64_t>(kSmallBytes)) return;
    block = kept_blocks().take(bytes + 256);
  } else {
    check_workspace(op, block, device, bytes);
  }
  auto allocator = std::make_shared<BlockAllocator>(std::move(block), is_kept);
  guard_.emplace(device.type, allocator);
  release_ = [allocator = std::move(allocator)] { allocator->release(); };
}

IntermediatesGuard::~IntermediatesGuard() {
  if (release_) release_();
}

int64_t kept_workspace_bytes() { return kept_blocks().total_bytes(); }

void release_kept_workspace() { kept_blocks().release(); }

}  // namespace tileops

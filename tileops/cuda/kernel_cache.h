// SPDX-License-Identifier: Apache-2.0
// Programs in memory: each built once a process (or read from disk), loaded once a device.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_set>

#include "tileops/core/embedded.h"
#include "tileops/core/once_map.h"
#include "tileops/core/stream.h"
#include "tileops/cuda/context.h"
#include "tileops/cuda/disk_cache.h"
#include "tileops/cuda/module.h"
#include "tileops/cuda/program.h"

namespace tileops::cuda {

/// Thread safety: all members. Concurrent askers of one program wait for its one build; a build
/// that failed is forgotten, and its log is told by the first error alone.
class KernelCache {
 public:
  struct Options {
    std::span<const EmbeddedFile> headers;
    std::string folder;  // empty: memory only
  };
  explicit KernelCache(Options options);

  /// The loaded program for a stream's device; kept for the life of the cache.
  /// Errors: kBuild (NVRTC's log; asked during a capture; not built before tileops::freeze()), kDevice.
  const Module& get(const ProgramSpec& spec, Stream stream);

  /// The machine code for an architecture; needs no GPU. Errors: kBuild.
  std::shared_ptr<const Binary> binary(const ProgramSpec& spec, const std::string& arch);

  /// Builds what is not on disk yet, on several threads, and tells each when it is there.
  /// Errors: the first build's that failed, after all others are done.
  using Progress = std::function<void(const ProgramSpec& spec, bool built)>;
  void warm(std::span<const ProgramSpec> specs, const std::string& arch, int num_threads,
            const Progress& progress = nullptr);

  /// The program's file name on disk: a hash of all sources, options, NVRTC version and
  /// architecture. Errors: kBuild (no NVRTC).
  std::string disk_key(const ProgramSpec& spec, const std::string& arch) const;

 private:
  struct BinaryKey {
    ProgramSpec spec;
    std::string arch;
    bool operator==(const BinaryKey&) const = default;
  };
  struct ModuleKey {
    ProgramSpec spec;
    int32_t device = 0;
    bool operator==(const ModuleKey&) const = default;
  };
  struct KeyHash {
    size_t operator()(const BinaryKey& key) const;
    size_t operator()(const ModuleKey& key) const;
  };

  std::shared_ptr<const Binary> binary(const ProgramSpec& spec, const std::string& arch,
                                       bool& built);
  Binary compile_spec(const ProgramSpec& spec, const std::string& arch);

  const Options options_;
  DiskCache disk_;
  OnceMap<BinaryKey, std::shared_ptr<const Binary>, KeyHash> binaries_;
  OnceMap<ModuleKey, std::shared_ptr<const Module>, KeyHash> modules_;
  std::mutex mutex_;  // guards told_logs_
  std::unordered_set<std::string> told_logs_;
};

/// The process's cache: the embedded device files, the default folder. Never destroyed.
KernelCache& kernel_cache();

/// A program that an implementation launches, found in the process's cache at its first use on a
/// device; afterwards one load. The host side of a kernel is then three functions: `refuse`,
/// `choose_config`, and a `launch` that ends in
///   cuda::launch(program_.function(stream), shape, stream, params);
/// Thread safety: all members.
class LazyProgram {
 public:
  explicit LazyProgram(ProgramSpec spec) : spec_(std::move(spec)) {}

  const ProgramSpec& spec() const { return spec_; }
  /// Errors: KernelCache::get's.
  const Function& function(Stream stream, size_t index = 0);

 private:
  ProgramSpec spec_;
  std::array<std::atomic<const Module*>, kMaxDevices> modules_{};
};

}  // namespace tileops::cuda

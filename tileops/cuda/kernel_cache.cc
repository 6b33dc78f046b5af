// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/kernel_cache.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <vector>

#include "tileops/core/check.h"
#include "tileops/core/freeze.h"
#include "tileops/core/hash.h"
#include "tileops/core/log.h"
#include "tileops/cuda/binary_format.h"
#include "tileops/cuda/launch.h"
#include "tileops/cuda/nvrtc.h"
#include "tileops/dispatch/kernel.h"

namespace tileops::cuda {
namespace {

/// Fields of a text whose hash is a key: each with its length, so that none runs into the next.
void append(std::string& text, std::string_view field) {
  text += fmt::format("{}:", field.size());
  text += field;
}

}  // namespace

KernelCache::KernelCache(Options options) : options_(std::move(options)), disk_(options_.folder) {}

size_t KernelCache::KeyHash::operator()(const BinaryKey& key) const {
  return hash_mix(ProgramSpecHash()(key.spec), hash_of(key.arch));
}

size_t KernelCache::KeyHash::operator()(const ModuleKey& key) const {
  return hash_mix(ProgramSpecHash()(key.spec), hash_of(key.device));
}

std::string KernelCache::disk_key(const ProgramSpec& spec, const std::string& arch) const {
  std::string text;
  append(text, nvrtc_version());
  append(text, arch);
  append(text, spec.source);
  for (const std::string& kernel : spec.kernels) append(text, kernel);
  append(text, "options");
  for (const std::string& option : spec.options) append(text, option);
  append(text, "headers");
  for (const EmbeddedFile& file : options_.headers) {
    append(text, file.path);
    append(text, file.text);
  }
  return content_hash(text);
}

Binary KernelCache::compile_spec(const ProgramSpec& spec, const std::string& arch) {
  TILEOPS_CHECK(ErrorKind::kBuild, !is_frozen(),
                "{}: not built for {}, and building was ended by freeze(); build it ahead with "
                "`tileops warm`, or call it once before freeze()",
                spec.name, arch);
  const auto start = std::chrono::steady_clock::now();
  CompiledProgram compiled;
  try {
    compiled = compile({.name = spec.name,
                        .source = spec.source,
                        .headers = options_.headers,
                        .kernels = spec.kernels,
                        .options = spec.options,
                        .arch = arch});
  } catch (const Error& error) {
    std::lock_guard lock(mutex_);
    if (told_logs_.insert(error.what()).second) throw;
    raise(ErrorKind::kBuild, "{}: NVRTC failed for {} once more, with the log told before",
          spec.name, arch);
  }
  if (log_on(Log::kBuild)) {
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    log_line(Log::kBuild, fmt::format("built {} for {} in {:.0f} ms, {} bytes{}{}", spec.name, arch,
                                      took.count(), compiled.cubin.size(),
                                      compiled.log.empty() ? "" : "\n", compiled.log));
  }
  return {std::move(compiled.cubin), std::move(compiled.symbols)};
}

std::shared_ptr<const Binary> KernelCache::binary(const ProgramSpec& spec, const std::string& arch,
                                                  bool& built) {
  built = false;
  const auto build = [&] {
    return std::make_shared<const Binary>(disk_.load_or_build(
        disk_key(spec, arch), [&] { return compile_spec(spec, arch); }, built));
  };
  return binaries_.get_or_build({spec, arch}, build).value;
}

std::shared_ptr<const Binary> KernelCache::binary(const ProgramSpec& spec,
                                                  const std::string& arch) {
  bool built = false;
  return binary(spec, arch, built);
}

const Module& KernelCache::get(const ProgramSpec& spec, Stream stream) {
  const ModuleKey key{spec, stream.device.index};
  if (const auto known = modules_.find(key)) return *known;
  TILEOPS_CHECK(ErrorKind::kBuild, !is_capturing(stream),
                "{}: not loaded on {} yet, and a stream capture allows no building: make one warm "
                "call before capturing",
                spec.name, to_string(stream.device));
  const auto load = [&] {
    const std::string& arch = device_facts(stream.device).archs.front();
    return std::make_shared<const Module>(spec.name, *binary(spec, arch), stream.device);
  };
  return *modules_.get_or_build(key, load).value;
}

void KernelCache::warm(std::span<const ProgramSpec> specs, const std::string& arch, int num_threads,
                       const Progress& progress) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;  // guards failure and the calls of progress
  std::exception_ptr failure;
  const auto work = [&] {
    for (size_t i = next++; i < specs.size(); i = next++) {
      try {
        bool built = false;
        binary(specs[i], arch, built);
        std::lock_guard lock(mutex);
        if (progress) progress(specs[i], built);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 1; i < num_threads; ++i) threads.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tileops::cuda

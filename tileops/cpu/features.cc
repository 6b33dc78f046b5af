// SPDX-License-Identifier: Apache-2.0
#include "tileops/cpu/features.h"

#include <array>
#include <cstdlib>

#include "tileops/core/check.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tileops::cpu {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"baseline", "sse4",        "avx2",
                                                    "avx512",   "avx512_bf16", "amx"};

#if defined(__x86_64__)

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

uint64_t enabled_state() {  // XCR0: the register states that the operating system saves
  uint32_t low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

bool all_bits(uint64_t value, uint64_t bits) { return (value & bits) == bits; }

bool request_amx_state() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

IsaLevel detect() {
  const Registers basic = cpuid(1, 0);
  const Registers extended = cpuid(7, 0);
  constexpr uint32_t kSse42 = (1u << 9) | (1u << 19) | (1u << 20) | (1u << 1);  // with PCLMUL
  if (!all_bits(basic.ecx, kSse42)) return IsaLevel::kBaseline;

  constexpr uint32_t kOsxsave = 1u << 27;
  const uint64_t state = (basic.ecx & kOsxsave) != 0 ? enabled_state() : 0;
  constexpr uint32_t kFmaAvxF16c = (1u << 12) | (1u << 28) | (1u << 29);
  constexpr uint32_t kBmiAvx2 = (1u << 3) | (1u << 5) | (1u << 8);
  constexpr uint64_t kYmmState = 0x6, kZmmState = 0xe6, kTileState = 0x60000;
  if (!all_bits(basic.ecx, kFmaAvxF16c) || !all_bits(extended.ebx, kBmiAvx2) ||
      !all_bits(state, kYmmState)) {
    return IsaLevel::kSse4;
  }
  constexpr uint32_t kAvx512 = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31);
  if (!all_bits(extended.ebx, kAvx512) || !all_bits(state, kZmmState)) return IsaLevel::kAvx2;
  constexpr uint32_t kAvx512Bf16 = 1u << 5;
  if (!all_bits(cpuid(7, 1).eax, kAvx512Bf16)) return IsaLevel::kAvx512;
  constexpr uint32_t kAmxBf16Tile = (1u << 22) | (1u << 24);
  if (!all_bits(extended.edx, kAmxBf16Tile) || !all_bits(state, kTileState) ||
      !request_amx_state()) {
    return IsaLevel::kAvx512Bf16;
  }
  return IsaLevel::kAmx;
}

bool is_amd() {
  const Registers vendor = cpuid(0, 0);  // "AuthenticAMD" in ebx, edx, ecx
  return vendor.ebx == 0x68747541 && vendor.edx == 0x69746e65 && vendor.ecx == 0x444d4163;
}

#else

IsaLevel detect() { return IsaLevel::kBaseline; }
bool is_amd() { return false; }

#endif

IsaLevel choose_active() {
  const char* forced = std::getenv("TILEOPS_CPU_ISA");
  if (forced == nullptr || *forced == '\0') return supported_isa();
  const std::optional<IsaLevel> level = parse_isa_level(forced);
  TILEOPS_CHECK(ErrorKind::kValue, level.has_value(), "TILEOPS_CPU_ISA must be one of {}, got {}",
                fmt::join(kNames, ", "), forced);
  TILEOPS_CHECK(ErrorKind::kValue, *level <= supported_isa(),
                "TILEOPS_CPU_ISA must be at most {} on this machine, got {}",
                name_of(supported_isa()), forced);
  return *level;
}

}  // namespace

std::string_view name_of(IsaLevel level) { return kNames[static_cast<size_t>(level)]; }

std::optional<IsaLevel> parse_isa_level(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<IsaLevel>(i);
  }
  return std::nullopt;
}

IsaLevel supported_isa() {
  static const IsaLevel level = detect();
  return level;
}

IsaLevel active_isa() {
  static const IsaLevel level = choose_active();
  return level;
}

bool bf16_dot_outruns_fma() {
  static const bool outruns = supported_isa() >= IsaLevel::kAvx512Bf16 && is_amd();
  return outruns;
}

int64_t least_rows_to_fetch_for(IsaLevel level) {
  static const bool amd = is_amd();
  if (!amd) return 1;
  return level >= IsaLevel::kAvx512 ? 2 : 3;
}

std::vector<IsaLevel> available_isa_levels() {
  std::vector<IsaLevel> levels;
  for (int i = 0; i <= static_cast<int>(active_isa()); ++i) {
    levels.push_back(static_cast<IsaLevel>(i));
  }
  return levels;
}

}  // namespace tileops::cpu

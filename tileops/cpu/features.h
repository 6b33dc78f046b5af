// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tileops::cpu {

/// Instruction sets that kernels are built for; each level includes those before it.
enum class IsaLevel : uint8_t {
  kBaseline,    // what the compiler's default target guarantees
  kSse4,        // SSE4.2
  kAvx2,        // AVX2, FMA, F16C
  kAvx512,      // AVX-512 F, BW, DQ, VL
  kAvx512Bf16,  // and AVX512_BF16 (vdpbf16ps)
  kAmx,         // and AMX-TILE, AMX-BF16, with the kernel's permission to use the tile state
};

/// The name as TILEOPS_CPU_ISA takes it: baseline, sse4, avx2, avx512, avx512_bf16, amx.
std::string_view name_of(IsaLevel level);
std::optional<IsaLevel> parse_isa_level(std::string_view name);

/// Highest level that this processor and its operating system run; the first call asks Linux for
/// the AMX tile state.
IsaLevel supported_isa();

/// Level that kernels use: supported_isa(), or TILEOPS_CPU_ISA (read once) where set.
/// Errors: kValue (TILEOPS_CPU_ISA is no level's name, or a level above supported_isa()).
IsaLevel active_isa();

/// Whether vdpbf16ps does more bf16 products in a second than widening them to f32 FMA does: twice
/// as many on Zen 4 and 5, half as many on the Intel cores measured. By the vendor, so that a
/// machine's bits never depend on a measurement.
bool bf16_dot_outruns_fma();

/// From so many rows on, a loop must fetch the weights that it streams: below, the processor itself
/// reads ahead, and fetches only take its buffers. 1 but on AMD, where it is 3 at the AVX2 level (Zen
/// 3 and 4) and 2 with AVX-512 (Zen 5). By the vendor, as above.
int64_t least_rows_to_fetch_for(IsaLevel level);

/// Every level up to active_isa(), lowest first.
std::vector<IsaLevel> available_isa_levels();

}  // namespace tileops::cpu

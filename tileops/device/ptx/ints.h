// SPDX-License-Identifier: Apache-2.0
// Fixed-width integers for text that both NVRTC (no headers at all) and a host compiler read.
#pragma once

#if defined(__CUDACC_RTC__)
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;
#define TILEOPS_DEVICE __device__  // of a constexpr function that the host calls too
#else
#include <cstdint>
#define TILEOPS_DEVICE
#endif

// SPDX-License-Identifier: Apache-2.0
// For nvtx_test: a library of NVTX's name that notes its calls.
extern "C" {

int num_pushed = 0;
int num_popped = 0;
const char* last_pushed = nullptr;

int nvtxRangePushA(const char* text) {
  last_pushed = text;
  return num_pushed++;
}
int nvtxRangePop() { return num_popped++; }
}

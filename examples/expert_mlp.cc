// SPDX-License-Identifier: Apache-2.0
// An expert MLP on tensors from a safetensors file: called, explained, priced, traced.
//
//   example_expert_mlp examples/data/expert_mlp.safetensors
#include <cstdio>
#include <exception>

#include "tileops/tileops.h"

namespace {

void run(const char* path) {
  using namespace tileops;
  const SafetensorsFile file = SafetensorsFile::open(path);
  const Tensor inputs[] = {file.tensor("expert_input"), file.tensor("w_gate_up"),
                           file.tensor("w_down"), file.tensor("layout_metadata")};

  const MoEExpertMLPFwdOp mlp(MGroupedLayout::contiguous(), GatedActivation::silu_and_mul);
  const Tensor out = mlp(inputs[0], inputs[1], inputs[2], inputs[3]);
  const Tensor expected = file.tensor("expected.out");
  std::printf("out %s; out[0, 0] is %g, and PyTorch has %g\n", to_string(out).c_str(),
              out.at({0, 0}), expected.at({0, 0}));

  const RecordPtr call = mlp.last_call();
  std::printf("gate_up computed N = %ld columns\n",
              static_cast<long>(call->stages("gate_up")[0]->index("N")));
  const spec::Cost cost = mlp.eval_roofline();
  std::printf("%g flops, %g bytes\n\n%s\n", cost.flops, cost.bytes, mlp.explain().text().c_str());

  const Tensor traced_inputs[] = {inputs[0], inputs[1], inputs[2], inputs[3], {}, {}};
  std::printf("%s", trace(mlp, {traced_inputs, {}}).text().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: example_expert_mlp FILE.safetensors\n");
    return 2;
  }
  try {
    run(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

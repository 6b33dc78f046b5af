// SPDX-License-Identifier: Apache-2.0
// An op of one's own, from a spec file of one's own: validated, called, recorded, traced.
#include <fstream>
#include <iostream>
#include <sstream>

#include <tileops/op/trace.h>
#include <tileops/spec/registry.h>
#include <tileops/spec/validator.h>

#include "smooth_op.h"

namespace {

using tileops::Tensor;

/// Says what is wrong with the spec file, its composition held against the classes; how much.
size_t validate() {
  std::ifstream file(SPEC_FILE);
  std::ostringstream text;
  text << file.rdbuf();
  const tileops::spec::SpecText spec{SPEC_FILE, text.str()};
  const auto diagnostics = tileops::spec::validate({&spec, 1}, tileops::class_lookup());
  for (const auto& diagnostic : diagnostics) std::cout << to_string(diagnostic) << "\n";
  return diagnostics.size();
}

Tensor ramp(int64_t m, int64_t n) {
  std::vector<double> values(static_cast<size_t>(m * n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  return Tensor::from_values({m, n}, tileops::DType::kF32, values);
}

void print_record(const tileops::CallRecord& record, const std::string& indent = "") {
  std::cout << indent << record.op() << ": M " << record.index("M") << ", N " << record.index("N")
            << ", " << record.traffic().read_bytes << " bytes read, served by "
            << record.served_by() << "\n";
  for (const std::string& stage : record.stage_names()) {
    for (const auto& staged : record.stages(stage)) {
      std::cout << indent << "  " << stage << "\n";
      print_record(*staged, indent + "  ");
    }
  }
}

int run() {
  tileops::spec::load_spec_file(SPEC_FILE);
  example::SmoothOp::op_class();
  if (validate() > 0) return 1;

  const example::SmoothOp smooth;
  const Tensor narrow = ramp(1, 8), wide = ramp(2, 16);
  smooth(narrow);
  const Tensor y = smooth(wide);
  std::cout << "record\n";
  print_record(*smooth.last_call(), "  ");
  std::cout << "held\n";
  for (const auto& held : smooth.held_delegates()) {
    std::cout << "  " << held.stage << ", window " << to_string(held.identity) << "\n";
  }
  std::cout << "flops " << smooth.eval_roofline().flops << "\n" << smooth.explain().text();

  const Tensor inputs[] = {wide};
  const tileops::Graph graph = trace(smooth, {inputs, {}});
  std::cout << graph.text();
  const Tensor again = graph.run({inputs, {}})[0];
  for (int64_t i = 0; i < 16; ++i) {
    if (again.at({1, i}) != y.at({1, i})) {
      std::cout << "the graph differs from the call at column " << i << "\n";
      return 1;
    }
  }
  std::cout << "the graph equals the call\n";
  return 0;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
}

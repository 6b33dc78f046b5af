// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/broken_entries_testing.h"

#include <gtest/gtest.h>

namespace tileops::spec {

std::string repeat(std::string_view part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

namespace {

std::string many_indices() {
  std::string text = "forall: {";
  for (int i = 0; i < 25; ++i) text += "A" + std::to_string(i) + ": Dim, ";
  return text;
}

std::vector<Broken> of_file() {
  return {
      {"S101", "no_yaml", "", "a: [b"},
      {"S102", "too_deep", "", "a: " + repeat("[", 60) + repeat("]", 60)},
      {"S103", "anchor", "", "a: &x {}\nb: *x\n"},
      {"S103", "tag", "", "a: !!python/object x\n"},
      {"S104", "key_twice", "family: toy", "family: toy\n  family: toy"},
      {"S105", "list", "", "- a\n- b\n"},
      {"S105", "flat_rules", "shape_rules: [", "shape_rules: {a: b} # ["},
      {"S106", "unknown_field", "family: toy", "family: toy\n  colour: red"},
      {"S107", "no_family", "  family: toy\n", ""},
      {"S107", "no_shape", "x: {dtype: T, shape: \"[*S, 2 * N]\"}", "x: {dtype: T}"},
      {"S108", "two_documents", "", "a: {}\n---\nb: {}\n"},
      {"S110", "no_word", "family: toy", "family: two words"},
      {"S110", "reserved_name", "M: Dim", "float32: Dim, M: Dim"},
      {"S111", "status", "status: implemented", "status: done"},
  };
}

std::vector<Broken> of_types() {
  return {
      {"S201", "no_type", "type: Mode,", "type: Modus,"},
      {"S202", "union_of_scalars", "groups: {type: int,", "groups: {type: int | bool,"},
      {"S203", "empty_enum", "enum: [fast, exact]", "enum: []"},
      {"S204", "another_text", "Mode: {enum:", "GatedActivation: {enum: [a]}\n  Mode: {enum:"},
      {"S205", "default_not_of_type", "default: fast", "default: slow"},
      {"S206", "invariant_of_no_constructor", "levels >= 1", "depth >= 1"},
      {"S207", "invariant_no_predicate", "levels >= 1", "levels + 1"},
      {"S208", "contains_itself", "{type: int, default: 5}", "Layers"},
      {"S210", "one_name_twice", "groups: {type", "N: int\n      groups: {type"},
  };
}

std::vector<Broken> of_signature() {
  return {
      {"S301", "no_kind", "M: Dim", "M: Dimm"},
      {"S302", "no_shape", "\"[*S, 2 * N]\"", "\"[*S, 2 * N\""},
      {"S302", "segment_of_no_index", "\"[*S, 2 * N]\"", "\"[*N, 2 * N]\""},
      {"S303", "no_dtype", "x: {dtype: T", "x: {dtype: groups"},
      {"S305", "index_as_discriminant", "{by: mode,", "{by: N,"},
      {"S306", "not_exhaustive", "fast: \"[N]\", ", ""},
      {"S307", "unknown_case", "fast: \"[N]\", ", "fast: \"[N]\", slow: \"[N]\", "},
      {"S307", "catch_all", "exact: \"[N, M]\"", "exact: \"[N, M]\", _: \"[M]\""},
      {"S308", "unsolvable", "shape: \"[M, 2]\"", "shape: \"[M // 2, 2]\""},
      {"S309", "two_segments", "\"[*S, 2 * N]\"", "\"[*S, *S, 2 * N]\""},
      {"S308", "not_affine", "shape: \"[M, 2]\"", "shape: \"[M * M, 2]\""},
      {"S310", "too_many_indices", "forall: {", many_indices()},
      {"S312", "group_of_one", "keyword_only: true, group: extra", "keyword_only: true"},
      {"S313", "required_after_optional", "optional: true, keyword_only: true, group: extra",
       "group: extra"},
      {"S314", "no_combination", "{T: float32, U: float32}]", "{T: float33}]"},
      {"S315", "unused_index", "M: Dim", "M: Dim, Z: Dim"},
      {"S317", "device", "metadata: true", "metadata: true\n        device: gpu"},
  };
}

std::vector<Broken> of_expressions() {
  return {
      {"S401", "unreadable", "groups > 0", "groups >"},
      {"S402", "unknown_name", "groups > 0", "grops > 0"},
      {"S402", "unknown_function", "groups > 0", "eval('x')"},
      {"S403", "kinds", "groups > 0", "groups > mode"},
      {"S404", "off_its_branch", "layers == 'flat' or layers.levels > 0", "layers.levels > 0"},
      {"S405", "execution_argument", "groups > 0", "workspace > 0"},
      {"S406", "let_in_a_circle", "half: \"N // 2\"", "half: \"third - 1\""},
      {"S407", "no_predicate", "groups > 0", "groups + 1"},
      {"S408", "requires_of_another", "all(0 <= ids[i, j] < N for i in range(M) for j in range(2))",
       "N > 0"},
      {"S409", "too_deep", "groups > 0", repeat("(", 70) + "groups > 0" + repeat(")", 70)},
      {"S501", "buffer", "buffer: out", "buffer: in"},
      {"S502", "mutated_metadata", "metadata: true", "metadata: true\n        mutated: true"},
      {"S503", "alias_of_nothing", "alias: state", "alias: stat"},
      {"S504", "alias_differs", "w: {dtype: T, shape: \"[M]\"", "w: {dtype: T, shape: \"[M + 1]\""},
      {"S505", "write_only_unmutated", "mutated: \"mode == 'exact'\", ", ""},
      {"S508", "alias_always_there", "when: present(state), ", ""},
  };
}

std::vector<Broken> of_workloads() {
  return {
      {"S601", "no_label", "label: one, ", ""},
      {"S602", "label_twice", "label: two", "label: one"},
      {"S603", "unknown_key", "N: 8", "N: 8, Z: 3"},
      {"S604", "size_missing", "N: 8, ", ""},
      {"S605", "value_not_of_type", "N: 8", "N: eight"},
      {"S606", "construction_refuses", "groups: 4", "groups: 0"},
      {"S607", "no_generator", "topk_ids(N, routing)", "lottery(N)"},
      {"S608", "generator_arguments", "topk_ids(N, routing)", "topk_ids(N)"},
      {"S609", "breaks_requires", "0 <= ids[i, j] < N", "0 <= ids[i, j] < 0"},
      {"S610", "fails_its_own_check", "groups: 4", "groups: 3"},
      {"S611", "in_no_row", ", present: [state, scale]", ""},
      {"S612", "dtype_missing", "{T: float16, U: float16}], present", "{T: float16}], present"},
      {"S613", "gives_what_is_generated", "N: 8", "N: 8, M: 2"},
      {"S614", "integers_without_generator", "{ids: \"topk_ids(N, routing)\"}", "{}"},
      {"S615", "no_rows", "workloads:", "workloads: []\n  summary: a\n  ref_api:"},
      {"S616", "generator_fails", "topk_ids(N, routing)", "topk_ids(1, routing)"},
      {"S618", "too_large", "top_k: 2,", "top_k: 10000000,"},
      {"S617", "requires_fails", "0 <= ids[i, j] < N", "0 <= ids[i, j + 1] < N"},
  };
}

std::vector<Broken> of_rest() {
  return {
      {"S701", "no_flops", "flops: \"M * N", "# flops: \"M * N"},
      {"S702", "negative", "bytes: \"bytes(x)\"", "bytes: \"-1\""},
      {"S703", "more_than_there_is", "bytes: \"bytes(x)\"", "bytes: \"1000000\""},
      {"S704", "no_bytes", "bytes: \"bytes(x)\"", "bytes: \"0\""},
      {"S705", "no_stage", "staged('first'", "staged('fifth'"},
      {"S801", "unknown_key", "name: first, ", "name: first, times: 2, "},
      {"S802", "no_name", "name: first, ", ""},
      {"S803", "one_name_twice", "name: second", "name: first"},
      {"S804", "op_and_kernel", "kernel: kernel_a", "kernel: kernel_a, op: MoEGroupedGemmFwdOp"},
      {"S804", "neither", ", kernel: kernel_a", ""},
      {"S805", "unknown_entry", "op: MoEExpertMLPFwdOp", "op: MoEExpertMLPBwdOp"},
      {"S806", "optional", "optional: true}\n    - {name: third",
       "optional: maybe}\n    - {name: third"},
      {"S807", "no_stages", "stages:\n", "stages: []\n  summary:\n"},
      {"S816", "circle", "op: MoEExpertMLPFwdOp", "op: Whole"},
  };
}

}  // namespace

const char* const kWholeEntry = R"yaml(types:
  Mode: {enum: [fast, exact]}
  Layers:
    flat: {}
    deep: {levels: {type: int, default: 5}}
    invariants: ["levels >= 1"]
Whole:
  family: toy
  status: implemented
  signature:
    forall: {M: Dim, N: Dim, S: Shape, T: "DType[float16 | float32]", U: "DType[float16 | float32]"}
    params:
      mode: {type: Mode, default: fast}
      groups: {type: int, default: 2}
      layers: {type: Layers, default: flat}
      workspace: {type: int, default: 0, execution: true}
    inputs:
      x: {dtype: T, shape: "[*S, 2 * N]"}
      y: {dtype: U, shape: {by: mode, cases: {fast: "[N]", exact: "[N, M]"}}}
      ids:
        dtype: int32
        shape: "[M, 2]"
        metadata: true
        requires: "all(0 <= ids[i, j] < N for i in range(M) for j in range(2))"
      state: {dtype: T, shape: "[M]", optional: true, mutated: "mode == 'exact'", write_only: true, group: extra}
      scale: {dtype: float32, shape: "[M]", optional: true, keyword_only: true, group: extra}
    outputs:
      z: {dtype: T, shape: "[*S, N]", buffer: out}
      w: {dtype: T, shape: "[M]", when: present(state), alias: state}
    let: {third: "half + 1", half: "N // 2"}
    shape_rules: ["groups > 0", "N % groups == 0", "layers == 'flat' or layers.levels > 0", "third > half"]
    dtype_combos: [{T: float16, U: float16}, {T: float32, U: float32}]
  generators:
    args: {routing: {type: {enum: [uniform, skewed]}, default: uniform}, top_k: int}
    indices: {M: "top_k * 2"}
    tensors: {ids: "topk_ids(N, routing)"}
  workloads:
  - {label: one, S: [3], N: 4, top_k: 2, dtype_cases: [{T: float16, U: float16}], present: [state, scale]}
  - {label: two, S: [], N: 8, top_k: 1, mode: exact, groups: 4, dtype_cases: [{T: float32, U: float32}]}
  composition:
    stages:
    - {name: first, op: MoEGroupedGemmFwdOp}
    - {name: second, op: MoEExpertMLPFwdOp, optional: true}
    - {name: third, kernel: kernel_a}
  roofline:
    flops: "M * N + staged('first', 'flops', 1)"
    bytes: "bytes(x)"
)yaml";

const std::vector<Broken>& broken_entries() {
  static const auto& all = *[] {
    auto* list = new std::vector<Broken>;
    for (const auto& part :
         {of_file(), of_types(), of_signature(), of_expressions(), of_workloads(), of_rest()}) {
      list->insert(list->end(), part.begin(), part.end());
    }
    return list;
  }();
  return all;
}

std::string broken_text(const Broken& broken) {
  if (broken.from.empty()) return broken.to;
  std::string text = kWholeEntry;
  const size_t at = text.find(broken.from);
  EXPECT_NE(at, std::string::npos) << broken.from;
  if (at != std::string::npos) text.replace(at, broken.from.size(), broken.to);
  return text;
}

}  // namespace tileops::spec

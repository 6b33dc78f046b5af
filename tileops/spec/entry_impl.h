// SPDX-License-Identifier: Apache-2.0
// The compiled form of an entry: resolved expressions, families by case, plans by family case.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tileops/spec/entry.h"
#include "tileops/spec/expr.h"
#include "tileops/spec/kinds.h"
#include "tileops/spec/types.h"

namespace tileops::spec {

/// What chooses a case of a type family: a parameter, a field of one, or present(x).
struct Discriminant {
  std::string text;
  std::string path;  // of the parameter, field or tensor
  ExprNode node;
  std::vector<std::string> labels;  // its cases: enumerators, constructors, true and false, None
  int input = -1;                   // present(input): known at the call only
};

/// A leaf of a type family: `value` holds where every discriminant of `when` has its label.
struct Condition {
  int discriminant;
  int label;
};
template <class T>
struct Case {
  std::vector<Condition> when;
  T value;
};
template <class T>
using Cases = std::vector<Case<T>>;

/// One label (or -1: does not apply) per discriminant.
using CaseKey = std::vector<int>;

template <class T>
const T* select(const Cases<T>& cases, const CaseKey& key) {
  for (const Case<T>& each : cases) {
    bool holds = true;
    for (const Condition& condition : each.when) {
      holds = holds && key[static_cast<size_t>(condition.discriminant)] == condition.label;
    }
    if (holds) return &each.value;
  }
  return nullptr;
}

struct ShapeTerm {
  std::string text;
  ExprNode node;
  int index = -1;        // the index that the term is, where it is one alone
  bool segment = false;  // *S
};
struct ShapeDecl {
  std::string text;
  std::vector<ShapeTerm> terms;
  int segment = -1;  // which term is one
};
struct DTypeDecl {
  std::string text;
  ExprNode node;
  int index = -1;
  uint32_t dtypes = 0;  // where the spec writes dtypes; else `node` says which
};
/// An expression with the field it stands in, for messages.
struct Formula {
  Expr expr;
  std::string field;
  int line = 0;
};

struct TensorSpec {
  Cases<ShapeDecl> shapes;
  Cases<DTypeDecl> dtypes;
  Cases<std::vector<Formula>> requirements;
  std::string group;  // inputs that come together
  bool write_only = false;
  bool nullable = false;
  std::optional<Formula> when;     // output: when it is there
  std::optional<Formula> mutated;  // input: when it is written (none: always)
  int alias = -1;                  // output: the input that it is
  int line = 0;
};

struct IndexSpec {
  uint32_t dtypes = 0;  // DType[...]
  std::optional<Formula> let;
  int line = 0;
};

struct GeneratorCall {
  std::string name;
  std::vector<ExprNode> args;
  std::string text;
};
struct ArgDecl {
  std::string name;
  TypeExpr type;
  std::optional<Value> default_value;
};
struct WorkloadRow {
  std::string label;
  std::vector<std::string> tags;
  std::vector<std::vector<std::pair<int, DType>>> dtype_cases;  // index slot -> dtype
  Params params;
  Params indices;                    // sizes given by the row
  Params args;                       // of the generators
  std::vector<std::string> present;  // optional inputs that come
  int line = 0;
};
struct Workloads {
  std::vector<ArgDecl> args;
  Scope scope;                                             // the entry's names and the args
  std::vector<std::pair<int, Cases<Formula>>> determined;  // index slot -> its size
  std::vector<Cases<GeneratorCall>> generators;            // per input; empty: the default
  std::vector<WorkloadRow> rows;
};

struct Plan;

struct EntryImpl {
  std::string name, family, operator_namespace, summary, ref_api, source;
  bool implemented = true;
  int line = 0;
  std::vector<ParamDecl> params;
  std::vector<TypeExpr> param_types;
  std::vector<IndexDecl> indices;
  std::vector<IndexSpec> index_specs;
  std::vector<int> let_order;  // index slots, each after what it reads
  std::vector<TensorDecl> inputs, outputs, construction;
  std::vector<TensorSpec> input_specs, output_specs, construction_specs;
  std::vector<Discriminant> discriminants;
  std::vector<Formula> rules;
  std::vector<std::vector<std::pair<int, DType>>> dtype_combos;
  std::vector<Stage> composition;
  std::vector<int> stage_lines;
  std::vector<std::string> labels;
  Workloads workloads;
  std::optional<Formula> flops, bytes;
  Scope scope;
  std::string signature_text;  // canonical: equal texts are equal signatures

  /// The plan of a family case, derived once. Errors: kSpec where none exists.
  std::shared_ptr<const Plan> plan(const CaseKey& key) const;

 private:
  mutable std::mutex mutex_;  // guards plans_
  mutable std::map<CaseKey, std::shared_ptr<const Plan>> plans_;
};

/// Reads one entry. Faults go to `report`; the entry holds what could be read. An entry is usable
/// only if nothing was reported of it.
std::shared_ptr<const EntryImpl> read_entry(const std::string& name, const YamlNode& node,
                                            const std::string& operator_namespace,
                                            const TypeTable& types, Report& report);

}  // namespace tileops::spec

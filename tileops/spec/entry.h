// SPDX-License-Identifier: Apache-2.0
// Entry: one op's YAML entry, parsed, kind-checked and compiled. Immutable; shared by all
// instances.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/core/value.h"
#include "tileops/spec/facts.h"

namespace tileops::spec {

struct TensorDecl {
  std::string name;
  bool optional = false;  // an input that may be absent, an output that may be left out
  bool keyword_only = false;
  bool buffer_out = false;  // output: the caller may give the buffer (`buffer: out`)
  bool mutated = false;     // input: written by the call, always or under a condition
  bool metadata = false;    // input: contents decide traffic (kept in the record, read lazily)
  bool contiguous = false;  // input: the spec asks for contiguous strides
  bool on_cpu = false;      // `device: cpu`, whatever the call's device
  std::string doc;
  std::string dtype_text;  // as the spec writes it
  std::string shape_text;
};

struct ParamDecl {
  std::string name;
  std::string type_text;  // "MGroupedLayout", "int", "float32 | None", …
  bool keyword_only = false;
  bool execution = false;  // read by no check and no key (such as a workspace)
  std::optional<Value> default_value;
  std::string doc;
};

struct IndexDecl {
  std::string name;
  IndexValue::Kind kind = IndexValue::Kind::kUnknown;
  bool derived = false;  // from `let`
};

struct Stage {
  std::string name;
  std::string op;      // entry name; empty for a kernel stage
  std::string kernel;  // kernel_types key; empty for an op stage
  bool optional = false;
};

struct EntryImpl;  // the compiled form; private to this folder

class Entry {
 public:
  explicit Entry(std::shared_ptr<const EntryImpl> impl);
  ~Entry();
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  const std::string& name() const;
  const std::string& family() const;              // module, and prefix of the operator's name
  const std::string& operator_namespace() const;  // file's key `namespace`; "tileops" where absent
  const std::string& summary() const;
  const std::string& ref_api() const;
  const std::string& source() const;  // file that it came from, for messages
  bool implemented() const;
  std::span<const ParamDecl> params() const;
  std::span<const IndexDecl> indices() const;
  std::span<const TensorDecl> inputs() const;
  std::span<const TensorDecl> outputs() const;
  std::span<const TensorDecl> construction_tensors() const;
  std::span<const Stage> composition() const;  // empty for a leaf
  bool is_composite() const { return !composition().empty(); }
  /// Whether a call is one node of a traced graph: call-time inputs and no composition (A3).
  bool has_compile_boundary() const;
  std::span<const std::string> workload_labels() const;
  /// Whether parameters, inputs, outputs and their rules are the same, names aside from the op's
  /// own (B6: an op from outside the tree may stand in a stage of equal signature).
  bool same_signature(const Entry& other) const;
  /// Slot of an index, input or output by name; -1 where there is none.
  int index_slot(std::string_view name) const;
  int input_slot(std::string_view name) const;
  int output_slot(std::string_view name) const;

  const EntryImpl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const EntryImpl> impl_;
};

}  // namespace tileops::spec

// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/entry.h"

#include "tileops/spec/entry_impl.h"

namespace tileops::spec {
namespace {

template <class Decl>
int slot_of(const std::vector<Decl>& decls, std::string_view name) {
  for (size_t i = 0; i < decls.size(); ++i) {
    if (decls[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

Entry::Entry(std::shared_ptr<const EntryImpl> impl) : impl_(std::move(impl)) {}
Entry::~Entry() = default;

const std::string& Entry::name() const { return impl_->name; }
const std::string& Entry::family() const { return impl_->family; }
const std::string& Entry::operator_namespace() const { return impl_->operator_namespace; }
const std::string& Entry::summary() const { return impl_->summary; }
const std::string& Entry::ref_api() const { return impl_->ref_api; }
const std::string& Entry::source() const { return impl_->source; }
bool Entry::implemented() const { return impl_->implemented; }
std::span<const ParamDecl> Entry::params() const { return impl_->params; }
std::span<const IndexDecl> Entry::indices() const { return impl_->indices; }
std::span<const TensorDecl> Entry::inputs() const { return impl_->inputs; }
std::span<const TensorDecl> Entry::outputs() const { return impl_->outputs; }
std::span<const TensorDecl> Entry::construction_tensors() const { return impl_->construction; }
std::span<const Stage> Entry::composition() const { return impl_->composition; }
bool Entry::has_compile_boundary() const { return !impl_->inputs.empty() && !is_composite(); }
std::span<const std::string> Entry::workload_labels() const { return impl_->labels; }
bool Entry::same_signature(const Entry& other) const {
  return impl_->signature_text == other.impl_->signature_text;
}
int Entry::index_slot(std::string_view name) const { return slot_of(impl_->indices, name); }
int Entry::input_slot(std::string_view name) const { return slot_of(impl_->inputs, name); }
int Entry::output_slot(std::string_view name) const { return slot_of(impl_->outputs, name); }

}  // namespace tileops::spec

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "tileops/core/error.h"
#include "tileops/spec/roofline.h"
#include "tileops/spec/validator_passes.h"
#include "tileops/spec/workload_instance.h"

namespace tileops::spec {
namespace {

constexpr uint64_t kSeed = 1;
constexpr int64_t kMaxGenerated = int64_t{1} << 24;

class RowCheck {
 public:
  RowCheck(const std::shared_ptr<const Entry>& entry, const WorkloadRow& row,
           const std::vector<std::pair<int, DType>>& dtypes, Report& report)
      : entry_(entry),
        impl_(entry->impl()),
        row_(row),
        report_(report),
        place_{impl_.name, "workloads." + row.label, row.line} {
    which_ = {row.label, row.label, row.tags, row.params, row.indices, row.args, row.present};
    for (const auto& [slot, dtype] : dtypes) {
      which_.indices.set(impl_.indices[static_cast<size_t>(slot)].name, dtype);
    }
  }

  void run() {
    if (!instantiate() || !sizes_are_right() || !make_tensors()) return;
    if (infers_back() && contents_hold()) price();
  }

 private:
  void fault(std::string_view code, std::string_view message) {
    report_.add(code, place_, message);
  }

  bool instantiate() {
    try {
      instance_.emplace(entry_, which_);
      return true;
    } catch (const Error& error) {
      fault("S606", error.what());
      return false;
    }
  }

  /// The row gives exactly what no generator determines.
  bool sizes_are_right() {
    for (const auto& [slot, cases] : impl_.workloads.determined) {
      const std::string& name = impl_.indices[static_cast<size_t>(slot)].name;
      if (row_.indices.find(name) != nullptr && select(cases, instance_->key()) != nullptr) {
        fault("S613", fmt::format("{} is determined by generators.indices", name));
        return false;
      }
    }
    for (const IndexDecl& index : impl_.indices) {
      if (index.kind != IndexValue::Kind::kDType || index.derived) continue;
      if (which_.indices.find(index.name) == nullptr) {
        fault("S612", fmt::format("dtype_cases say nothing of {}", index.name));
        return false;
      }
    }
    return true;
  }

  /// Metadata is generated; the rest has facts alone.
  bool make_tensors() {
    for (size_t i = 0; i < impl_.inputs.size(); ++i) {
      Tensor& meta = meta_.emplace_back();
      Tensor& real = real_.emplace_back();
      try {
        const TensorFacts facts = instance_->input_facts(i);
        if (!facts.present) continue;
        meta = Tensor::empty(facts.shape, facts.dtype, kMetaDevice);
        if (is_floating(facts.dtype)) continue;
        if (select(impl_.workloads.generators[i], instance_->key()) == nullptr) {
          fault("S614", fmt::format("{} needs a generator", impl_.inputs[i].name));
          return false;
        }
        if (meta.num_elements() > kMaxGenerated) {
          fault("S618",
                fmt::format("{} has {} elements", impl_.inputs[i].name, meta.num_elements()));
          return false;
        }
        real = Tensor::empty(facts.shape, facts.dtype);
      } catch (const Error& error) {
        fault("S604", error.what());
        return false;
      }
      try {
        instance_->fill(i, real, kSeed);
      } catch (const Error& error) {
        fault("S616", error.what());
        return false;
      }
    }
    return true;
  }

  bool infers_back() {
    try {
      instance_->signature().check({meta_, {}}, facts_);
    } catch (const Error& error) {
      fault("S610", error.what());
      return false;
    }
    for (const auto& [name, value] : instance_->which().indices) {
      const auto slot = static_cast<size_t>(entry_->index_slot(name));
      const Value found = to_value(view_of(facts_.indices[slot]));
      if (found.is_none() || found == value) continue;
      fault("S610", fmt::format("{} is {} in the row, and inferred as {}", name, to_string(value),
                                to_string(found)));
      return false;
    }
    return true;
  }

  bool contents_hold() {
    try {
      for (size_t i = 0; i < real_.size(); ++i) {
        if (real_[i].defined()) facts_.inputs[i].device = kCpuDevice;
      }
      instance_->signature().check_contents({real_or_meta(), {}}, facts_);
      return true;
    } catch (const Error& error) {
      fault(error.kind() == ErrorKind::kValue ? "S609" : "S617", error.what());
      return false;
    }
  }

  std::span<const Tensor> real_or_meta() {
    both_ = meta_;
    for (size_t i = 0; i < real_.size(); ++i) {
      if (real_[i].defined()) both_[i] = real_[i];
    }
    return both_;
  }

  void price() {
    if (!impl_.flops) return;
    const auto metadata = [&](std::string_view name) {
      return real_[static_cast<size_t>(entry_->input_slot(name))];
    };
    try {
      const Cost cost = evaluate_roofline({instance_->signature(), facts_, metadata, nullptr});
      const Traffic traffic = tensor_traffic(*entry_, facts_);
      const double most =
          static_cast<double>(traffic.read_bytes) + static_cast<double>(traffic.written_bytes);
      if (cost.bytes > most) {
        fault("S703", fmt::format("the roofline counts {} bytes; the call's tensors have {}",
                                  cost.bytes, most));
      }
      if (cost.bytes == 0 && cost.flops > 0) fault("S704", "the roofline computes on no bytes");
    } catch (const Error& error) {
      fault("S702", error.what());
    }
  }

  std::shared_ptr<const Entry> entry_;
  const EntryImpl& impl_;
  const WorkloadRow& row_;
  Report& report_;
  Place place_;
  WorkloadCase which_;
  std::optional<WorkloadInstance> instance_;
  std::vector<Tensor> meta_, real_, both_;
  CallFacts facts_;
};

/// Every optional input comes in some row and is absent in another.
void check_presence(const EntryImpl& entry, Report& report) {
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    if (!entry.inputs[i].optional || entry.workloads.rows.empty()) continue;
    const auto comes = std::count_if(
        entry.workloads.rows.begin(), entry.workloads.rows.end(), [&](const WorkloadRow& row) {
          return std::find(row.present.begin(), row.present.end(), entry.inputs[i].name) !=
                 row.present.end();
        });
    const bool always = comes == static_cast<std::ptrdiff_t>(entry.workloads.rows.size());
    if (comes > 0 && !always) continue;
    report.add("S611", {entry.name, "workloads", entry.line},
               fmt::format("{} comes in {} row", entry.inputs[i].name, always ? "every" : "no"));
  }
}

}  // namespace

void check_workloads(const std::shared_ptr<const EntryImpl>& entry, Report& report) {
  const auto shared = std::make_shared<const Entry>(entry);
  for (const WorkloadRow& row : entry->workloads.rows) {
    auto dtype_cases = row.dtype_cases;
    if (dtype_cases.empty()) dtype_cases.emplace_back();
    for (const auto& dtypes : dtype_cases) RowCheck(shared, row, dtypes, report).run();
  }
  check_presence(*entry, report);
}

}  // namespace tileops::spec

// SPDX-License-Identifier: Apache-2.0
// Holding sub-ops (B) and enumerating them (C1).
#include <algorithm>

#include "tileops/core/check.h"
#include "tileops/core/log.h"
#include "tileops/op/op.h"

namespace tileops {
namespace {

/// Serialises the growth of the holding graph, so that two threads cannot close a circle together.
std::mutex& holding_graph() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

}  // namespace

std::shared_ptr<Op> Op::delegate_for(std::string_view stage, const Value& identity,
                                     std::shared_ptr<Op> given,
                                     const std::function<std::shared_ptr<Op>()>& make) const {
  if (CallMode* mode = CallMode::current(); mode != nullptr && !identity.is_none()) {
    mode->identity_asked();
  }
  const DelegateKey key{op_class_.stage_index(stage), identity};
  if (std::shared_ptr<Op> held = delegates_.find(key)) {
    if (given != nullptr && given != held) warn_unused_given(key, *held, *given);
    return held;
  }
  const auto found = delegates_.get_or_build(key, [&] { return hold(key, given, make); });
  if (!found.fresh && given != nullptr && given != found.value) {
    warn_unused_given(key, *found.value, *given);
  }
  if (found.fresh && tuned()) found.value->request_tune();
  return found.value;
}

std::shared_ptr<Op> Op::hold(const DelegateKey& key, const std::shared_ptr<Op>& given,
                             const std::function<std::shared_ptr<Op>()>& make) const {
  std::shared_ptr<Op> sub_op = given;
  if (sub_op == nullptr) {
    const CallModeGuard eager(nullptr);
    sub_op = make();
  }
  const StageType& stage = op_class_.delegate_types()[key.stage];
  TILEOPS_CHECK(ErrorKind::kDelegate, sub_op != nullptr, "{}: nothing was built for stage {}",
                name(), stage.stage);
  TILEOPS_CHECK(ErrorKind::kDelegate,
                stage.accepts(*sub_op) || sub_op->entry().same_signature(*stage.op_class->entry()),
                "{}: stage {} holds {}, and was given {}, whose class and signature both differ",
                name(), stage.stage, stage.op_class->name(), sub_op->name());
  std::lock_guard graph(holding_graph());
  check_may_hold(key, *sub_op);
  std::lock_guard lock(mutex_);
  held_.push_back({key, sub_op});
  return sub_op;
}

void Op::check_may_hold(const DelegateKey& key, const Op& sub_op) const {
  const std::string& stage = op_class_.delegate_types()[key.stage].stage;
  for (const HeldSlot& slot : held_) {
    TILEOPS_CHECK(
        ErrorKind::kDelegate, slot.op.get() != &sub_op,
        "{}: the {} offered as ({}, {}) is held already as ({}, {}); hold another instance", name(),
        sub_op.name(), stage, to_string(key.identity),
        op_class_.delegate_types()[slot.key.stage].stage, to_string(slot.key.identity));
  }
  TILEOPS_CHECK(ErrorKind::kDelegate, &sub_op != this, "{}: it cannot hold itself (stage {})",
                name(), stage);
  TILEOPS_CHECK(ErrorKind::kDelegate, !sub_op.holds(*this),
                "{}: holding this {} as {} would close a circle: it holds this op already", name(),
                sub_op.name(), stage);
}

void Op::warn_unused_given(const DelegateKey& key, const Op& held, const Op& given) const {
  warn_once(warned_given_,
            fmt::format("{}: ({}, {}) holds {} already; the {} given now is not held", name(),
                        op_class_.delegate_types()[key.stage].stage, to_string(key.identity),
                        held.key(), given.key()));
}

bool Op::holds(const Op& op) const {
  return std::any_of(held_.begin(), held_.end(), [&](const HeldSlot& slot) {
    return slot.op.get() == &op || slot.op->holds(op);
  });
}

std::optional<size_t> Op::stage_of(const Op& sub_op) const {
  for (const HeldSlot& slot : held_) {
    if (slot.op.get() == &sub_op) return slot.key.stage;
  }
  return std::nullopt;
}

std::vector<HeldDelegate> Op::held_delegates() const {
  std::vector<HeldSlot> slots(held_.begin(), held_.end());
  std::stable_sort(slots.begin(), slots.end(),
                   [](const HeldSlot& a, const HeldSlot& b) { return a.key.stage < b.key.stage; });
  std::vector<HeldDelegate> result;
  result.reserve(slots.size());
  for (const HeldSlot& slot : slots) {
    result.push_back(
        {op_class_.delegate_types()[slot.key.stage].stage, slot.key.identity, slot.op});
  }
  return result;
}

}  // namespace tileops

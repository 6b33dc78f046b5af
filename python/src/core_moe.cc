// SPDX-License-Identifier: Apache-2.0
#include "core_moe.h"

#include <optional>

#include "core_tensors.h"
#include "tileops/ops/moe/activation.h"
#include "tileops/ops/moe/fused_experts/fused_experts_op.h"
#include "tileops/ops/moe/packed_experts.h"
#include "tileops/ops/moe/prepare_finalize.h"
#include "tileops/ops/moe/workspace.h"

namespace tileops::python {
namespace {

// (hidden_states, topk_weights, topk_ids) -> RoutedTokens, set by the package.
PyObject* routed_tokens_class = nullptr;

/// An object of Python's with prepare and finalize.
class PythonPrepareFinalize final : public PrepareFinalize {
 public:
  explicit PythonPrepareFinalize(nb::handle object) : object_(object) {}

  Prepared prepare(const RoutedTokens& tokens, int64_t num_experts) const override {
    return in_python([&]() -> Prepared {
      CallFrame frame("prepare_finalize");
      const nb::object returned =
          object_.get().attr("prepare")(give_tokens(frame, tokens), num_experts);
      if (!nb::isinstance<nb::tuple>(returned) || nb::len(returned) != 2) {
        throw Error(ErrorKind::kType,
                    "prepare_finalize: prepare returns (RoutedTokens, state), got " +
                        nb::cast<std::string>(nb::repr(returned.type())));
      }
      return {take_tokens(frame, returned[0]),
              std::make_shared<SharedObject>(nb::object(returned[1]))};
    });
  }

  Tensor finalize(const Tensor& expert_output, const Prepared& prepared,
                  const RoutedTokens& tokens) const override {
    return in_python([&] {
      CallFrame frame("prepare_finalize");
      const nb::object returned = object_.get().attr("finalize")(
          frame.lend(expert_output), static_cast<const SharedObject*>(prepared.state.get())->get(),
          give_tokens(frame, tokens));
      return frame.take_result(returned.ptr(), nb::str("finalize").ptr());
    });
  }

 private:
  static nb::object give_tokens(CallFrame& frame, const RoutedTokens& tokens) {
    return nb::handle(routed_tokens_class)(frame.lend(tokens.hidden_states),
                                           frame.lend(tokens.topk_weights),
                                           frame.lend(tokens.topk_ids));
  }

  static RoutedTokens take_tokens(CallFrame& frame, nb::handle tokens) {
    const auto take = [&](const char* name) {
      const nb::object tensor = tokens.attr(name);
      return frame.take_result(tensor.ptr(), nb::str(name).ptr());
    };
    return {take("hidden_states"), take("topk_weights"), take("topk_ids")};
  }

  SharedObject object_;
};

Tensor import_one(const char* who, nb::handle object, const char* name) {
  CallFrame frame(who);
  return frame.take_result(object.ptr(), nb::str(name).ptr());
}

/// PackedExperts with a moment of its own to end at.
struct Packed {
  std::optional<PackedExperts> packed;
  const Framework* framework;  // of the weights
};

void init_packed(Packed* self, nb::handle w_gate_up, nb::handle w_down, nb::handle activation) {
  const Tensor gate_up = import_one("PackedExperts", w_gate_up, "w_gate_up");
  const Tensor down = import_one("PackedExperts", w_down, "w_down");
  const Value value = value_from_python(activation);
  const Framework* framework = &framework_of(w_gate_up.ptr());
  const nb::gil_scoped_release released;
  new (self) Packed{PackedExperts(gate_up, down, GatedActivation::from_value(value)), framework};
}

nb::tuple release_weights(Packed& self) {
  if (!self.packed) throw Error(ErrorKind::kState, "PackedExperts.release_weights: it is closed");
  CallFrame frame("PackedExperts");
  frame.expect(self.framework);
  const auto [w_gate_up, w_down] = self.packed->release_weights();
  return nb::make_tuple(frame.give(w_gate_up), frame.give(w_down));
}

/// A WorkspaceScope between __enter__ and __exit__ of one thread.
struct Workspace {
  Tensor tensor;
  std::optional<WorkspaceScope> scope;
};

void bind_packed(nb::module_& m) {
  nb::class_<Packed>(
      m, "PackedExperts",
      "Experts' weights packed once for the CPU: while it lives, calls with these very\n"
      "weights read the packed copy. Their contents must not change meanwhile.")
      .def("__init__", &init_packed, nb::arg("w_gate_up"), nb::arg("w_down"), nb::arg("activation"))
      .def_prop_ro("bytes",
                   [](const Packed& p) { return p.packed ? p.packed->bytes() : int64_t{0}; })
      .def("release_weights", &release_weights,
           "Lets the weights go, so that their memory can be freed, and returns what stands for\n"
           "them in calls: tensors of the same shapes and dtype that take no memory (strides 0).\n"
           "A kernel that reads no packed copy gives NaN with them.")
      .def(
          "close", [](Packed& p) { p.packed.reset(); }, "Drops the packed copies.")
      .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__exit__", [](Packed& p, nb::args) { p.packed.reset(); })
      .def_static("process_bytes", &PackedExperts::process_bytes,
                  "Memory of all packed copies of the process.");
}

void bind_workspace(nb::module_& m) {
  nb::class_<Workspace>(m, "workspace",
                        "While entered, calls of experts' ops on this thread take their\n"
                        "intermediates from the tensor (uint8, contiguous).")
      .def(
          "__init__",
          [](Workspace* self, nb::handle tensor) {
            new (self) Workspace{import_one("workspace", tensor, "tensor"), std::nullopt};
          },
          nb::arg("tensor"))
      .def("__enter__",
           [](Workspace& w) {
             if (w.scope) throw Error(ErrorKind::kState, "workspace: it is entered already");
             w.scope.emplace(w.tensor);
           })
      .def("__exit__", [](Workspace& w, nb::args) { w.scope.reset(); });
  m.def("workspace_bytes", &FusedMoEExpertsFwdOp::workspace_bytes, nb::arg("num_tokens"),
        nb::arg("top_k"), nb::arg("num_experts"), nb::arg("hidden"), nb::arg("inter"),
        "Bytes of workspace that hold the intermediates of a call, whichever path serves it.");
  m.def("kept_workspace_bytes", &kept_workspace_bytes,
        "Bytes of the blocks that the process keeps for intermediates.");
}

}  // namespace

std::any injected_from_python(nb::handle object) {
  if (nb::hasattr(object, "_handle")) return shared_op(object);
  if (nb::hasattr(object, "prepare") && nb::hasattr(object, "finalize")) {
    return std::shared_ptr<const PrepareFinalize>(std::make_shared<PythonPrepareFinalize>(object));
  }
  throw Error(ErrorKind::kType,
              "an op, or an object with prepare and finalize, can be injected; got " +
                  nb::cast<std::string>(nb::repr(object)));
}

void bind_moe(nb::module_& m) {
  bind_packed(m);
  bind_workspace(m);
  m.def("set_routed_tokens",
        [](nb::object tokens) { routed_tokens_class = tokens.release().ptr(); });
}

}  // namespace tileops::python

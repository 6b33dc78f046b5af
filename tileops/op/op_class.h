// SPDX-License-Identifier: Apache-2.0
// OpClass: what is known of an op before any instance exists.
#pragma once

#include <any>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "tileops/core/value.h"
#include "tileops/dispatch/foreign.h"
#include "tileops/dispatch/kernel_cache.h"
#include "tileops/dispatch/kernel_registry.h"
#include "tileops/spec/class_facts.h"
#include "tileops/spec/entry.h"

namespace tileops {

class Op;
class OpClass;

/// How an instance executes; none of it changes what is computed.
struct OpOptions {
  std::string target;  // "" lets the process default or the detectors decide; "builtin": ours
  std::string implementation;  // "" or the key that alone may serve, here and in base-built sub-ops
  Params kernel_config;        // forced tuning configuration of this op's own kernels
  bool validate_inputs =
      false;           // check contents of metadata at each call, as TILEOPS_CHECK_VALUES=1
  std::string device;  // "" or where calls without tensors run, such as "cuda:0"
};

/// What a constructor takes beside parameters: sub-ops and services, each under a name of the class's
/// `injected`.
class Injected {
 public:
  void set(std::string name, std::any instance);
  /// The instance of that name as a T (a shared_ptr); null where none is given.
  /// Errors: kType where another type was given.
  template <class T>
  T get(std::string_view name) const {
    const std::any* given = find(name);
    if (given == nullptr) return nullptr;
    const T* typed = std::any_cast<T>(given);
    if (typed == nullptr) raise_wrong_type(name);
    return *typed;
  }
  const std::vector<std::pair<std::string, std::any>>& instances() const { return instances_; }

 private:
  const std::any* find(std::string_view name) const;
  [[noreturn]] static void raise_wrong_type(std::string_view name);
  std::vector<std::pair<std::string, std::any>> instances_;
};

/// A stage of a composite and the class that it may hold.
struct StageType {
  std::string stage;
  const OpClass* op_class;
  std::function<bool(const Op&)> accepts;  // whether an instance is of the class or derives from it
};

/// A kernel interface of an op, able to make an instance's cache and to adapt foreign kernels.
struct InterfaceType {
  std::string name;
  std::function<std::unique_ptr<KernelCacheBase>(std::shared_ptr<const KernelTable>,
                                                 std::string forced, Params forced_config)>
      make_cache;
  std::function<AnyImplementation(ForeignImplementation)> adapt = {};  // empty: not open to them
};

struct OpClassFacts {
  std::string name;                       // the spec entry's name
  std::vector<StageType> delegate_types;  // in stage order
  std::vector<InterfaceType> interfaces;
  std::vector<AnyImplementation> kernel_types;  // key -> kernel class, in order
  std::vector<std::string> injected;            // constructor parameters that take an instance
  bool tunable = true;                          // false: an op with nothing to tune
  const std::type_info* type = nullptr;         // of the C++ class; null where there is none
  /// Constructs an instance from parameters by name (defaults filled in by the spec).
  std::function<std::shared_ptr<Op>(const Params&, const OpOptions&, const Injected&)> make;
};

/// Immutable and alive until the process ends. Reading it needs no instance, device or GPU library.
class OpClass {
 public:
  /// Declares a class: checks its kernel table and makes the class known by its name. The same C++
  /// class declared again, as by a library that hides its symbols, is the class that is there.
  /// Errors: kValue (I4, a name that is taken).
  static const OpClass& declare(OpClassFacts facts);

  const std::string& name() const { return facts_.name; }
  const std::vector<StageType>& delegate_types() const { return facts_.delegate_types; }
  const std::vector<InterfaceType>& interfaces() const { return facts_.interfaces; }
  /// (key, interface) of every kernel class that the tree declares.
  std::vector<std::pair<std::string, std::string>> kernel_types() const;
  const std::vector<std::string>& injected() const { return facts_.injected; }
  bool tunable() const { return facts_.tunable; }
  /// Whether it computes through sub-ops.
  bool is_composite() const { return !facts_.delegate_types.empty(); }
  /// Index of a stage. Errors: kDelegate naming the op, the stage and the declared stages (A4).
  size_t stage_index(std::string_view stage) const;
  /// The spec entry. Errors: kValue where none of this name is loaded.
  std::shared_ptr<const spec::Entry> entry() const;
  /// Constructs an instance. Errors: kType (an injected name that the class does not declare); those
  /// of the op's constructor.
  std::shared_ptr<Op> make(const Params& params, const OpOptions& options = {},
                           const Injected& injected = {}) const;

 private:
  explicit OpClass(OpClassFacts facts) : facts_(std::move(facts)) {}
  OpClassFacts facts_;
};

/// The class of that name, or null.
const OpClass* find_op_class(std::string_view name);
/// The class of that name. Errors: kValue listing the known ones.
const OpClass& op_class(std::string_view name);
/// All class names, sorted.
std::vector<std::string> op_class_names();

/// Adds an implementation from another language to a kernel interface of an op ("": its only one),
/// for instances constructed later (G5). Errors: kValue (an unknown op, an interface that is unknown
/// or not open to it, those of register_kernel_type); nothing changes.
void register_foreign_kernel_type(std::string_view op, std::string_view interface,
                                  ForeignImplementation implementation);

/// The classes as the validator needs them.
spec::ClassLookup class_lookup();

}  // namespace tileops

// SPDX-License-Identifier: Apache-2.0
// The arguments and results of calls, between Python's way and the signature's order.
#pragma once

#include <array>
#include <cstddef>
#include <new>
#include <string>
#include <vector>

#include "core_tensors.h"
#include "tileops/spec/entry.h"

namespace tileops::python {

/// Where the arguments of an entry's calls go. Lives as long as the process.
struct Slots {
  std::vector<PyObject*> inputs;   // names, interned
  std::vector<bool> written;       // inputs that a call may write
  std::vector<bool> keyword_only;  // inputs
  std::vector<size_t> positional;  // input slots
  std::vector<PyObject*> outs;     // names of the outputs that take a buffer
  std::vector<int> out_outputs;    // and their output slots
  std::vector<PyObject*> outputs;  // names
  std::vector<bool> dropped;       // outputs whose presence the parameters decide
  bool takes_out = false;          // `out` stands for the one buffer
  std::string takes;               // for messages
};
const Slots& slots_of(const spec::Entry& entry);

/// An op with what a call needs of its entry.
struct BoundOp {
  std::shared_ptr<Op> op;
  const Slots* slots;
  explicit BoundOp(std::shared_ptr<Op> bound)
      : op(std::move(bound)), slots(&slots_of(op->entry())) {}
};

/// The arguments of one call, as the signature orders them; null where absent.
struct Arguments {
  std::array<PyObject*, CallFrame::kMaxTensors> inputs{};
  std::array<PyObject*, Results::kMaxResults> outs{};
  bool any_out = false;

  /// `args` holds the positional ones, then those of `names` (a tuple, or null). Errors: kType.
  Arguments(const BoundOp& bound, PyObject* const* args, size_t num_args, PyObject* names);
  /// A tuple, and a dict or null.
  Arguments(const BoundOp& bound, PyObject* args, PyObject* named);

 private:
  void set_positional(const BoundOp& bound, PyObject* const* args, size_t num_args);
  void set(const BoundOp& bound, PyObject* name, PyObject* value);
};

/// So many tensors, in place.
template <size_t Max>
class InlineTensors {
 public:
  explicit InlineTensors(size_t size) : size_(size) {
    for (size_t i = 0; i < size_; ++i) new (at(i)) Tensor();
  }
  ~InlineTensors() {
    for (size_t i = 0; i < size_; ++i) at(i)->~Tensor();
  }
  InlineTensors(const InlineTensors&) = delete;
  InlineTensors& operator=(const InlineTensors&) = delete;
  Tensor& operator[](size_t i) { return *at(i); }
  std::span<const Tensor> span() const {
    return {std::launder(reinterpret_cast<const Tensor*>(bytes_)), size_};
  }

 private:
  Tensor* at(size_t i) {
    return std::launder(reinterpret_cast<Tensor*>(bytes_ + i * sizeof(Tensor)));
  }
  alignas(Tensor) std::byte bytes_[Max * sizeof(Tensor)];
  size_t size_;
};

/// The arguments as the library's tensors, known to the frame as long as they live.
class Taken {
 public:
  Taken(const BoundOp& bound, const Arguments& arguments, CallFrame& frame);
  spec::CallTensors tensors() const { return {inputs_.span(), outs_.span()}; }

 private:
  InlineTensors<CallFrame::kMaxTensors> inputs_;
  InlineTensors<Results::kMaxResults> outs_;
};

/// One output alone, several as a tuple, one that is absent as None; those that the parameters
/// leave out are not counted.
nb::object results_to_python(const Slots& slots, const Results& results, const CallFrame& frame);

/// The other way round: calls a Python function with a call's tensors as an op is called (inputs by
/// position, keyword-only ones and given buffers by name), and takes what it returns. `framework`
/// is that of the call before, for a call that comes without one. Needs the GIL.
Results call_python(nb::handle function, const spec::Entry& entry, const Slots& slots,
                    const spec::CallTensors& tensors, const Framework*& framework);

/// Calls a Python function that fills a call's outputs and returns None: inputs by position,
/// keyword-only ones and outputs by name, `tensors` in the signature's order. `who` is the function,
/// for messages. Errors: TypeError where it returns something. Needs the GIL.
void fill_by_python(nb::handle function, const spec::Entry& entry, const Slots& slots,
                    const std::string& who, std::span<const Tensor> tensors);

}  // namespace tileops::python

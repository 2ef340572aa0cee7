// SPDX-License-Identifier: Apache-2.0
// Deferred initialisation (PyTorch's meta device; torchdistX: deferred_init): tensors that
// have shapes and types, and no memory until somebody wants their values. What would have been
// written into them is written down instead, with the random numbers' place in their stream, which
// moves on as it would have: so values are the same bits, whenever and in whichever order they are
// made.
//
//   Tensor weight;
//   {
//     const DeferInit scope;
//     weight = randn({4096, 4096});          // no memory
//     weight.rows(0, 1).zero_();             // written down
//   }
//   weight.item<float>();                    // Error: it has no values yet
//   materialize(weight);                     // as if there had been no scope
//
// Written down is what makes and starts parameters: empty, zeros, ones, full, uniform, rand, randn,
// fill_, zero_, uniform_, normal_, nn::init, and copy_ of what has no values either. Between
// tensors that are copied together from parts of others copy_ makes the values: lists of lists of
// lists would take too long. Within the scope all else makes the values of what it reads, which
// stay then: constructors do what they do without it, with less memory saved where they compute.
// After it a read is an Error by name, and what is copied into such a tensor gives it memory.
// Models: nn/empty_weights.h. Thread safety: as of Tensor; a scope is its thread's.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace peal {

// While one of these lives, new tensors of this thread's have no memory yet.
class DeferInit {
 public:
  explicit DeferInit(bool on = true) : before_(std::exchange(context().defer_init, on)) {}
  ~DeferInit() { context().defer_init = before_; }
  DeferInit(const DeferInit&) = delete;
  DeferInit& operator=(const DeferInit&) = delete;

 private:
  bool before_;
};

// It has no values yet; so has no view of it.
bool is_deferred(const Tensor& x);
// Gives it memory and its values; nothing where it has them.
void materialize(const Tensor& x);
// The values that it will have, in memory of their own; x stays as it is.
Tensor materialized(const Tensor& x);

// As x is, without memory, and with values of its own. REQUIRES: is_deferred(x).
Tensor unwritten_copy(const Tensor& x);

// For those who write such tensors. `Fill` writes a tensor, each time the same.
using Fill = std::function<void(const Tensor& x)>;
// As Tensor::empty(); within a scope without memory.
Tensor empty_or_deferred(const Shape& shape, DType dtype, Device device);
// A new one without memory, of which `fill` makes all values.
Tensor deferred_tensor(const Shape& shape, DType dtype, Device device, Fill fill);
// Whether x has no values yet: then `fill` is written down, and to be done after what was before.
bool defer_write(const Tensor& x, Fill fill);
// The same of a copy. False where it can be made now, for which `to` has memory then.
bool defer_copy(const Tensor& to, const Tensor& from);
// Gives `to`, where it has no values yet, the memory of a tensor that is as it, and that nobody
// reads any more; false where that cannot be.
bool take_over(const Tensor& to, const Tensor& from);

// What waits for a storage's memory.
struct DeferredValues {
  struct Write {
    std::int64_t at = 0;  // of which elements
    Shape shape;
    DType dtype = DType::f32;
    Fill fill;
  };
  std::vector<Write> writes;
  bool copies = false;  // of others into parts of it, each with the list of what it is copied from
  std::string name;     // the parameter's, for messages
};

}  // namespace peal

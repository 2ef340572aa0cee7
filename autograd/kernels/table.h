// SPDX-License-Identifier: Apache-2.0
// The table of kernels: what a device can compute, one typed entry a family (families.def). An op
// checks shapes, makes its output and calls an entry; a kernel only computes. An entry that is
// empty, or that returns false because it does not serve the dtype, is the error "matmul: no cuda
// kernel for i64". A device library registers its table once, before first use. Thread safety:
// tables are constant and kernels may run on several threads at once.
#pragma once

#include <peal/autograd/core/rng.h>
#include <peal/autograd/core/tensor.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/cost.h>
#include <peal/autograd/kernels/geometry.h>
#include <peal/autograd/kernels/steps.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace peal {

// Throws "OP: no DEVICE kernel for DTYPE".
[[noreturn]] void no_kernel(std::string_view op, Device device, DType dtype);
// Throws that the gradient of the innermost op cannot be differentiated in turn (grad.h).
[[noreturn]] void not_differentiable();

template <class Signature>
class Kernel;
template <class... Args>
class Kernel<bool(Args...)> {
 public:
  using Function = bool (*)(Args...);  // false: this dtype is not served
  Kernel() = default;
  Kernel(Function function) : function_(function) {}  // NOLINT: a table is written as plain names
  explicit operator bool() const { return function_ != nullptr; }
  // `op` and `subject` are for the error.
  void operator()(std::string_view op, const Tensor& subject, Args... args) const {
    if (TraceSpan::recording()) TraceSpan::add(cost_of(args...));
    if (!OpName::may_call_kernels()) not_differentiable();
    if (function_ == nullptr || !function_(args...)) {
      no_kernel(op, subject.device(), subject.dtype());
    }
  }

 private:
  Function function_ = nullptr;
};

enum class Binary : std::uint8_t { add, sub, mul, div, relu_backward };
enum class Unary : std::uint8_t { add_scalar, mul_scalar, div_scalar, relu };

enum class Pointwise : std::uint8_t {
#define POINTWISE(name, ...) name,
#include <peal/autograd/kernels/pointwise.def>
};
// Whether the slope is that by the result.
constexpr bool keeps_result(Pointwise op) {
  enum class Kept : std::uint8_t { x, y };
  switch (op) {
#define POINTWISE(name, kept, ...) \
  case Pointwise::name:            \
    return Kept::kept == Kept::y;
#include <peal/autograd/kernels/pointwise.def>
  }
  return false;
}

// Of two elements, of any type but bool; the bits' of integers alone, and those after them of
// floating types alone.
enum class BinaryMath : std::uint8_t {
  maximum,  // a NaN of either
  minimum,
  fmax,  // the other of a NaN
  fmin,
  remainder,  // of the divisor's sign
  fmod,       // of the dividend's
  floor_divide,
  bitwise_and,
  bitwise_or,
  bitwise_xor,
  left_shift,
  right_shift,
  pow,
  atan2,
  hypot,
  logaddexp,
  xlogy,
};
enum class Compare : std::uint8_t { eq, ne, lt, le, gt, ge };
// What becomes of the element that another is scattered onto; a NaN stays one.
enum class Scatter : std::uint8_t { set, multiply, maximum, minimum };

enum class Reduce : std::uint8_t { prod, amax, amin, any, all };
enum class Scan : std::uint8_t { prod, max, min, logsumexp };

enum class PairLoss : std::uint8_t { squared_error, smooth_l1, bce_with_logits };

struct Kernels {
  // Whether a query keeps a number, from which its probabilities are made again, and not these
  // (AttentionResult). Empty: never.
  bool (*attention_recomputes)(const AttentionGeometry&, DType) = nullptr;

#define KERNEL(name, arguments, ...) Kernel<bool arguments> name;
#include <peal/autograd/kernels/families.def>
#undef KERNEL
};

// Error where no table is registered for the device.
const Kernels& kernels(Device device);

// Called once by a library that brings a device, before first use.
void register_kernels(DeviceType type, const Kernels* table);

}  // namespace peal

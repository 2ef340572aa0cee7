// SPDX-License-Identifier: Apache-2.0
// Tensor: a handle to a dense, row-major array on one device. Copying the handle shares the array;
// there are no strides, so reshape and slices of the leading dimension share storage, and
// everything else is a new array (docs/decisions/0001-dense-tensors.md). An undefined tensor
// (default constructed) stands for "none".
//
// The tape (autograd/tape.h) hangs its node and a leaf's gradient slot on the tensor's body. The
// methods marked (tape) are defined there, those marked (ops) in autograd/ops/, both in the library
// peal::autograd; for (ops) include peal/autograd/ops/ops.h. Thread safety: as of a shared_ptr; a
// tensor's elements are the caller's to order.
#pragma once

#include <peal/autograd/core/context.h>
#include <peal/autograd/core/dims.h>
#include <peal/autograd/core/dtype.h>
#include <peal/autograd/core/scalar.h>
#include <peal/autograd/core/shape.h>
#include <peal/autograd/core/view.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace peal {

struct Node;     // a recorded operation (tape.h)
class GradSlot;  // a leaf's gradient (grad_slot.h)
class Index;     // what stands in x[...], and what that gives (ops/indexing.h)
class Indexed;
class Parts;     // of a split (ops/concatenate.h)
struct Extreme;  // values and where they are (ops/reduce.h)

struct TensorBody {
  StorageRef storage;
  std::int64_t at = 0;  // first element
  Shape shape;
  DType dtype = DType::f32;
  bool requires_grad = false;
  int output = 0;                  // which output of `node` this is
  std::shared_ptr<Node> node;      // what made it, where a gradient is wanted
  std::shared_ptr<GradSlot> slot;  // leaves that require a gradient, and who retains one
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(std::shared_ptr<TensorBody> body) : body_(std::move(body)) {}
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) = default;
  ~Tensor() = default;
  // Of a temporary it would write nothing: x.rows(0, 1).copy_(y) and x[0] = y write.
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & = default;

  // Uninitialised / zero elements on `device`.
  static Tensor empty(const Shape& shape, DType dtype = DType::f32,
                      Device device = context().device);
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32,
                      Device device = context().device);
  // A copy of `values`; Error when their number is not shape.numel().
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape,
                     Device device = context().device) {
    return from_bytes(values.data(), static_cast<std::int64_t>(values.size()), dtype_of<T>, shape,
                      device);
  }
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape,
                     Device device = context().device) {
    return from(std::span<const T>(values), shape, device);
  }
  // One element.
  template <class T>
  static Tensor scalar(T value, Device device = context().device) {
    return from(std::span<const T>(&value, 1), Shape{}, device);
  }
  // On the CPU, uninitialised, in page-locked memory, from and to which a device copies while the
  // host goes on. Ordinary memory where the machine has no device.
  static Tensor pinned(const Shape& shape, DType dtype = DType::f32);
  // Shares the caller's CPU memory; `release` runs when the last handle goes.
  static Tensor from_blob(void* data, const Shape& shape, DType dtype,
                          std::function<void()> release = nullptr);

  bool defined() const { return body_ != nullptr; }
  // Whether the one element differs from 0, from any device: `if (x > y)` of scalars. Error for
  // several elements, none, and a tensor without a value (ask defined()).
  explicit operator bool() const;

  const Shape& shape() const { return body().shape; }
  std::int64_t size(int dim) const { return body().shape[dim]; }
  int dim() const { return body().shape.dim(); }
  std::int64_t numel() const { return body().shape.numel(); }
  DType dtype() const { return body().dtype; }
  Device device() const { return body().storage->device(); }
  const StorageRef& storage() const { return body().storage; }

  // The elements; Error when T is not the dtype, or the device is not the CPU.
  template <class T>
  T* data() const {
    return static_cast<T*>(checked_data(dtype_of<T>));
  }
  void* raw() const;  // first byte, on whatever device
  View view() const { return {body().storage, body().at, numel(), body().dtype}; }
  // For collectives and messages, which are not recorded: Error where an operation made this and
  // its gradient is wanted. Give them detach(), or call them under NoGrad.
  operator View() const;

  // The one element of a one-element tensor, from any device, as T (converted).
  template <class T>
  T item() const {
    T value;
    read_item(&value, dtype_of<T>);
    return value;
  }
  // All elements, copied to the CPU; Error when T is not the dtype.
  template <class T>
  std::vector<T> to_vector() const;

  // Shares storage, and no gradient flows back. With a shape: that shape, from element `at` of this
  // on.
  Tensor detach() const { return detach(shape()); }
  Tensor detach(const Shape& shape, std::int64_t at = 0) const;
  // Shares storage too: [begin, end) of dim 0. Recorded, as clone() and to() are.
  Tensor rows(std::int64_t begin, std::int64_t end) const;
  // A new array with the same elements.
  Tensor clone() const;
  // This, where it is there already. With non_blocking the host does not wait for a copy between it
  // and a device: it then leaves both tensors alone until an event after the copy is reached. Worth
  // it for pinned memory.
  Tensor to(Device device, bool non_blocking = false) const;
  Tensor cpu() const { return to(Device{}); }
  Tensor cuda(int index = 0) const { return to(Device{DeviceType::cuda, index}); }
  // Overwrites the elements (same shape and dtype, any device) and counts a version. Not recorded
  // (in_place.h): Error where this is a result, or the source is something, whose gradient is
  // wanted. Error too for a temporary that nobody else holds: what slice() gives is a copy.
  void copy_(const Tensor& source, bool non_blocking = false) const&;
  void copy_(const Tensor& source, bool non_blocking = false) const&&;
  void zero_() const&;
  void zero_() const&&;
  // Lets this tensor look at other bytes (same shape and dtype): bucket views, loaded parameters.
  // Not recorded.
  void rebind(const Tensor& where) const;

  // x[i], x[Slice(1, 3)], x[{0, Ellipsis, None}], x[mask], x[indices]: a part, to be read and to be
  // written (ops/indexing.h). index and index_put_ are the same by name. (ops)
  Indexed operator[](const Index& index) const;
  Indexed operator[](std::initializer_list<Index> index) const;
  // Const, for x.index({0}) = y would write nothing: index_put_() and x[0] = y write.
  const Tensor index(std::initializer_list<Index> index) const;
  const Tensor& index_put_(std::initializer_list<Index> index, const Tensor& values) const;
  const Tensor& index_put_(std::initializer_list<Index> index, Scalar value) const;

  // x += y is x = x + y in x's type and shape, to which y stretches, and all handles of x see it.
  // Recorded where a gradient is wanted (ops/in_place.h). add_(), sub_(), mul_() and div_() are the
  // same by name. (ops)
#define ASSIGNMENT(op, name)                                        \
  const Tensor& operator op(const Tensor& y) const&;                \
  const Tensor& operator op(Scalar y) const&;                       \
  Tensor operator op(const Tensor& y) const&&;                      \
  Tensor operator op(Scalar y) const&&;                             \
  const Tensor& name(const Tensor& y) const& { return *this op y; } \
  const Tensor& name(Scalar y) const& { return *this op y; }        \
  Tensor name(const Tensor& y) const&&;                             \
  Tensor name(Scalar y) const&&;
  ASSIGNMENT(+=, add_)
  ASSIGNMENT(-=, sub_)
  ASSIGNMENT(*=, mul_)
  ASSIGNMENT(/=, div_)
#undef ASSIGNMENT
  // x += alpha * y, x -= alpha * y: what a step of an optimizer writes. (ops)
  const Tensor& add_(const Tensor& y, Scalar alpha) const&;
  const Tensor& sub_(const Tensor& y, Scalar alpha) const&;
  Tensor add_(const Tensor& y, Scalar alpha) const&&;
  Tensor sub_(const Tensor& y, Scalar alpha) const&&;

  // Functions in place: x.exp_() is exp_(x), x.fill_(2) is fill_(x, 2). Of a temporary the result
  // has the values, `empty({3}).uniform_(-1, 1)`. Error for a copy of a tensor that lives, which
  // would not see them (in_place.h): `x.select(1, 0).fill_(2)`. (ops)
#define IN_PLACE(name, parameters, arguments) \
  const Tensor& name##_ parameters const&;    \
  Tensor name##_ parameters const&&;
#include <peal/autograd/core/in_place.def>
#undef IN_PLACE
#define WRITE_ALL(name, parameters, arguments) \
  const Tensor& name parameters const&;        \
  Tensor name parameters const&&;
#define WRITE_SOME WRITE_ALL
#include <peal/autograd/core/writes.def>
#undef WRITE_ALL
#undef WRITE_SOME

  // What is a function of peal as well. (ops)
#define METHOD(result, name, parameters, arguments) result name parameters const;
#include <peal/autograd/core/methods.def>
#undef METHOD
  // Of this shape, on this tensor's device, and in its type unless another is named. (ops)
  Tensor new_empty(const Shape& shape, std::optional<DType> dtype = std::nullopt) const;
  Tensor new_zeros(const Shape& shape, std::optional<DType> dtype = std::nullopt) const;
  Tensor new_ones(const Shape& shape, std::optional<DType> dtype = std::nullopt) const;
  Tensor new_full(const Shape& shape, Scalar value,
                  std::optional<DType> dtype = std::nullopt) const;
  Tensor view(const std::vector<std::int64_t>& shape) const;  // reshape
  Tensor to(DType dtype) const;                               // cast
  Tensor type_as(const Tensor& other) const { return to(other.dtype()).to(other.device()); }
  // This, whose elements always lie side by side; but of a copy that t() or select() made of a
  // tensor that lives, one of its own, which may be written (in_place.h): its clone(), or, of a
  // temporary, its elements.
  Tensor contiguous() const&;
  Tensor contiguous() const&&;

  // These elements are used on `stream` too: once released, their memory is given out again only
  // after what that stream has queued by then.
  void record_stream(const Stream& stream) const;

  bool requires_grad() const { return body_ && body_->requires_grad; }
  bool is_leaf() const { return body().node == nullptr; }
  // A leaf wants a gradient. Error for integer types and for tensors that an operation made. (tape)
  const Tensor& set_requires_grad(bool wanted = true) const;
  const Tensor& requires_grad_(bool wanted = true) const { return set_requires_grad(wanted); }
  // The accumulated gradient of a leaf, undefined until one was written. (tape)
  Tensor grad() const;
  // Marks the gradient undefined. Memory of its own goes back; a place in others' stays. (tape)
  void zero_grad() const;
  // The slot of a leaf that requires a gradient. (tape)
  GradSlot& grad_slot() const;
  // What `hook` makes of the gradient goes on in its place; a hook that gives nothing, or an
  // undefined tensor, looks at it only, and none may write it. It comes once a backward, with the
  // sum of all that used this; in the order in which hooks were added, before a leaf accumulates.
  // The id removes it. Error where no gradient is wanted. (tape)
  using GradientHook = std::function<Tensor(const Tensor& grad)>;
  template <class F>
  std::uint64_t register_hook(F hook) const {
    if constexpr (std::is_void_v<std::invoke_result_t<F&, const Tensor&>>) {
      return add_gradient_hook([hook = std::move(hook)](const Tensor& grad) mutable {
        hook(grad);
        return Tensor();
      });
    } else {
      return add_gradient_hook(std::move(hook));
    }
  }
  void remove_hook(std::uint64_t id) const;
  // Lets the result of an operation keep its gradient, as leaves do: grad(), zero_grad(). (tape)
  void retain_grad() const;
  bool retains_grad() const { return !is_leaf() && body().slot != nullptr; }
  // Runs the tape backwards from this tensor; `seed` is 1 for a one-element tensor. (tape)
  void backward(const Tensor& seed = {}, bool retain_graph = false) const;

  TensorBody& body() const;
  // True when no other handle reaches these elements, so they may be taken over.
  bool owned_alone() const { return body_.use_count() == 1 && body_->storage.use_count() == 1; }
  bool same_as(const Tensor& other) const { return body_ == other.body_; }

 private:
  std::uint64_t add_gradient_hook(GradientHook hook) const;
  static Tensor from_bytes(const void* data, std::int64_t count, DType dtype, const Shape& shape,
                           Device device);
  void* checked_data(DType dtype) const;
  void read_item(void* value, DType dtype) const;

  std::shared_ptr<TensorBody> body_;
};

using Tensors = std::vector<Tensor>;

// As PyTorch prints it: "tensor([1.0000, 2.5000])", with dtype, device and gradient where they are
// not what one expects, and the middle left out past 1000 elements. Of a device it is a copy.
std::string to_string(const Tensor& x);
std::ostream& operator<<(std::ostream& out, const Tensor& x);

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Tensor here = detach().to(Device{});
  const T* first = here.data<T>();
  return std::vector<T>(first, first + numel());
}

}  // namespace peal

template <>
struct fmt::formatter<peal::Tensor> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  template <class Context>
  auto format(const peal::Tensor& x, Context& context) const {
    return fmt::format_to(context.out(), "{}", peal::to_string(x));
  }
};

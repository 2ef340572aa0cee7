// SPDX-License-Identifier: Apache-2.0
// Basic and advanced indexing (NumPy's terms), x[...], for reading and for writing, as in PyTorch:
//
//   x[0]   x[-1]   x[i][j]            one index, which takes its dimension away
//   x[Slice(1, 3)]                    x[1:3]; Slice(None, None, 2) is ::2, Slice(-3) is -3:
//   x[{Slice(), 0}]                   x[:, 0]
//   x[{Ellipsis, 0}]   x[None]        as many whole dimensions as are left; a new one of size 1
//   x[mask]   x[x > 0]                a mask (bool) of the shape of as many dimensions
//   x[index]   x[{rows, columns}]     integer tensors, broadcast against each other; negative ones
//                                     count from the end
//
// x[...] gives an Indexed, which is a part of x: it converts to a Tensor (reading), and what is
// assigned to it is written into x. `auto row = x[0]; row += 1;` writes x, as in PyTorch; `Tensor
// row = x[0];` is a tensor of its own, which shares x's elements where they lie in one piece (x[0],
// x[{0, Slice(1, 3)}]) and is a copy else. A part is read when it is used: `auto p = x[mask]`
// follows x until then, and is recorded or not as the mode is then, where PyTorch has copied;
// `Tensor p = x[mask]` reads at once. Values to be written stretch to the part and are cast to x's
// type. Of an index that comes twice the last value stays and has the gradient (in PyTorch all have
// it), and `x[index] += 1` adds once.
//
// All of it is recorded: writing as ops/in_place.h says. Integer tensors and masks are looked at by
// the host, which waits for a device. Errors: an index outside of its dimension, more indices than
// dimensions, masks of other sizes, a step below 1, writing into a part of a copy, which
// would be lost: of what tensors chose (x[mask][0] = 1), and, while x lives, of what shares
// elements in PyTorch (x.t()[0] = 1; core/in_place.h). Thread safety: as of the tensor.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <variant>

namespace peal {

struct NoneIndex {
  operator std::optional<std::int64_t>() const { return std::nullopt; }
};
struct EllipsisIndex {};
inline constexpr NoneIndex None{};
inline constexpr EllipsisIndex Ellipsis{};

// [start, stop) in steps; negative ends count from the end, and those beyond it are cut.
struct Slice {
  Slice() = default;
  explicit Slice(std::optional<std::int64_t> start, std::optional<std::int64_t> stop = std::nullopt,
                 std::optional<std::int64_t> step = std::nullopt)
      : start(start), stop(stop), step(step.value_or(1)) {}

  std::optional<std::int64_t> start, stop;
  std::int64_t step = 1;
};

class Index {
 public:
  using Value = std::variant<std::int64_t, Slice, NoneIndex, EllipsisIndex, Tensor>;

  template <class T>
  requires std::integral<T> Index(T i)
      : value_(static_cast<std::int64_t>(i)) {}    // NOLINT: conversions
  Index(bool) = delete;                            // neither 0 nor 1
  Index(const Slice& slice) : value_(slice) {}     // NOLINT
  Index(NoneIndex none) : value_(none) {}          // NOLINT
  Index(EllipsisIndex all) : value_(all) {}        // NOLINT
  Index(const Tensor& tensor) : value_(tensor) {}  // NOLINT
  inline Index(const Indexed& part);               // NOLINT

  const Value& value() const { return value_; }

 private:
  Value value_;
};

class Indexed {
 public:
  Indexed(const Indexed&) = default;

  Tensor get() const;
  operator Tensor() const { return get(); }  // NOLINT: reading
  explicit operator bool() const { return static_cast<bool>(get()); }

  // x[i] = y writes x. Of a part that has a name there is no =, which in Python would give the name
  // to something else: `Tensor row = x[i]` can be assigned, and x[i] = y, or row.copy_(y), writes.
  const Indexed& operator=(const Tensor& values) const&& { return store(values); }
  const Indexed& operator=(Scalar value) const&& { return store(value); }
  Indexed& operator=(const Indexed& values) && {
    store(values.get());
    return *this;
  }
  const Indexed& operator+=(const Tensor& y) const;
  const Indexed& operator-=(const Tensor& y) const;
  const Indexed& operator*=(const Tensor& y) const;
  const Indexed& operator/=(const Tensor& y) const;
  const Indexed& operator+=(Scalar y) const;
  const Indexed& operator-=(Scalar y) const;
  const Indexed& operator*=(Scalar y) const;
  const Indexed& operator/=(Scalar y) const;

  Indexed operator[](const Index& index) const;
  Indexed operator[](std::initializer_list<Index> index) const;

  // x[...] = values, or, accumulated, += of all of them, those of one place as well.
  void put(const Tensor& values, bool accumulate) const;

  // What is asked of a tensor most.
  Shape shape() const { return get().shape(); }
  std::int64_t size(int dim) const { return get().size(dim); }
  int dim() const { return get().dim(); }
  std::int64_t numel() const { return get().numel(); }
  DType dtype() const { return x_.dtype(); }
  Device device() const { return x_.device(); }
  bool requires_grad() const { return x_.requires_grad(); }
  template <class T>
  T item() const {
    return get().item<T>();
  }
  template <class T>
  std::vector<T> to_vector() const {
    return get().to_vector<T>();
  }
  Tensor detach() const { return get().detach(); }
  Tensor clone() const { return get().clone(); }
  Tensor to(Device device) const { return get().to(device); }
  Tensor cpu() const { return get().cpu(); }
  Tensor to(DType dtype) const { return get().to(dtype); }
  Tensor view(const std::vector<std::int64_t>& shape) const { return get().view(shape); }
  void backward() const { get().backward(); }
  void zero_() const { store(0); }
  void copy_(const Tensor& values) const { store(values); }
  const Indexed& add_(const Tensor& y) const { return *this += y; }
  const Indexed& sub_(const Tensor& y) const { return *this -= y; }
  const Indexed& mul_(const Tensor& y) const { return *this *= y; }
  const Indexed& div_(const Tensor& y) const { return *this /= y; }
  const Indexed& add_(Scalar y) const { return *this += y; }
  const Indexed& sub_(Scalar y) const { return *this -= y; }
  const Indexed& mul_(Scalar y) const { return *this *= y; }
  const Indexed& div_(Scalar y) const { return *this /= y; }
  const Indexed& add_(const Tensor& y, Scalar alpha) const;
  const Indexed& sub_(const Tensor& y, Scalar alpha) const;
#define IN_PLACE(name, parameters, arguments) const Indexed& name##_ parameters const;
#include <peal/autograd/core/in_place.def>
#undef IN_PLACE
#define WRITE_ALL(name, parameters, arguments) const Indexed& name parameters const;
#define WRITE_SOME WRITE_ALL
#include <peal/autograd/core/writes.def>
#undef WRITE_ALL
#undef WRITE_SOME
#define METHOD(result, name, parameters, arguments) result name parameters const;
#include <peal/autograd/core/methods.def>
#undef METHOD

 private:
  const Indexed& store(const Tensor& values, bool accumulate = false) const;
  const Indexed& store(Scalar value) const;
  friend class Tensor;

  // Elements of a dense array at `at`, `at` + steps, ...
  struct Region {
    Shape shape;
    std::array<std::int64_t, Shape::max_dims> steps{};  // of each dimension, in elements
    std::int64_t at = 0;
  };

  Indexed(const Tensor& x, const Region& region, std::span<const Index> index);
  Indexed part(std::span<const Index> index) const;
  void write(const Tensor& values, bool accumulate) const;

  Tensor x_;
  Region region_;
  // By dimension of the region: i64 indices on the CPU that choose in it, or undefined for all of
  // it.
  Tensors picks_;
  bool by_tensors_ = false;
  bool of_copy_ = false;  // x_ is what tensors chose from another
};

// x[index] = values, and where they accumulate x[index] += values, but that values for one place
// add up. index_put is x's copy after that.
const Tensor& index_put_(const Tensor& x, std::initializer_list<Index> index, const Tensor& values,
                         bool accumulate = false);
Tensor index_put(const Tensor& x, std::initializer_list<Index> index, const Tensor& values,
                 bool accumulate = false);

inline Index::Index(const Indexed& part) : value_(part.get()) {}

}  // namespace peal

template <>
struct fmt::formatter<peal::Indexed> : fmt::formatter<peal::Tensor> {
  template <class Context>
  auto format(const peal::Indexed& part, Context& context) const {
    return fmt::formatter<peal::Tensor>::format(part.get(), context);
  }
};

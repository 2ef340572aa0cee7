// SPDX-License-Identifier: Apache-2.0
// f16 and bf16 are storage: the CPU computes them in f32. widening<kernel, written> is `kernel` for
// f32, served for these types as well: tensors of them come to it widened to f32, and of the first
// `written` tensors among its arguments the results are narrowed back, so each is rounded once.
// Other tensors go through as they are, so a statistic or a parameter in f32 may stand beside an x
// in bf16. Which kernels have it is said in table.cpp. Thread safety: as of the kernel.
#pragma once

#include <peal/autograd/kernels/cpu/table.h>

#include <tuple>
#include <type_traits>

namespace peal::cpu {

enum class Written : std::uint8_t {
  whole,  // what was there is not read
  onto    // it is
};

// One argument on its way to the kernel.
template <class Arg>
class Widened {
 public:
  Widened(Arg argument, int&, int, Written) : argument_(argument) {}
  Arg get() const { return argument_; }
  void narrow() const {}

 private:
  Arg argument_;
};

template <>
class Widened<const Tensor&> {
 public:
  Widened(const Tensor& narrow, int& place, int written, Written how)
      : narrow_(narrow), written_(place++ < written) {
    if (!narrow.defined() || !is_low_precision(narrow.dtype())) return;
    wide_ = Tensor::empty(narrow.shape(), DType::f32, Device{});
    if (!written_ || how == Written::onto) cast(wide_, narrow);
  }
  const Tensor& get() const { return wide_.defined() ? wide_ : narrow_; }
  void narrow() const {
    if (written_ && wide_.defined()) cast(narrow_, wide_);
  }

 private:
  const Tensor& narrow_;
  bool written_;
  Tensor wide_;
};

template <>
class Widened<const AttentionResult&> {
 public:
  Widened(const AttentionResult& narrow, int& place, int written, Written how)
      : y_(narrow.y, place, written, how),
        kept_(narrow.kept, place, written, how),
        wide_{y_.get(), kept_.get()} {}
  const AttentionResult& get() const { return wide_; }
  void narrow() const {
    y_.narrow();
    kept_.narrow();
  }

 private:
  Widened<const Tensor&> y_, kept_;
  AttentionResult wide_;
};

template <class Arg>
bool is_low(const Arg& argument) {
  if constexpr (std::is_same_v<Arg, Tensor>) {
    return argument.defined() && is_low_precision(argument.dtype());
  } else if constexpr (std::is_same_v<Arg, AttentionResult>) {
    return is_low(argument.y) || is_low(argument.kept);
  } else {
    return false;
  }
}

template <auto kernel, int written, Written how, class... Args>
bool widen(Args... args) {
  if (!(is_low(args) || ...)) return kernel(args...);
  int place = 0;
  // In braces, so that places are counted from the left.
  const std::tuple<Widened<Args>...> all{Widened<Args>(args, place, written, how)...};
  return std::apply(
      [](const auto&... each) {
        const bool served = kernel(each.get()...);
        if (served) (each.narrow(), ...);
        return served;
      },
      all);
}

template <auto kernel, int written, Written how, class... Args>
constexpr auto widened_as(bool (*)(Args...)) {
  return widen<kernel, written, how, Args...>;
}

template <auto kernel, int written, Written how = Written::whole>
inline constexpr auto widening = widened_as<kernel, written, how>(kernel);

// `first` where it serves the types, else `second`.
template <auto first, auto second, class... Args>
bool try_both(Args... args) {
  return first(args...) || second(args...);
}
template <auto first, auto second, class... Args>
constexpr auto try_both_as(bool (*)(Args...)) {
  return try_both<first, second, Args...>;
}
template <auto first, auto second>
inline constexpr auto preferring = try_both_as<first, second>(first);

}  // namespace peal::cpu

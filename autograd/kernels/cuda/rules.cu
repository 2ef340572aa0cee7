// SPDX-License-Identifier: Apache-2.0
// rule_step over lists of tensors. One kernel for each number of tensors of state serves all rules:
// which one it is, is asked for each element, which costs nothing beside its memory.
#include <peal/autograd/kernels/cuda/steps.h>
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/rules.h>

namespace peal::cuda {
namespace {

// Only rules of so many states are asked for, so that the others are not compiled into it.
template <int states, class T>
PEAL_ELEMENT T any_rule(const functor::Rules<T>& f, T p, T g, T& a, T& b, T& c) {
  T result = p;
  functor::with_rule(f.rule, [&]<Rule which>() {
    if constexpr (states_of(which) == states) result = f.template step<which>(p, g, a, b, c);
  });
  return result;
}

template <class T>
struct RuleOfOne {
  functor::Rules<T> f;
  template <class G, class... Rounded>
  __device__ void operator()(std::int64_t, T& p, const G& g, T& a, Rounded&... rounded) const {
    T none{};
    p = any_rule<1>(f, p, static_cast<T>(g), a, none, none);
    ((rounded = static_cast<Rounded>(p)), ...);
  }
};

template <class T>
struct RuleOfTwo {
  functor::Rules<T> f;
  template <class G, class... Rounded>
  __device__ void operator()(std::int64_t, T& p, const G& g, T& a, T& b,
                             Rounded&... rounded) const {
    T none{};
    p = any_rule<2>(f, p, static_cast<T>(g), a, b, none);
    ((rounded = static_cast<Rounded>(p)), ...);
  }
};

template <class T>
struct RuleOfThree {
  functor::Rules<T> f;
  template <class G, class... Rounded>
  __device__ void operator()(std::int64_t, T& p, const G& g, T& a, T& b, T& c,
                             Rounded&... rounded) const {
    p = any_rule<3>(f, p, static_cast<T>(g), a, b, c);
    ((rounded = static_cast<Rounded>(p)), ...);
  }
};

}  // namespace

bool rule_step(std::span<const Stepped> list, const RuleStep& options) {
  return with_types(list, [&]<class T, class G>() {
    switch (states_of(options.rule)) {
      case 1:
        return step_all<T, G, InOut<T>>(list, live<RuleOfOne<T>>(options), &Stepped::param,
                                        &Stepped::grad, &Stepped::first);
      case 2:
        return step_all<T, G, InOut<T>, InOut<T>>(list, live<RuleOfTwo<T>>(options),
                                                  &Stepped::param, &Stepped::grad, &Stepped::first,
                                                  &Stepped::second);
      default:
        return step_all<T, G, InOut<T>, InOut<T>, InOut<T>>(
            list, live<RuleOfThree<T>>(options), &Stepped::param, &Stepped::grad, &Stepped::first,
            &Stepped::second, &Stepped::third);
    }
  });
}

}  // namespace peal::cuda

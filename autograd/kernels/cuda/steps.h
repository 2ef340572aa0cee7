// SPDX-License-Identifier: Apache-2.0
// What the kernels of optimizers' steps share: a functor whose numbers are those of each replay,
// the types of a list, and one walk over its parameters, gradients and states. Thread safety: as of
// a launch.
#pragma once

#include <peal/autograd/core/graph.h>
#include <peal/autograd/kernels/cuda/list.h>
#include <peal/autograd/kernels/dispatch.h>

#include <array>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

namespace peal::cuda {

// F of the options; in a graph, of the options of each replay.
template <class F, class Options>
Live<F> live(const Options& options) {
  static_assert(std::is_trivially_copyable_v<F>);
  const auto make = [](const Options& o) { return F{decltype(F::f)(o)}; };
  Graph* const graph = Graph::capturing();
  if (graph == nullptr || options.replayed == nullptr) return {make(options), nullptr};
  const Tensor place = graph->input({static_cast<std::int64_t>(sizeof(F))}, DType::u8,
                                    [make, next = *options.replayed](void* to) {
                                      const F f = make(next());
                                      std::memcpy(to, &f, sizeof f);
                                    });
  return {make(options), pointer<const F>(place)};
}

// run<T, G>(whether there are rounded ones) for the list's types; false for others.
template <class Run>
bool with_types(std::span<const Stepped> list, Run&& run) {
  const Stepped& front = list.front();
  const DType param = front.param.dtype(), grad = front.grad.dtype();
  if (!front.rounded.defined()) {
    return param == grad && with_real(param, [&]<class T>() { run.template operator()<T, T>(); });
  }
  if (param == DType::f32 && grad == DType::f16) {
    run.template operator()<float, Half>();
    return true;
  }
  if (param == DType::f32 && grad == DType::bf16) {
    run.template operator()<float, BFloat16>();
    return true;
  }
  return false;
}

// The arrays of Kinds... are those of `members`, in order; rounded ones are the last.
template <class T, class G, class... State, class F, class... Members>
void step_all(std::span<const Stepped> list, const F& f, Members... members) {
  const On on(list.front().param);
  constexpr std::size_t count = sizeof...(Members);
  const auto addresses = [&](auto... all) {
    return [list, all...](std::size_t i) {
      const Stepped& each = list[i];
      return std::pair{each.param.numel(), std::array<void*, sizeof...(all)>{(each.*all).raw()...}};
    };
  };
  static_assert(count == 2 + sizeof...(State));
  if constexpr (std::is_same_v<T, G>) {
    walk_list<InOut<T>, In<G>, State...>(on, list.size(), f, addresses(members...));
  } else {
    walk_list<InOut<T>, In<G>, State..., Out<G>>(on, list.size(), f,
                                                 addresses(members..., &Stepped::rounded));
  }
}

}  // namespace peal::cuda

// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing (torch.utils.checkpoint; Chen et al., "Training deep nets with sublinear
// memory cost", 2016): what a function keeps for backward is dropped, and computed anew from the
// function's inputs when backward comes to it. It costs a second forward, and of the function holds
// what goes in and what comes out.
//
//   Tensor y = checkpoint([this](const Tensor& x) { return block(x); }, x);
//
// f runs again with the random numbers and the autocast of the first time, under the same modules:
// what it reads besides must still be there, and be the same, when backward comes, and f gives the
// same each time. Parameters and results that it captures get their gradients as without
// checkpoint, once, in the same place among those of other layers: hooks, DDP and its unused
// parameters, autograd::grad and create_graph see no difference. No input has to want a gradient.
// Several may be in the air, in one another and before one backward.
//
// What f writes beside is written twice. batch_norm and instance_norm leave their running
// statistics alone the second time, and so do the layers with num_batches_tracked: they ask
// recomputing(), as may others that count or remember. Why it is made so:
// docs/decisions/0037-checkpointed-functions.md. Thread safety: as of the tape.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <concepts>
#include <functional>
#include <type_traits>
#include <utility>

namespace peal {

struct CheckpointOptions {
  // Draw again what f drew of the thread's generator; one that f captured is its own affair.
  bool preserve_rng_state = true;
  // Error in backward where f gives outputs of other shapes or types than in forward, by other
  // operations or of other tensors that want a gradient. Without it, only where backward could not
  // go on.
  bool determinism_check = true;
};

// f(inputs), of whose graph nothing is kept. Undefined inputs and outputs, and some of other types,
// are passed on. Error in backward where an input has been written in place since.
Tensors checkpoint(std::function<Tensors(const Tensors& inputs)> f, const Tensors& inputs,
                   const CheckpointOptions& options = {});

// f(input, ...), which gives a Tensor or Tensors.
template <class F, std::convertible_to<Tensor>... T>
requires std::invocable<F&, const T&...>
auto checkpoint(F f, const T&... inputs) {
  using Result = std::remove_cvref_t<std::invoke_result_t<F&, const T&...>>;
  const auto of_list = [f = std::move(f)](const Tensors& all) mutable {
    return [&]<std::size_t... i>(std::index_sequence<i...>) {
      if constexpr (std::same_as<Result, Tensors>) {
        return f(all[i]...);
      } else {
        return Tensors{f(all[i]...)};
      }
    }
    (std::index_sequence_for<T...>());
  };
  if constexpr (std::same_as<Result, Tensors>) {
    return checkpoint(of_list, Tensors{inputs...});
  } else {
    return checkpoint(of_list, Tensors{inputs...})[0];
  }
}

// Whether this thread runs a function again because backward needs what it keeps.
bool recomputing();

}  // namespace peal

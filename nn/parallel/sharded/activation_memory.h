// SPDX-License-Identifier: Apache-2.0
// Activation memory (Korthikanti et al., "Reducing activation recomputation in large transformer
// models", 2022): what forward and backward of a batch hold at once besides parameters, gradients
// and optimizer state, which is what the tape keeps, and what operations have while they run. Each
// rank has that of its own batch, however the rest is shared out. No formula knows every layer, so
// it is measured, with two small batches, and carried on to the batch that is asked for:
//
//   const std::int64_t bytes = nn::activation_memory(model, [&](std::int64_t samples) {
//     cross_entropy(model(randn({samples, 3, 224, 224})), zeros({samples}, DType::i64)).backward();
//   }, 64);
//   fmt::print("{}", nn::describe_memory(optimizer, 8, bytes));  // memory_estimate.h
//
// Which moment has the most depends on the batch: with a few samples it may be the one at which the
// gradient of a large weight is made, with many the end of forward. So the moments between any two
// parameters' gradients are carried on apart, each by its own slope. What no slope shows is another
// algorithm from some batch on: convolutions have one for a dozen images and more, with memory of
// its own. Where there are none, {2, 4} tell as much as the batches that are measured otherwise.
//
// Thread safety: as of Module; whatever else the process allocates meanwhile is counted, too, so
// where ranks are threads, one asks while the others wait.
#pragma once

#include <peal/nn/module.h>

#include <array>
#include <cstdint>
#include <functional>

namespace peal::nn {

// Bytes on the devices of the model's parameters (on the CPU as requested, elsewhere in the
// allocator's blocks), with the batch where forward_backward makes it. It is called with a number
// of samples, three times: `measured[0]`, for what stays from then on, and both of `measured`; or
// twice with `samples` where that is no more than measured[1]. What a batch of these takes besides
// its size (the length of sentences) is the same each time. The model, as it is before it is
// wrapped (checkpoint_wrapper apart), is left as it was: without gradients, with its buffers, and
// with the thread's random numbers where they were; what it keeps from call to call is reset().
// Error where a parameter has a gradient or is a wrapper's already, where forward_backward drops
// gradients or makes none, and for numbers that are not 0 < measured[0] < measured[1], 0 < samples.
std::int64_t activation_memory(Module& model,
                               const std::function<void(std::int64_t samples)>& forward_backward,
                               std::int64_t samples,
                               const std::array<std::int64_t, 2>& measured = {32, 64});

}  // namespace peal::nn

// SPDX-License-Identifier: Apache-2.0
// What the tests of a tensor-parallel GPT share: a small one, how it is cut, and what one process
// makes of it in twenty steps.
#pragma once

#include <peal/nn/optim/clip_grad.h>
#include <peal/nn/parallel/tensor/cross_entropy.h>
#include <peal/nn/parallel/tensor/tensor_parallel.h>
#include <peal/tests/autograd/gradcheck.h>

#include "fsdp_ranks.h"

namespace peal::testing {

inline constexpr std::int64_t even = 12;  // what 1, 2, 3 and 4 divide
inline Tensor spread_out(const Shape& shape, unsigned seed) {
  return test::normal<double>(shape, seed);
}
inline double far(const Tensor& a, const Tensor& b) { return difference({{"", a}}, {{"", b}}); }
inline Tensor gradient_of(const Tensor& x) { return x.grad().detach(); }

inline constexpr std::int64_t vocabulary = 12, heads = 4;
inline constexpr int steps = 20;
inline constexpr nn::AdamWOptions adam{.lr = 1e-2, .eps = 1e-6};
inline constexpr double most = 0.5;  // norm of the gradients

inline nn::GPT gpt_of_four_heads() { return nn::GPT({vocabulary, 8, heads, 2, 8}); }

inline Batch tokens_of(int step) {
  manual_seed(static_cast<std::uint64_t>(step) + 100);
  return {randint(0, vocabulary, {4, 8}), randint(0, vocabulary, {4, 8})};
}

inline nn::TensorParallelPlan plan(bool gather, bool sequence = false) {
  const std::string block = "transformer.h.*.";
  nn::TensorParallelPlan all{
      {"transformer.wte", nn::RowwiseParallel{}},
      {block + "attn.c_attn",
       nn::ColwiseParallel{.sequence_parallel = sequence, .parts = 3, .heads = heads}},
      {block + "attn.c_proj", nn::RowwiseParallel{.sequence_parallel = sequence}},
      {block + "mlp.c_fc", nn::ColwiseParallel{.sequence_parallel = sequence}},
      {block + "mlp.c_proj", nn::RowwiseParallel{.sequence_parallel = sequence}},
      {"lm_head", nn::ColwiseParallel{.gather_output = gather, .sequence_parallel = sequence}}};
  if (!sequence) return all;
  all.emplace_back("transformer.drop", nn::PrepareModuleOutput{});
  for (const char* each : {"ln_1", "ln_2", "attn.resid_dropout", "mlp.dropout"}) {
    all.emplace_back(block + each, nn::SequenceParallel{});
  }
  all.emplace_back("transformer.ln_f", nn::SequenceParallel{});
  return all;
}

// What one process has after each of the steps, once.
struct Trained {
  std::vector<double> losses, norms;
  NamedTensors start, state, moments;
};

inline NamedTensors copies(NamedTensors tensors) {
  for (auto& [name, tensor] : tensors) tensor = tensor.clone();
  return tensors;
}

inline const Trained& by_one_process() {
  static const Trained trained = [] {
    Trained all;
    nn::GPT gpt = fresh(gpt_of_four_heads);
    all.start = copies(gpt.state_dict());
    nn::AdamW optimizer(gpt.named_parameters(), adam);
    for (int step = 0; step < steps; ++step) {
      optimizer.zero_grad();
      const Tensor loss = loss_of(gpt, tokens_of(step));
      loss.backward();
      all.losses.push_back(loss.item<double>());
      all.norms.push_back(nn::clip_grad_norm_(gpt.parameters(), most).item<double>());
      optimizer.step();
    }
    all.state = copies(gpt.state_dict());
    all.moments = copies(optimizer.state_dict());
    return all;
  }();
  return trained;
}

inline Tensor cut_loss(nn::Module& model, const Batch& batch, const Group& group) {
  return nn::vocab_parallel_cross_entropy(model(batch.x), batch.y, group);
}

inline NamedTensors only_tensors(const NamedTensors& state) {
  NamedTensors some;
  for (const auto& each : state) {
    if (each.second.dim() > 0) some.push_back(each);
  }
  return some;
}

inline void check_is_one_process(nn::TensorParallel& tp, const nn::AdamW& optimizer) {
  CHECK(difference(tp.state_dict(), by_one_process().state) < 1e-10);
  CHECK(difference(only_tensors(tp.optimizer_state_dict(optimizer)),
                   only_tensors(by_one_process().moments)) < 1e-10);
}

}  // namespace peal::testing

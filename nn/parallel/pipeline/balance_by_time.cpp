// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/group/failure_while.h>
#include <peal/nn/parallel/pipeline/balance.h>
#include <peal/nn/parallel/pipeline/balance_by_time.h>
#include <peal/nn/parallel/pipeline/deferred_batch_norm.h>
#include <peal/nn/parallel/pipeline/skippable.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <sstream>
#include <string>
#include <utility>

namespace peal::nn {
namespace {

using Clock = std::chrono::steady_clock;

// Puts back, in the end, what a forward changes.
class Unchanged {
 public:
  explicit Unchanged(const Module& model) : model_(model), buffers_(model.buffers()) {
    for (const Tensor& buffer : buffers_) before_.push_back(buffer.detach().clone());
  }
  ~Unchanged() {
    context().generator = generator_;
    drop_batch_norm(model_);
    for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(before_[i]);
  }
  Unchanged(const Unchanged&) = delete;
  Unchanged& operator=(const Unchanged&) = delete;

 private:
  const Generator generator_ = context().generator;
  const Module model_;
  const Tensors buffers_;
  Tensors before_;
};

// Forward and backward of one layer; gradients go nowhere.
Tensor through(Module& layer, const Tensor& input) {
  const Tensor x = input.detach();
  if (is_floating(x.dtype())) x.set_requires_grad();
  const Tensor y = layer(x);
  if (!y.requires_grad()) return y;
  Tensors wanted;
  if (x.requires_grad()) wanted.push_back(x);
  for (const Tensor& p : layer.parameters()) {
    if (p.requires_grad()) wanted.push_back(p);
  }
  autograd::grad({y}, wanted, {.grad_outputs = {ones_like(y.detach())}, .allow_unused = true});
  return y.detach();
}

}  // namespace

std::vector<std::int64_t> profile_times(const Sequential& model, const Tensor& sample,
                                        double seconds) {
  const Unchanged guard(model);
  const EnableGrad recorded;
  std::vector<Module> layers = model.children();
  std::vector<std::int64_t> shortest(layers.size(), std::numeric_limits<std::int64_t>::max());
  const auto begin = Clock::now();
  const auto budget = std::chrono::duration<double>(seconds);
  for (int run = 0; run < 3 || Clock::now() - begin < budget; ++run) {
    SkipTable table;
    const SkipTable::Use use(table);
    Tensor x = sample;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const auto start = Clock::now();
      x = through(layers[i], x);
      const std::chrono::nanoseconds took = Clock::now() - start;
      shortest[i] = std::min<std::int64_t>(shortest[i], took.count());
      table.detach();
    }
  }
  return shortest;
}

std::vector<int> balance_by_time(const comm::ProcessGroup& group, const Sequential& model,
                                 const Tensor& sample, int parts, double seconds) {
  std::string wrong, text;
  if (group.rank() == 0) {
    wrong = comm::failure_while(group, "balance_by_time", [&] {
      for (const int layers : balance_by_size(profile_times(model, sample, seconds), parts)) {
        text += std::to_string(layers) + " ";
      }
    });
  }
  comm::agree_unless(group, "[pipe] the balance by time", concat(parts, " parts"), wrong,
                     "ask for as many on every rank");
  std::istringstream words(group.broadcast_object(text));
  std::vector<int> balance;
  for (int layers = 0; words >> layers;) balance.push_back(layers);
  return balance;
}

}  // namespace peal::nn

// SPDX-License-Identifier: Apache-2.0
// PreparedModel: what Accelerator::prepare() makes of a model, the same class whatever the strategy
// is: a handle to the same module, inside of which one of the wrappers of nn/parallel is. It is
// called as the model was, model(x) or model.call(&Net::f, x, mask), and computes in mixed
// precision where the accelerator does; what comes out is f32 then.
//
// Thread safety: as of Module.
#pragma once

#include <peal/autograd/autocast.h>
#include <peal/launch/training/accelerator/gradient_state.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/each_tensor.h>
#include <peal/nn/parallel/sharded/fsdp.h>
#include <peal/nn/parallel/sharded/sharded_ddp.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace peal::launch {

struct ModelBody {
  // The last: the model itself, of one rank.
  using Wrapper = std::variant<nn::DistributedDataParallel, nn::ShardedDDP,
                               nn::FullyShardedDataParallel, nn::Module>;
  nn::Module plain;     // before
  NamedTensors before;  // its parameters then
  Wrapper wrapper;
  std::weak_ptr<GradientState> state;
  int local = 0;      // no_sync() that live
  int apart = 0;      // those of them of a LocalSGD: nothing is averaged over ranks
  int backwards = 0;  // that are not averaged yet
  // DistributedDataParallel has averaged gradients, which may be there still.
  bool averaged = false;
  // Of them, where no DistributedDataParallel averages: what losses are weighed in, and samples.
  double unit = 1, samples = 0;
};

class PreparedModel : public nn::Module {
 public:
  // Accelerator::prepare() makes it.
  explicit PreparedModel(std::shared_ptr<ModelBody> body);

  Tensor forward(const Tensor& x) override;
  // The model by a function of its own, as Module::call(); inputs and outputs as of forward().
  template <class F, class... Args>
  auto call(F&& f, const Args&... args) {
    std::optional<Autocast> guard;  // where there is none, the program's own holds
    if (lowered()) guard.emplace(*lowered());
    auto result = nn::Module::call(std::forward<F>(f), args...);
    if (lowered()) nn::each_tensor(result, [](Tensor& each) { each = widened_output(each); });
    return result;
  }

  // As of DistributedDataParallel: until what is returned goes, backward adds up gradients, and
  // nothing is sent.
  [[nodiscard]] std::shared_ptr<void> no_sync();
  // As DistributedDataParallel::backward(loss, samples), whatever the strategy is: the mean over
  // all samples, of all ranks, and of the backwards under no_sync() before it.
  void backward(const Tensor& loss, double samples);
  // Until what is returned goes, every rank has the whole model, with "fsdp", too, and rank 0's
  // buffers: for evaluations of however many batches, and for saving by one rank. What is written
  // meanwhile is kept; write the same on all ranks. Collective; between steps.
  [[nodiscard]] std::shared_ptr<void> whole();
  // The norm of all gradients, of all ranks, which is at most max_norm afterwards; the norm before
  // is returned, f64, the same on all ranks. Collective.
  Tensor clip_grad_norm_(double max_norm, double norm_type = 2.0);

  // The plain model's, by its keys. Collective with "fsdp".
  NamedTensors state_dict() const;
  nn::IncompatibleKeys load_state_dict(const NamedTensors& state, bool strict = true);
  // As a part of a checkpoint.
  nn::Part part(std::string name) const;

  // The model, without what prepare() put round it.
  const nn::Module& unwrap() const { return prepared_->plain; }
  // The wrapper: of "fsdp" the second, of other strategies the first; the other is null, and both
  // are of one rank with "none" or "ddp".
  nn::DistributedDataParallel* ddp() const;
  nn::FullyShardedDataParallel* fsdp() const;
  // What all handles of it share.
  const std::shared_ptr<ModelBody>& body() const { return prepared_; }

 private:
  const std::optional<DType>& lowered() const;
  static Tensor widened_output(const Tensor& output);

  std::shared_ptr<ModelBody> prepared_;
};

// Whether these are all parameters of that model, in whatever order.
bool are_all_of(const ModelBody& model, const std::vector<Tensor>& parameters);
// Whether one of them is a parameter of that model.
bool any_is_of(const ModelBody& model, const std::vector<Tensor>& parameters);

}  // namespace peal::launch

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/gradients.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/comm/group/agree.h>
#include <peal/launch/training/accelerator/prepared_model.h>
#include <peal/nn/optim/clip_grad.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

namespace peal::launch {
namespace {

using DDP = nn::DistributedDataParallel;
using FSDP = nn::FullyShardedDataParallel;

nn::Module module_of(const ModelBody& body) {
  return std::visit([](const auto& wrapper) { return nn::Module(wrapper); }, body.wrapper);
}

std::shared_ptr<GradientState> state_of(const ModelBody& body) {
  auto state = body.state.lock();
  PEAL_CHECK(state,
             "[accelerator] a prepared model is of no use without the Accelerator that "
             "prepared it, which is gone; let that live as long");
  return state;
}

Tensor times(const Tensor& loss, double factor) { return factor == 1 ? loss : mul(loss, factor); }

std::vector<Tensor> gradients_of(const NamedTensors& parameters) {
  std::vector<Tensor> all;
  for (const auto& [name, parameter] : parameters) {
    if (const Tensor gradient = parameter.grad(); gradient.defined() && gradient.numel() > 0) {
      all.push_back(gradient);
    }
  }
  return all;
}

// Also where it is of a piece that has no elements, so that all ranks say the same.
bool has_gradient(const NamedTensors& parameters) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const auto& each) { return each.second.grad().defined(); });
}

// Of FullyShardedDataParallel, which averages over ranks, and of a rank's own model. A loss
// counts by its samples, in units that all ranks have alike, and what came is divided by all
// samples once these are known: before the backward, if it is the only one, else after the last.
// Which of these it is, is what all ranks have alike: how many backwards there were, not of how
// many samples.
void backward_by_samples(ModelBody& body, const Tensor& loss, double samples) {
  PEAL_CHECK(samples >= 0 && std::isfinite(samples),
             "[accelerator] backward: expected a number of samples, got ", samples);
  const auto state = state_of(body);
  if (body.backwards == 0) {
    body.samples = 0;
    body.unit = state->nominal_samples() * static_cast<double>(state->accumulation_steps);
  }
  ++body.backwards;
  body.samples += samples;
  const double unit = body.unit;
  if (body.local > body.apart) return times(loss, samples / unit).backward();
  const double ranks = body.apart > 0 ? 1 : state->group.world();
  double all = body.samples;
  if (ranks > 1) {
    const Tensor total = Tensor::scalar(all, Device{});
    state->group.all_reduce(total, comm::ReduceOp::sum, "samples of the step").wait();
    all = total.item<double>();
  }
  const bool is_only = body.backwards == 1;
  body.backwards = 0;
  if (all == 0) return times(loss, 0).backward();
  if (is_only) return times(loss, samples * ranks / all).backward();
  times(loss, samples / unit).backward();
  const NoGrad guard;
  const auto* const sharded = std::get_if<FSDP>(&body.wrapper);
  scale_all(gradients_of(sharded != nullptr ? sharded->local_parameters() : body.before),
            ranks * unit / all);
}

// A step's gradients are there, which others are added to, as by hand: outside of a turn, and
// without zero_grad(). All ranks have them then.
bool adds_to_averaged(const ModelBody& body) {
  if (!body.averaged || body.local > 0 || state_of(body)->uneven != nullptr) return false;
  return std::get_if<DDP>(&body.wrapper) != nullptr && has_gradient(body.before);
}

// The turn's step was made of a group of several batches, by whose number it is divided.
void check_not_divided(const ModelBody& body) {
  const auto state = state_of(body);
  PEAL_CHECK(state->turn.group <= 1 || !state->turn.step,
             "[accelerator] backward: the second one in the turn that ends a step of several "
             "batches, which are divided by already; add the losses of a batch up, and call it "
             "once");
}

// What is there is as it shall be, and the average over ranks of a loss that is weighed before.
void add_by_samples(const ModelBody& body, const Tensor& loss, double samples) {
  const auto& group = state_of(body)->group;
  const bool fits = samples >= 0 && std::isfinite(samples) && loss.requires_grad();
  const Tensor total = Tensor::scalar(fits ? samples : std::nan(""), Device{});
  group.all_reduce(total, comm::ReduceOp::sum, "samples of a backward").wait();
  const double all = total.item<double>();
  if (!std::isfinite(all)) {  // on all ranks alike
    const std::string wrong = concat(
        "expected a loss that goes through the model, and a number of samples, 0 or more; "
        "got ",
        loss.requires_grad() ? "" : "one that does not, and ", samples);
    comm::agree_unless(group, "[accelerator] backward", "", fits ? "" : wrong, "");
    fail("[accelerator] backward: the samples of all ranks have an infinite sum");
  }
  times(loss, all == 0 ? 0 : samples * group.world() / all).backward();
}

}  // namespace

PreparedModel::PreparedModel(std::shared_ptr<ModelBody> body)
    : nn::Module(module_of(*body)), prepared_(std::move(body)) {
  stay();
}

const std::optional<DType>& PreparedModel::lowered() const { return state_of(*prepared_)->lowered; }

Tensor PreparedModel::widened_output(const Tensor& output) {
  const bool is_low =
      output.defined() && (output.dtype() == DType::f16 || output.dtype() == DType::bf16);
  return is_low ? cast(output, DType::f32) : output;
}

Tensor PreparedModel::forward(const Tensor& x) {
  if (!lowered()) return nn::Module::forward(x);
  const Autocast guard(*lowered());
  return widened_output(nn::Module::forward(x));
}

std::shared_ptr<void> PreparedModel::no_sync() {
  auto wrapped = std::visit(
      [](auto& wrapper) -> std::shared_ptr<void> {
        if constexpr (requires { wrapper.no_sync(); }) {
          struct Held {
            explicit Held(std::remove_reference_t<decltype(wrapper)>& of) : local(of.no_sync()) {}
            decltype(wrapper.no_sync()) local;
          };
          return std::make_shared<Held>(wrapper);
        } else {
          return nullptr;
        }
      },
      prepared_->wrapper);
  ++prepared_->local;
  return {prepared_.get(), [body = prepared_, wrapped](void*) mutable {
            wrapped.reset();
            --body->local;
          }};
}

void PreparedModel::backward(const Tensor& loss, double samples) {
  ModelBody& body = *prepared_;
  if (ddp() != nullptr && body.apart == 0) {
    if (adds_to_averaged(body)) {
      check_not_divided(body);
      return add_by_samples(body, loss, samples);
    }
    body.averaged = body.local == 0;
    return ddp()->backward(loss, samples);
  }
  // Gradients that were given up count no longer.
  if (fsdp() == nullptr && gradients_of(body.before).empty()) body.backwards = 0;
  if (body.backwards == 0 && has_gradient(fsdp() ? fsdp()->local_parameters() : body.before)) {
    check_not_divided(body);
  }
  backward_by_samples(body, loss, samples);
}

std::shared_ptr<void> PreparedModel::whole() {
  if (fsdp() != nullptr) {
    fsdp()->sync_buffers();
    return fsdp()->summon_full_parameters();
  }
  if (ddp() != nullptr) ddp()->sync_buffers();
  return nullptr;
}

Tensor PreparedModel::clip_grad_norm_(double max_norm, double norm_type) {
  if (auto* const owned = std::get_if<nn::ShardedDDP>(&prepared_->wrapper)) {
    return owned->clip_grad_norm_(max_norm, norm_type);
  }
  if (FSDP* const sharded = fsdp()) {
    return Tensor::scalar(sharded->clip_grad_norm_(max_norm, norm_type), Device{});
  }
  return nn::clip_grad_norm_(parameters(), max_norm, norm_type);
}

NamedTensors PreparedModel::state_dict() const {
  return fsdp() != nullptr ? fsdp()->state_dict() : nn::Module::state_dict();
}

nn::IncompatibleKeys PreparedModel::load_state_dict(const NamedTensors& state, bool strict) {
  return fsdp() != nullptr ? fsdp()->load_state_dict(state, strict)
                           : nn::Module::load_state_dict(state, strict);
}

nn::Part PreparedModel::part(std::string name) const {
  return std::visit([&](auto& wrapper) { return nn::Part(std::move(name), wrapper); },
                    prepared_->wrapper);
}

DDP* PreparedModel::ddp() const {
  if (auto* const found = std::get_if<DDP>(&prepared_->wrapper)) return found;
  return std::get_if<nn::ShardedDDP>(&prepared_->wrapper);
}

FSDP* PreparedModel::fsdp() const { return std::get_if<FSDP>(&prepared_->wrapper); }

namespace {

// How many of them are the model's.
std::size_t how_many_of(const ModelBody& model, const std::vector<Tensor>& parameters) {
  std::unordered_set<const TensorBody*> own;
  for (const auto& [name, parameter] : model.before) own.insert(&parameter.body());
  std::unordered_set<const TensorBody*> found;
  for (const Tensor& parameter : parameters) {
    if (own.contains(&parameter.body())) found.insert(&parameter.body());
  }
  return found.size();
}

}  // namespace

// model.parameters() gives them in the model's own order, at each step.
bool are_all_of(const ModelBody& model, const std::vector<Tensor>& parameters) {
  const auto& own = model.before;
  if (parameters.size() != own.size()) return false;
  const auto is_own = [](const Tensor& each, const auto& mine) {
    return each.same_as(mine.second);
  };
  return std::equal(parameters.begin(), parameters.end(), own.begin(), is_own) ||
         how_many_of(model, parameters) == parameters.size();
}

bool any_is_of(const ModelBody& model, const std::vector<Tensor>& parameters) {
  return how_many_of(model, parameters) > 0;
}

}  // namespace peal::launch

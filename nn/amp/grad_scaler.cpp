// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/graph.h>
#include <peal/autograd/core/stateful.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/gradients.h>
#include <peal/nn/amp/grad_scaler.h>

#include <cmath>
#include <cstring>
#include <exception>
#include <limits>

namespace peal::nn {

GradScaler::GradScaler(const GradScalerOptions& options, comm::ProcessGroup group)
    : options_(options),
      group_(std::move(group)),
      scale_(std::make_shared<double>(options.init_scale)) {
  constexpr double unbounded = std::numeric_limits<double>::infinity();
  constexpr double least = std::numeric_limits<double>::min();
  check_setting("GradScaler: init_scale", options.init_scale, least, unbounded);
  check_setting("GradScaler: growth_factor", options.growth_factor, std::nextafter(1.0, 2.0),
                unbounded);
  check_setting("GradScaler: backoff_factor", options.backoff_factor, least, 1);
  PEAL_CHECK(options.growth_interval >= 1, "GradScaler: growth_interval: expected at least 1, got ",
             options.growth_interval);
}

Tensor GradScaler::scale(const Tensor& loss) const {
  if (!options_.enabled) return loss;
  const Tensor wide = cast(loss, computed_in(loss.dtype()));
  Graph* const graph = Graph::capturing();
  if (graph == nullptr) return mul(wide, *scale_);
  // Each replay has the scale of its time.
  const auto now = [&]<class T>() {
    return graph->input({}, wide.dtype(), [scale = scale_](void* to) {
      const T value = static_cast<T>(*scale);
      std::memcpy(to, &value, sizeof value);
    });
  };
  return mul(wide, wide.dtype() == DType::f64 ? now.operator()<double>() : now.operator()<float>());
}

void GradScaler::unscale_(Optimizer& optimizer) {
  if (!options_.enabled) return;
  PEAL_CHECK(
      Graph::capturing() == nullptr,
      "GradScaler: whether a step is taken depends on the gradients' values, which a captured "
      "graph cannot look at; capture what comes before, scale(loss).backward() with it, and "
      "call unscale_, step and update outside");
  const auto found = found_.find(&optimizer);
  PEAL_CHECK(found == found_.end(), "GradScaler: ",
             found != found_.end() && found->second.stepped ? "unscale_ after step"
                                                            : "unscale_ a second time",
             " for one optimizer since the last update");
  if (!group_) {
    check_not_pieces("GradScaler: unscale_ without a group", optimizer.parameters(),
                     "give the scaler the wrapper's group, so that all ranks leave out a step that "
                     "one cannot take");
  }
  PEAL_CHECK(group_ || !optimizer.lacks_gradients(),
             "GradScaler: unscale_ without a group: other ranks have gradients of this model that "
             "this one has not, and would step where this one leaves the step out; give the scaler "
             "the group of the Pipe or ShardedDDP, nn::GradScaler(options, group)");
  const bool infinite = group_ ? any_infinite(optimizer) : is_infinite(optimizer);
  found_[&optimizer] = {infinite, false};
}

// Unscaled, whether one of this rank's gradients is.
bool GradScaler::is_infinite(const Optimizer& optimizer) const {
  const NoGrad guard;
  std::vector<Tensor> grads;
  for (const Tensor& parameter : optimizer.parameters()) {
    const Tensor grad = parameter.grad();
    if (!grad.defined() || grad.numel() == 0) continue;
    grads.push_back(grad);
    PEAL_CHECK(grad.dtype() != DType::f16, "GradScaler: unscale_ of an f16 gradient of shape ",
               grad.shape(), "; keep parameters in f32 and compute in f16 with Autocast");
  }
  return !scale_all_finite(grads, 1 / *scale_);
}

// A rank that has no elements of what others cannot unscale would wait for these.
bool GradScaler::any_infinite(const Optimizer& optimizer) const {
  constexpr float finite = 0, infinite = 1, fails = 2;
  std::exception_ptr wrong;
  float mine = finite;
  try {
    if (is_infinite(optimizer)) mine = infinite;
  } catch (...) {
    wrong = std::current_exception();
    mine = fails;
  }
  const Tensor any = Tensor::scalar(mine, Device{});
  group_.all_reduce(any, comm::ReduceOp::max, "GradScaler: found_inf").wait();
  if (wrong) std::rethrow_exception(wrong);
  PEAL_CHECK(any.item<float>() < fails,
             "GradScaler: unscale_: another rank cannot unscale its gradients, and says why; ",
             "its optimizer has parts of the same model");
  return any.item<float>() > finite;
}

bool GradScaler::step(Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  if (!found_.contains(&optimizer)) unscale_(optimizer);
  Found& found = found_[&optimizer];
  PEAL_CHECK(!found.stepped,
             "GradScaler: step a second time for one optimizer since the last update");
  found.stepped = true;
  if (!found.infinite) optimizer.step();
  return !found.infinite;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  PEAL_CHECK(!found_.empty(), "GradScaler: update without a step or unscale_ before it");
  bool infinite = false;
  for (const auto& [optimizer, found] : found_) infinite = infinite || found.infinite;
  found_.clear();
  if (infinite) {
    *scale_ *= options_.backoff_factor;
    good_steps_ = 0;
  } else if (++good_steps_ >= options_.growth_interval) {
    // Not past what an f32 loss can be multiplied by.
    const double grown = *scale_ * options_.growth_factor;
    if (grown <= std::numeric_limits<float>::max()) *scale_ = grown;
    good_steps_ = 0;
  }
}

NamedTensors GradScaler::state_dict() const {
  return {{"scale", Tensor::scalar(*scale_, Device{})},
          {"growth_tracker", Tensor::scalar(good_steps_, Device{})}};
}

void GradScaler::load_state_dict(const NamedTensors& state) {
  StateReader reader("GradScaler", state);
  const auto scale = reader.number<double>("scale");
  const auto good_steps = reader.number<std::int64_t>("growth_tracker");
  reader.finish();
  PEAL_CHECK(scale > 0 && std::isfinite(scale) && good_steps >= 0,
             "GradScaler: load_state_dict: expected a finite scale above 0 and a growth_tracker of "
             "at least 0, got ",
             scale, " and ", good_steps);
  *scale_ = scale;
  good_steps_ = good_steps;
}

}  // namespace peal::nn

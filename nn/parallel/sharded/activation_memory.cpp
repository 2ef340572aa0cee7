// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/requested_bytes.h>
#include <peal/autograd/grad_slot.h>
#include <peal/nn/parallel/sharded/activation_memory.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace peal::nn {
namespace {

// Bytes in use on some devices.
class BytesInUse {
 public:
  explicit BytesInUse(const Tensors& of) {
    for (const Tensor& tensor : of) {
      if (std::ranges::count(devices_, tensor.device()) == 0) devices_.push_back(tensor.device());
    }
  }
  std::int64_t now() const {
    return sum([](Device device) {
      return device == Device{} ? cpu_requested_bytes().now
                                : memory_space(device).statistics(device).in_use;
    });
  }
  // Since the last call of restart().
  std::int64_t most() const {
    return sum([](Device device) {
      return device == Device{} ? cpu_requested_bytes().most
                                : memory_space(device).statistics(device).peak;
    });
  }
  void restart() const {
    for (const Device device : devices_) memory_space(device).reset_peak(device);
  }

 private:
  template <class F>
  std::int64_t sum(const F& of) const {
    std::size_t bytes = 0;
    for (const Device device : devices_) bytes += of(device);
    return static_cast<std::int64_t>(bytes);
  }
  std::vector<Device> devices_;
};

Tensors trained_of(const Module& model) {
  Tensors trained = model.parameters();
  std::erase_if(trained, [](const Tensor& parameter) { return !parameter.requires_grad(); });
  return trained;
}

// Puts back what a step changes.
class LeftAsItWas {
 public:
  explicit LeftAsItWas(Module& model) : model_(model), generator_(context().generator) {
    for (const Tensor& buffer : model.buffers()) {
      if (buffer.defined()) buffers_.emplace_back(buffer, buffer.clone());
    }
  }
  ~LeftAsItWas() {
    const NoGrad guard;
    for (const auto& [buffer, before] : buffers_) buffer.copy_(before);
    for (const Tensor& parameter : trained_of(model_)) parameter.grad_slot().clear();
    model_.reset();
    context().generator = generator_;
  }
  LeftAsItWas(const LeftAsItWas&) = delete;
  LeftAsItWas& operator=(const LeftAsItWas&) = delete;

 private:
  Module& model_;
  const Generator generator_;
  std::vector<std::pair<Tensor, Tensor>> buffers_;
};

// Forward and backward, cut where a parameter's gradient is complete.
class CutStep {
 public:
  CutStep(Module& model, const std::function<void(std::int64_t)>& run)
      : model_(model), run_(run), parameters_(trained_of(model)), in_use_(model.parameters()) {
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      GradSlot& slot = parameters_[p].grad_slot();
      hooks_.push_back(slot.add_hook([this, p](const Tensor&) { look(p); }));
    }
  }
  ~CutStep() {
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      parameters_[p].grad_slot().remove_hook(hooks_[p]);
    }
  }
  CutStep(const CutStep&) = delete;
  CutStep& operator=(const CutStep&) = delete;

  struct Seen {
    std::vector<std::size_t> parameters;  // whose gradients were complete, in order
    std::vector<std::int64_t> most;       // before each, and after the last
  };
  Seen operator()(std::int64_t samples) {
    model_.reset();
    seen_ = {};
    gradients_ = gradients();
    before_ = in_use_.now();
    in_use_.restart();
    run_(samples);
    PEAL_CHECK(!seen_.parameters.empty(),
               "activation_memory: forward_backward gave no parameter of the model a gradient; "
               "expected it to call backward() of a loss of this model");
    const bool kept = std::ranges::all_of(
        seen_.parameters, [&](std::size_t p) { return parameters_[p].grad_slot().defined(); });
    PEAL_CHECK(kept && gradients() >= gradients_ && !dropped_,
               "activation_memory: forward_backward dropped gradients of the model, whose bytes "
               "would be counted as activations; leave zero_grad() and the optimizer's step out");
    seen_.most.push_back(in_use_.most() - before_);
    return seen_;
  }

 private:
  std::int64_t gradients() const {
    return std::ranges::count_if(
        parameters_, [](const Tensor& parameter) { return parameter.grad_slot().defined(); });
  }
  void look(std::size_t parameter) {
    dropped_ = dropped_ || (seen_.parameters.empty() && gradients() < gradients_);
    seen_.parameters.push_back(parameter);
    seen_.most.push_back(in_use_.most() - before_);
    in_use_.restart();
  }

  Module& model_;
  const std::function<void(std::int64_t)>& run_;
  const Tensors parameters_;
  const BytesInUse in_use_;
  std::vector<std::uint64_t> hooks_;
  std::int64_t gradients_ = 0, before_ = 0;
  bool dropped_ = false;
  Seen seen_;
};

void check_untouched(const Module& model) {
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!parameter.requires_grad()) continue;
    PEAL_CHECK(!parameter.grad_slot().has_final_hook(), "activation_memory: ", name,
               " belongs to a distributed wrapper; ask before the model is wrapped");
    PEAL_CHECK(!parameter.grad_slot().defined(), "activation_memory: ", name,
               " has a gradient; ask before the first step, or after zero_grad()");
  }
}

}  // namespace

std::int64_t activation_memory(Module& model,
                               const std::function<void(std::int64_t samples)>& forward_backward,
                               std::int64_t samples, const std::array<std::int64_t, 2>& measured) {
  const auto [few, more] = measured;
  PEAL_CHECK(0 < few && few < more && 0 < samples,
             "activation_memory: expected 0 < measured[0] < measured[1] and 0 < samples, got ", few,
             ", ", more, " and ", samples);
  check_untouched(model);
  const LeftAsItWas guard(model);
  CutStep step(model, forward_backward);
  // The first time gradients get their memory, which they have from then on.
  if (samples <= more) {
    step(samples);
    return std::ranges::max(step(samples).most);
  }
  step(few);
  const CutStep::Seen at_few = step(few), at_more = step(more);
  const auto carried_on = [&](std::int64_t a, std::int64_t b) {
    return a + (b - a) * (samples - few) / (more - few);
  };
  if (at_few.parameters != at_more.parameters) {  // not the same moments
    return carried_on(std::ranges::max(at_few.most), std::ranges::max(at_more.most));
  }
  std::int64_t most = 0;
  for (std::size_t i = 0; i < at_few.most.size(); ++i) {
    most = std::max(most, carried_on(at_few.most[i], at_more.most[i]));
  }
  return most;
}

}  // namespace peal::nn

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/graph.h>
#include <peal/autograd/core/stateful.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/choose.h>
#include <peal/nn/optim/ema.h>

#include <algorithm>

namespace peal::nn {
namespace {

// Of the count in a state: no tensor of a module is called so, for names are not empty.
constexpr const char* count_key = ".updates";

}  // namespace

ExponentialMovingAverage::ExponentialMovingAverage(Module module, const EMAOptions& options)
    : options_(options), tensors_(module.named_parameters()) {
  PEAL_CHECK(options.decay >= 0 && options.decay <= 1,
             "ExponentialMovingAverage: expected a decay in [0, 1], got ", options.decay);
  PEAL_CHECK(!options.equal || !options.warm_up,
             "ExponentialMovingAverage: a mean of all updates has no warm_up; ask for one of both");
  if (options.buffers) {
    for (auto& entry : module.named_buffers()) {
      if (is_floating(entry.second.dtype())) tensors_.push_back(std::move(entry));
    }
  }
  for (const auto& [name, tensor] : tensors_) {
    const Tensor here = tensor.detach().clone();
    averages_.push_back(cast(here, computed_in(here.dtype())));
  }
}

void ExponentialMovingAverage::check_not_swapped(std::string_view what) const {
  PEAL_CHECK(!swapped(), "ExponentialMovingAverage: ", what,
             " while the model holds the averages; swap() back first");
}

void ExponentialMovingAverage::update() {
  check_not_swapped("update");
  const NoGrad guard;
  Graph* const graph = Graph::capturing();
  const double decay = decay_of(updates_ + 1);
  if (graph != nullptr) {
    PEAL_CHECK(
        !options_.warm_up && !options_.equal,
        "ExponentialMovingAverage: with warm_up each update decays by another number, and so "
        "does a mean, which a captured graph has not; update outside the graph");
    PEAL_CHECK(!options_.from_first || updates_ > 0,
               "ExponentialMovingAverage: with from_first the first update copies the model, which "
               "a captured graph would do each time; update once before");
    graph->at_replay([weak = std::weak_ptr(self_)] {
      const auto self = weak.lock();
      PEAL_CHECK(self != nullptr,
                 "ExponentialMovingAverage: it is gone, and a graph has captured its update");
      (*self)->check_not_swapped("update");
      ++(*self)->updates_;
    });
  } else {
    ++updates_;
  }
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    const Tensor now = cast(tensors_[i].second, averages_[i].dtype());
    if (decay == 0) {  // what is there may be infinite
      averages_[i].copy_(now);
    } else {
      mul_(averages_[i], decay);
      add_(averages_[i], now, 1 - decay);
    }
  }
}

// From 1 on.
double ExponentialMovingAverage::decay_of(std::int64_t update) const {
  const auto n = static_cast<double>(update);
  if (options_.equal) return (n - 1) / n;
  if (options_.from_first && update == 1) return 0;
  return options_.warm_up ? std::min(options_.decay, (1 + n) / (10 + n)) : options_.decay;
}

void ExponentialMovingAverage::copy_to() {
  put_by_.clear();
  write_averages();
}

void ExponentialMovingAverage::write_averages() {
  const NoGrad guard;
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    const Tensor& tensor = tensors_[i].second;
    tensor.copy_(cast(averages_[i], tensor.dtype()));
  }
}

void ExponentialMovingAverage::swap() {
  const NoGrad guard;
  if (swapped()) {
    for (std::size_t i = 0; i < put_by_.size(); ++i) tensors_[i].second.copy_(put_by_[i]);
    put_by_.clear();
    return;
  }
  for (const auto& [name, tensor] : tensors_) put_by_.push_back(tensor.detach().clone());
  write_averages();
}

NamedTensors ExponentialMovingAverage::state_dict() const {
  for (const auto& [name, tensor] : tensors_) {
    PEAL_CHECK(
        !tensor.storage()->is_piece(), "ExponentialMovingAverage: state_dict: ", name, " ",
        tensor.shape(),
        " is this rank's piece of a tensor-parallel model, and the other ranks' averages "
        "would be lost; swap(), and save state_dict() of what parallelize_module() returned");
  }
  NamedTensors state{{count_key, Tensor::scalar(updates_, Device{})}};
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    state.emplace_back(tensors_[i].first, averages_[i]);
  }
  return state;
}

void ExponentialMovingAverage::load_state_dict(const NamedTensors& state) {
  check_not_swapped("load_state_dict");
  StateReader reader("ExponentialMovingAverage", state);
  const bool old = reader.has("updates") && !reader.has(count_key);
  const auto updates = reader.number<std::int64_t>(old ? "updates" : count_key);
  Tensors from;
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    from.push_back(reader.tensor(tensors_[i].first, averages_[i].shape(), averages_[i].dtype()));
  }
  reader.finish();
  PEAL_CHECK(updates >= 0, "ExponentialMovingAverage: a state of ", updates, " updates");
  updates_ = updates;
  for (std::size_t i = 0; i < averages_.size(); ++i) averages_[i].copy_(from[i]);
}

}  // namespace peal::nn

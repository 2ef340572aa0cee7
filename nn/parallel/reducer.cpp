// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/graph.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/tape.h>
#include <peal/nn/parallel/reducer.h>

#include <chrono>
#include <string_view>

namespace peal::nn {
namespace {

// The first line in which two texts differ, of each.
std::pair<std::string, std::string> first_difference(std::string_view a, std::string_view b) {
  while (true) {
    const auto end_a = a.find('\n'), end_b = b.find('\n');
    const std::string_view line_a = a.substr(0, end_a), line_b = b.substr(0, end_b);
    const bool last = end_a == std::string_view::npos || end_b == std::string_view::npos;
    if (line_a != line_b || last) {
      const auto shown = [](std::string_view line) {
        return std::string(line.empty() ? "nothing more" : line);
      };
      return {shown(line_a), shown(line_b)};
    }
    a.remove_prefix(end_a + 1);
    b.remove_prefix(end_b + 1);
  }
}

Device common_device(const NamedTensors& parameters) {
  for (const auto& [name, tensor] : parameters) {
    const auto& [first_name, first] = parameters.front();
    PEAL_CHECK(tensor.device() == first.device(), "[ddp] ", first_name, " is on ", first.device(),
               " and ", name, " on ", tensor.device(),
               "; move the whole model to one device before it is wrapped");
  }
  return parameters.empty() ? Device{} : parameters.front().second.device();
}

}  // namespace

Reducer::Reducer(NamedTensors parameters, const NamedTensors& buffers,
                 std::shared_ptr<comm::ProcessGroup> group, const BucketCaps& caps)
    : parameters_(std::move(parameters)), group_(std::move(group)) {
  for (const auto& [name, tensor] : parameters_) {
    specs_.push_back({name, tensor.shape(), tensor.dtype(), tensor.requires_grad()});
  }
  plan_ = plan_buckets(specs_, caps);
  compare_models(buffers);
  for (const auto& [name, tensor] : parameters_) {
    PEAL_CHECK(!tensor.requires_grad() || !tensor.grad_slot().has_final_hook(), "[ddp] ", name,
               " already belongs to a distributed wrapper; destroy that one first");
  }
  bucket_of_.assign(parameters_.size(), -1);
  complete_.assign(parameters_.size(), false);
  const Device device = common_device(parameters_);
  // All memory before the first hook: a constructor that throws leaves no hook behind.
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    flights_.push_back({group_->allocate({plan_[b].count}, plan_[b].dtype, device),
                        concat("bucket ", b, ":"),
                        0,
                        {}});
  }
  watch_frozen();
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    const Bucket& bucket = plan_[b];
    Flight& flight = flights_[b];
    for (const auto& [parameter, at] : bucket.entries) {
      const auto& [name, tensor] = parameters_[static_cast<std::size_t>(parameter)];
      bucket_of_[static_cast<std::size_t>(parameter)] = static_cast<int>(b);
      flight.label += concat(&parameter == &bucket.entries[0].parameter ? " " : ", ", name);
      tensor.grad_slot().set_final_hook([this, index = static_cast<std::size_t>(parameter)](
                                            const Tensor&) { on_complete(index); });
      tensor.grad_slot().place(flight.memory.alias(tensor.shape(), at));
    }
  }
}

Reducer::~Reducer() {
  for (const auto& [slot, id] : frozen_) slot->remove_hook(id);
  for (std::size_t i = 0; i < bucket_of_.size(); ++i) {
    if (bucket_of_[i] < 0) continue;
    parameters_[i].second.grad_slot().remove_final_hook();
    parameters_[i].second.grad_slot().unplace();
  }
}

// Frozen parameters are in no bucket, and may be shared by wrapped models: a hook, of which each
// wrapper has its own, tells when one was thawed.
void Reducer::watch_frozen() {
  for (const auto& [name, tensor] : parameters_) {
    if (tensor.requires_grad() || !tensor.body().slot) continue;
    const std::uint64_t id = tensor.grad_slot().add_hook([this, name = name](const Tensor&) {
      const std::string message =
          concat("[ddp] rank ", group_->rank(), ": ", name,
                 " was frozen when the model was wrapped and has a gradient now, which is not "
                 "averaged; wrap the model again after thawing");
      group_->poison(message);
      fail(message);
    });
    frozen_.emplace_back(tensor.body().slot, id);
  }
}

void Reducer::compare_models(const NamedTensors& buffers) const {
  std::string mine = nn::describe(specs_, plan_);
  for (const auto& [name, tensor] : buffers)
    mine += concat("buffer ", name, " ", tensor.dtype(), " ", tensor.shape(), "\n");
  const auto all = group_->exchange(mine);
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    const auto [theirs, other] = first_difference(all[0], all[r]);
    fail(concat("[ddp] the models differ between ranks: rank 0 has '", theirs, "', rank ", r,
                " has '", other, "'; build the same model with the same options on every rank"));
  }
}

void Reducer::begin() {
  if (backward_ != 0 && next_ > 0 &&
      !captured_) {  // an exception ended that backward when others already waited for it
    const std::string message = concat(
        "[ddp] rank ", group_->rank(), ": an earlier backward was left by an exception after ",
        next_, " of ", flights_.size(), " buckets were launched; the ranks cannot go on together");
    group_->poison(message);
    fail(message);
  }
  backward_ = backward_number();
  captured_ = Graph::capturing() != nullptr;
  next_ = 0;
  complete_.assign(complete_.size(), false);
  for (std::size_t b = 0; b < plan_.size(); ++b) flights_[b].waiting = plan_[b].entries.size();
  after_backward([this] { finish(); });
}

void Reducer::on_complete(std::size_t parameter) {
  if (!synchronizing_) return;
  if (backward_ != backward_number()) begin();
  complete_[parameter] = true;
  --flights_[static_cast<std::size_t>(bucket_of_[parameter])].waiting;
  launch_ready();
  group_->progress();
}

void Reducer::launch_ready() {
  for (; next_ < flights_.size() && flights_[next_].waiting == 0; ++next_) {
    Flight& flight = flights_[next_];
    flight.work = group_->all_reduce(flight.memory, comm::ReduceOp::avg, flight.label);
  }
}

void Reducer::finish() {
  backward_ = 0;
  if (next_ < flights_.size()) {
    std::string names;
    for (std::size_t i = 0; i < complete_.size(); ++i) {
      if (bucket_of_[i] >= 0 && !complete_[i])
        names += concat(names.empty() ? "" : ", ", parameters_[i].first);
    }
    const std::string message =
        concat("[ddp] rank ", group_->rank(), ": no gradient came for ", names,
               " in this backward; every parameter must take part in the loss on every rank. "
               "Freeze those that are "
               "not meant to (set_requires_grad(false)) before the model is wrapped");
    group_->poison(message);
    fail(message);
  }
  TraceSpan span("wait for gradients", true);
  const auto start = std::chrono::steady_clock::now();
  for (const Flight& flight : flights_) flight.work.wait();
  exposed_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (Flight& flight : flights_) {
    wire_seconds_ += flight.work.seconds();
    flight.work = {};
  }
}

}  // namespace peal::nn

// SPDX-License-Identifier: Apache-2.0
// Step numbers: what tells a backward from others, on ranks that do the same. It is of calls alone:
// how many backwards and forwards there were, and through which of them this one goes.
#include <peal/autograd/core/graph.h>
#include <peal/autograd/tape.h>
#include <peal/comm/schedule/mix.h>
#include <peal/nn/parallel/reducer.h>

#include <algorithm>
#include <utility>

namespace peal::nn {

bool Reducer::Forward::gone() const {
  return std::all_of(nodes.begin(), nodes.end(), [](const auto& node) { return node.expired(); });
}

void Reducer::note_forward(const Tensors& outputs) {
  constexpr std::size_t many = 64;  // of models that are never trained, too
  if (Graph::capturing() != nullptr) return;
  Forward forward{forward_calls_, {}};
  for (const Tensor& output : outputs) {
    if (output.defined() && output.body().node) forward.nodes.push_back(output.body().node);
  }
  if (forward.nodes.empty()) return;
  ++forward_calls_;
  ++without_backward_;
  if (forwards_.size() >= many) std::erase_if(forwards_, [](const auto& f) { return f.gone(); });
  forwards_.push_back(std::move(forward));
}

// By calls that are the same on all ranks, where ranks do the same.
void Reducer::number_step() {
  const auto reached = [](const std::weak_ptr<Node>& node) {
    const auto here = node.lock();
    return here && here->walk != nullptr;
  };
  step_hash_ = 1;
  comm::mix(step_hash_, ++steps_);
  comm::mix(step_hash_, forward_calls_);
  without_backward_ -= std::erase_if(forwards_, [&](const Forward& forward) {
    if (std::none_of(forward.nodes.begin(), forward.nodes.end(), reached)) return false;
    comm::mix(step_hash_, forward.number);
    return true;
  });
  if (weights_.is_open()) comm::mix(step_hash_, 's');  // their number comes with the buckets
  name_step();
}

void Reducer::name_step() {
  step_ = concat("step ", steps_, weights_.is_open() ? " over samples" : "");
  if (without_backward_ > 0) step_ += concat(", forwards without a backward: ", without_backward_);
}

// Of a collective of this step.
std::uint64_t Reducer::tag_of(std::size_t bucket) const {
  std::uint64_t tag = tag_;
  comm::mix(tag, step_hash_);
  comm::mix(tag, bucket);
  return tag;
}

}  // namespace peal::nn

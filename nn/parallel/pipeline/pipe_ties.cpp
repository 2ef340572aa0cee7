// SPDX-License-Identifier: Apache-2.0
// Tied parameters of a pipe, which layers of several ranks share: each rank has one of its own, all
// begin alike, and after a step all have the gradient of all.
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/nn/parallel/pipeline/parcel.h>
#include <peal/nn/parallel/pipeline/pipe.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace peal::nn {
namespace {

// By rank, the name of the first of its layers that has the tensor.
struct Shared {
  Tensor tensor;
  std::string first;  // of all
  std::map<int, std::string> names;
  std::vector<std::string> all;
};

std::vector<Shared> shared_between(
    const std::vector<std::pair<std::string, NamedTensors>>& of_layers,
    const std::vector<int>& rank_of) {
  std::vector<Shared> all;
  std::map<const TensorBody*, std::size_t> place;
  for (std::size_t i = 0; i < of_layers.size(); ++i) {
    for (const auto& [below, tensor] : of_layers[i].second) {
      const std::string name = of_layers[i].first + "." + below;
      const auto [found, fresh] = place.try_emplace(&tensor.body(), all.size());
      if (fresh) all.push_back({tensor, name, {}, {}});
      all[found->second].names.try_emplace(rank_of[i], name);
      all[found->second].all.push_back(name);
    }
  }
  std::erase_if(all, [](const Shared& one) { return one.names.size() == 1; });
  return all;
}

}  // namespace

std::string Pipe::add_ties(const std::vector<std::pair<std::string, Module>>& layers) {
  std::vector<std::pair<std::string, NamedTensors>> parameters, buffers;
  for (const auto& [name, layer] : layers) {
    parameters.emplace_back(name, layer.named_parameters());
    buffers.emplace_back(name, layer.named_buffers());
  }
  for (const Shared& shared : shared_between(buffers, rank_of_)) {
    const auto& [rank, name] = *shared.names.begin();
    const auto& [other, theirs] = *std::next(shared.names.begin());
    fail(concat("pipe: the buffer ", name, " of rank ", rank, " is tied to ", theirs, " of rank ",
                other, "; balance the model so that one has both, or untie them"));
  }
  std::string lines;
  for (const Shared& shared : shared_between(parameters, rank_of_)) {
    std::vector<int> ranks;
    for (const auto& [rank, name] : shared.names) {
      ranks.push_back(rank);
      lines += concat("\ntied to ", shared.first, ": ", name);
    }
    const auto own = shared.names.find(group_.rank());
    if (own == shared.names.end()) continue;
    ties_.push_back({shared.tensor, own->second, shared.first, std::move(ranks), shared.all});
  }
  return lines;
}

bool Pipe::Tie::is_home(int rank) const { return ranks.front() == rank; }

bool Pipe::Tie::has(std::string_view key) const {
  return std::ranges::find(names, key) != names.end();
}

// f of all ranks' tensors, in their order, on the first of them; all get what it gives.
Tensor Pipe::met(const Tie& tie, const Tensor& mine,
                 const std::function<Tensor(const Tensor&, const Tensor&)>& f) const {
  const int home = tie.ranks.front();
  if (home != group_.rank()) {
    send_tensor(group_, mine, home);
    return recv_tensor(group_, home);
  }
  Tensor all = mine;
  for (const int rank : tie.ranks) {
    if (rank != home) all = f(all, recv_tensor(group_, rank));
  }
  for (const int rank : tie.ranks) {
    if (rank != home) send_tensor(group_, all, rank);
  }
  return all;
}

void Pipe::make_ties_equal() const {
  const NoGrad guard;
  for (const Tie& tie : ties_) {
    const Tensor value =
        met(tie, tie.parameter.detach(), [](const Tensor& first, const Tensor&) { return first; });
    if (!tie.is_home(group_.rank())) tie.parameter.copy_(value);
  }
}

// Gradients of earlier steps, which are of all ranks already.
Tensors Pipe::set_ties_aside() const {
  Tensors before;
  for (const Tie& tie : ties_) {
    const Tensor gradient = tie.parameter.requires_grad() ? tie.parameter.grad() : Tensor();
    before.push_back(gradient.defined() ? gradient.detach().clone() : Tensor());
    if (gradient.defined()) tie.parameter.zero_grad();
  }
  return before;
}

void Pipe::add_up_ties(const Tensors& before) const {
  const NoGrad guard;
  for (std::size_t i = 0; i < ties_.size(); ++i) {
    const Tie& tie = ties_[i];
    const bool trained = tie.parameter.requires_grad();
    const Tensor mine = trained ? tie.parameter.grad() : Tensor();
    const Tensor all =
        met(tie, mine.defined() ? mine.detach() : mine, [](const Tensor& sum, const Tensor& next) {
          if (!sum.defined() || !next.defined()) return sum.defined() ? sum : next;
          return sum + next;
        });
    PEAL_CHECK(trained || !all.defined(), "pipe: ", tie.name,
               " is frozen on this rank, and where it is tied to it (first: ", tie.first,
               ") it is not; freeze it on all of their ranks");
    if (!trained) continue;
    if (mine.defined()) tie.parameter.zero_grad();
    for (const Tensor& part : {before[i], all}) {
      if (part.defined()) tie.parameter.grad_slot().accumulate(part.clone());
    }
  }
}

}  // namespace peal::nn

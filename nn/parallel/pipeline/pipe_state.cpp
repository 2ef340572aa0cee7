// SPDX-License-Identifier: Apache-2.0
// What a pipe has as a whole: the model's state and an optimizer's, whose parts lie with the ranks
// that have the layers.
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/comm/group/agree.h>
#include <peal/nn/optim/optimizer.h>
#include <peal/nn/parallel/cut_parameters.h>
#include <peal/nn/parallel/pipeline/parcel.h>
#include <peal/nn/parallel/pipeline/pipe.h>
#include <peal/nn/tied_writes.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace peal::nn {
namespace {

constexpr std::string_view of_groups = "groups.", count_key = ".parameters";
constexpr std::string_view a_pipe = "[pipe] ";

bool is_count(std::string_view key) {
  return key.starts_with(of_groups) && key.ends_with(count_key);
}

std::vector<LocalTensor> own_alone(const NamedTensors& state) {
  std::vector<LocalTensor> mine;
  for (const auto& [key, tensor] : state) mine.push_back({key, tensor.shape(), tensor, 0});
  return mine;
}

// The ranks that a state has to come together from: for a pipe of one rank those of its cut layers,
// all of which get it, whichever of them is to have it.
const comm::ProcessGroup& parts_lie_with(const comm::ProcessGroup& pipe,
                                         const CutParameters& cuts) {
  return cuts && pipe.world() == 1 ? cuts.group() : pipe;
}

bool has_whole(const comm::ProcessGroup& pipe, std::optional<int> to) {
  return !to || pipe.world() == 1 || *to == pipe.rank();
}

}  // namespace

// Of the layer that a key begins with; in front of all where it begins with none.
int Pipe::place_of(std::string_view key) const {
  const auto found = std::ranges::find(names_, key.substr(0, key.find('.')));
  return found == names_.end() ? -1 : static_cast<int>(found - names_.begin());
}

bool Pipe::lies_elsewhere(std::string_view key) const {
  const int place = key.starts_with(of_groups) ? -1 : place_of(key);
  return place >= 0 && rank_of_[static_cast<std::size_t>(place)] != group_.rank();
}

NamedTensors Pipe::own_of(const NamedTensors& whole) const {
  NamedTensors own;
  for (const auto& entry : whole) {
    if (!lies_elsewhere(entry.first)) own.push_back(entry);
  }
  return own;
}

// Of whose state the key is, where that is a tied parameter of this rank by that name.
const Pipe::Tie* Pipe::tie_of(std::string_view key, std::string Tie::*name) const {
  const auto found = std::ranges::find(ties_, key.substr(0, key.rfind('.')), name);
  return found == ties_.end() ? nullptr : &*found;
}

// All ranks', in the model's order: on rank `to`, or on all where there is none.
NamedTensors Pipe::gathered(const NamedTensors& mine, std::optional<int> to) const {
  std::string keys;
  for (const auto& [key, tensor] : mine) keys += key + "\n";
  const bool here = has_whole(group_, to);
  NamedTensors all;
  const std::vector<std::string> lists = group_.all_gather_object(keys);
  for (int rank = 0; rank < group_.world(); ++rank) {
    const bool own = rank == group_.rank();
    std::istringstream lines(lists[static_cast<std::size_t>(rank)]);
    std::size_t next = 0;
    for (std::string key; std::getline(lines, key); ++next) {
      const Tensor have = own ? mine[next].second.detach() : Tensor();
      Tensor got;
      if (!to) {
        got = broadcast_tensor(group_, have, rank, "the state of a pipe");
      } else if (own && !here) {
        send_tensor(group_, have, *to);
      } else if (here) {
        got = own ? have : recv_tensor(group_, rank);
      }
      if (here) all.emplace_back(key, own ? got.clone() : got);
    }
  }
  std::ranges::stable_sort(all, {}, [&](const auto& entry) { return place_of(entry.first); });
  return all;
}

NamedTensors Pipe::state_dict() const {
  return gathered(CutParameters(local_).whole(local_.state_dict()), {});
}

void Pipe::load_state_dict(const NamedTensors& state) {
  const CutParameters cuts(local_);
  local_.load_state_dict(cuts.parts(own_of(state), a_pipe));
  const NoGrad guard;
  TiedWrites writes("Pipe");
  for (const Tie& tie : ties_) {  // one value on all ranks, as one process has one tensor
    for (const std::string& name : tie.names) {
      for (const auto& [key, value] : state) {
        if (key != name) continue;
        const Tensor mine = cuts.parts({{tie.name, value}}, a_pipe)[0].second;
        writes.write(name, tie.parameter.detach(), mine);
      }
    }
  }
}

// What it has of this rank's parameters, and its groups as they are of the whole model; of tied
// ones one rank has it, by their first name, as the model's own optimizer would.
std::pair<NamedTensors, NamedTensors> Pipe::state_of(const Optimizer& optimizer) const {
  std::set<std::string> known;
  for (const auto& [name, tensor] : local_.named_parameters()) known.insert(name);
  std::string wrong, settings;
  for (const std::string& name : optimizer.parameter_names()) {
    if (!known.contains(name)) {
      wrong = concat("parameter ", name,
                     " is of none of this rank's layers; make the optimizer of parameters()");
    }
  }
  NamedTensors groups, own;
  std::vector<std::int64_t> counts;
  std::size_t at = 0;
  for (auto& [key, tensor] :
       CutParameters(local_).whole_of_optimizer(optimizer.local_state_dict(), a_pipe)) {
    if (!key.starts_with(of_groups)) {
      const Tie* const tie = tie_of(key, &Tie::name);
      if (tie == nullptr) {
        own.emplace_back(key, tensor);
      } else if (tie->is_home(group_.rank())) {
        own.emplace_back(tie->first + key.substr(key.rfind('.')), tensor);
      }
    } else if (is_count(key)) {
      const std::size_t end = at + static_cast<std::size_t>(tensor.item<std::int64_t>());
      std::int64_t counted = 0;
      for (; at < end; ++at) {
        const auto tie = std::ranges::find(ties_, optimizer.parameter_names()[at], &Tie::name);
        counted += tie == ties_.end() || tie->is_home(group_.rank());
      }
      counts.push_back(counted);
      groups.emplace_back(key, Tensor());
    } else if (tensor.numel() == 1) {
      settings += concat(key, " ", tensor.item<double>(), "\n");
      groups.emplace_back(key, tensor);
    } else {
      wrong = concat(key, ", which is of no single parameter, cannot be cut by layers");
    }
  }
  comm::agree_unless(group_, "[pipe] the optimizer's settings",
                     concat(counts.size(), " groups\n", settings), wrong,
                     "give it the same groups and settings on every rank");
  const auto total = Tensor::from(counts, {static_cast<std::int64_t>(counts.size())}, Device{});
  group_.all_reduce(total.view(), comm::ReduceOp::sum, "parameters of a pipe's optimizer").wait();
  std::int64_t next = 0;
  for (auto& [key, tensor] : groups) {
    if (is_count(key)) tensor = Tensor::scalar(total.data<std::int64_t>()[next++], Device{});
  }
  return {std::move(groups), std::move(own)};
}

void Pipe::load_state_of(Optimizer& optimizer, const NamedTensors& state) const {
  NamedTensors own;
  for (const auto& [key, tensor] : state) {
    if (const Tie* const tie = tie_of(key, &Tie::first)) {
      own.emplace_back(tie->name + key.substr(key.rfind('.')), tensor);
    } else if (!lies_elsewhere(key)) {
      own.emplace_back(key, tensor);
    }
  }
  for (const auto& [key, count] : optimizer.local_state_dict()) {
    if (!is_count(key)) continue;
    for (auto& [name, tensor] : own) {
      if (name == key) tensor = count;
    }
  }
  optimizer.load_state_dict(CutParameters(local_).parts_of_optimizer(
      own, a_pipe, [&](std::string_view what) { return optimizer.keeps_tensor(what); }));
}

ShardedState Pipe::saved() {
  LocalState local{[this] { return own_alone(local_.state_dict()); },
                   [this](const std::vector<SavedTensor>& saved) {
                     std::vector<SavedTensor> own;
                     WantedRanges ranges = all_of(saved);
                     for (std::size_t i = 0; i < saved.size(); ++i) {
                       const std::string& name = saved[i].name;
                       const auto tie = std::ranges::find_if(
                           ties_, [&](const Tie& each) { return each.has(name); });
                       if (!lies_elsewhere(name)) {
                         own.push_back(saved[i]);
                       } else if (tie == ties_.end()) {
                         ranges[i].reset();
                       } else {  // what its own becomes
                         check_fits("Pipe", {{name, tie->parameter}}, {saved[i]});
                       }
                     }
                     check_fits("Pipe", local_.state_dict(), own);
                     return ranges;
                   },
                   [this](const NamedTensors& pieces) { load_state_dict(pieces); }};
  local.checked = true;
  const CutParameters cuts(local_);
  if (cuts) local = no_local_state(a_pipe, "the model");
  return ShardedState(
      parts_lie_with(group_, cuts), "the model",
      [this](std::optional<int> to) {
        return gathered(CutParameters(local_).whole(local_.state_dict()), to);
      },
      [this](const NamedTensors& state) { load_state_dict(state); }, std::move(local));
}

ShardedState Pipe::saved(Optimizer& optimizer) {
  const auto save = [this, &optimizer] {
    const auto [groups, own] = state_of(optimizer);
    std::vector<LocalTensor> mine = own_alone(own);
    for (const auto& [key, tensor] : groups) mine.push_back({key, {}, tensor});
    return mine;
  };
  const auto want = [this](const std::vector<SavedTensor>& saved) {
    WantedRanges ranges = all_of(saved);
    for (std::size_t i = 0; i < saved.size(); ++i) {
      const bool here = !lies_elsewhere(saved[i].name) || tie_of(saved[i].name, &Tie::first);
      if (!here) ranges[i].reset();
    }
    return ranges;
  };
  const auto load = [this, &optimizer](const NamedTensors& state) {
    load_state_of(optimizer, state);
  };
  const auto gather = [this, &optimizer](std::optional<int> to) {
    auto [groups, own] = state_of(optimizer);
    NamedTensors whole = gathered(own, to);
    if (!has_whole(group_, to)) return NamedTensors();
    whole.insert(whole.begin(), groups.begin(), groups.end());
    return whole;
  };
  LocalState local{.save = save, .want = want, .load = load, .replaces = true};
  const CutParameters cuts(local_);
  if (cuts) local = no_local_state(a_pipe, "the optimizer");
  return ShardedState(parts_lie_with(group_, cuts), "the optimizer", gather, load,
                      std::move(local));
}

}  // namespace peal::nn

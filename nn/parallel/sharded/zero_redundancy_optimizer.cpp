// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/schedule/mix.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/planning.h>
#include <peal/nn/parallel/sharded/zero_redundancy_optimizer.h>

#include <algorithm>
#include <bit>
#include <sstream>
#include <unordered_map>

namespace peal::nn {
namespace {

// What small parameters may take as one message, beside their own memory.
constexpr std::int64_t together = std::int64_t{1} << 20;
constexpr int state_messages = 65535;  // the tag of messages that have state

// Entries of a state: what a rank tells of those that it will send.
std::string list_of(std::size_t parameter, const NamedTensors& entries) {
  std::string text;
  for (const auto& [key, tensor] : entries) {
    text += concat(parameter, " ", static_cast<int>(tensor.dtype()), " ", tensor.dim());
    for (const std::int64_t size : tensor.shape()) text += concat(" ", size);
    text += concat(" ", key, "\n");
  }
  return text;
}

struct Entry {
  std::size_t parameter;
  std::string key;
  Tensor tensor;  // to be received
};

Entry entry_of(const std::string& line) {
  std::istringstream in(line);
  Entry entry;
  int dtype = 0, dims = 0;
  in >> entry.parameter >> dtype >> dims;
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(dims));
  for (std::int64_t& size : sizes) in >> size;
  in.ignore();
  std::getline(in, entry.key);
  entry.tensor = Tensor::empty(Shape(sizes), static_cast<DType>(dtype), Device{});
  return entry;
}

}  // namespace

// What ranks compare.
std::string OptimizerShards::describe(const Optimizer& optimizer,
                                      const Placement& placement) const {
  std::string text = concat("optimizer ", optimizer.name(), "\n");
  for (std::size_t g = 0; g < optimizer.groups_.size(); ++g) {
    text += concat("group ", g, " of ", optimizer.groups_[g].parameters, " parameters:");
    for (std::size_t k = 0; k < optimizer.setting_names_.size(); ++k) {
      text += concat(" ", optimizer.setting_names_[k], " ", optimizer.groups_[g].settings[k]);
    }
    text += '\n';
  }
  for (std::size_t p = 0; p < placement.owners.size(); ++p) {
    const Tensor& parameter = optimizer.parameters_[p];
    text +=
        concat("parameter ", optimizer.names_[p], " ", parameter.dtype(), " ", parameter.shape(),
               parameter.requires_grad() ? "" : " (frozen)", ", owner ", placement.owners[p], "\n");
  }
  return text;
}

void OptimizerShards::place(Optimizer& optimizer) {
  const std::vector<Tensor>& parameters = optimizer.parameters_;
  if (placement_.owners.size() == parameters.size()) return;
  std::vector<std::int64_t> counts;
  for (const Tensor& parameter : parameters) {
    counts.push_back(parameter.requires_grad() ? parameter.numel() : 1);
  }
  Placement placed = place_greedily(counts, group_.world(), placement_);
  const std::string wrong = why_not([&] {
    PEAL_CHECK(!optimizer.has_setting("train_mode"), optimizer.name(),
               " goes to what a model is judged with by state that each "
               "parameter's owner alone has; take DistributedDataParallel or "
               "FullyShardedDataParallel");
    if (group_.world() == 1) return;
    // Of what owners have of pieces nobody could make a state.
    check_not_pieces("ZeroRedundancyOptimizer", parameters,
                     "give those of tensor-parallel layers to FullyShardedDataParallel over this "
                     "group, which shares out an optimizer's state as well");
  });
  comm::agree_unless(group_, "[zero] the optimizer", describe(optimizer, placed), wrong,
                     "give it the same parameters and settings, in the same order, on every rank");
  placement_ = std::move(placed);
  std::vector<bool> elsewhere;
  for (const int owner : placement_.owners) elsewhere.push_back(owner != group_.rank());
  optimizer.elsewhere_ = std::move(elsewhere);
  for (std::size_t p = trained_.size(); p < parameters.size(); ++p) {
    trained_.push_back(parameters[p].requires_grad());
  }
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    owners_->of[&parameters[p].body()] = {parameters[p], placement_.owners[p]};
  }
  forget();
}

std::function<int(const Tensor& parameter)> OptimizerShards::owner_of() const {
  owners_->asked = true;
  return [owners = owners_](const Tensor& parameter) {
    const auto found = owners->of.find(&parameter.body());
    return found == owners->of.end() ? everyone : found->second.second;
  };
}

// Which messages there are, of the parameters that are trained, or once were: as long as such a one
// has its gradient from then the owner steps it, and may be the only one that has it.
void OptimizerShards::plan(const Optimizer& optimizer) {
  const std::vector<Tensor>& parameters = optimizer.parameters_;
  std::vector<bool> sent;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const Tensor& parameter = parameters[p];
    trained_[p] = trained_[p] || parameter.requires_grad() || parameter.grad().defined();
    sent.push_back(trained_[p] && parameter.numel() > 0);
  }
  if (sent == sent_) return;
  std::vector<std::int64_t> bytes;
  std::vector<int> kinds;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const auto alike = [&](const Tensor& other) {
      return other.dtype() == parameters[p].dtype() && other.device() == parameters[p].device();
    };
    const auto first = std::find_if(parameters.begin(), parameters.end(), alike);
    kinds.push_back(static_cast<int>(first - parameters.begin()));
    const auto size = static_cast<std::int64_t>(size_of(parameters[p].dtype()));
    bytes.push_back(sent[p] ? parameters[p].numel() * size : 0);
  }
  messages_ = plan_messages(placement_, bytes, kinds, together);
  sent_ = std::move(sent);
}

// Of the step, of what is sent in it and is trained, and of the settings that owners step with.
std::uint64_t OptimizerShards::tag(const Optimizer& optimizer) const {
  std::uint64_t tag = 0;
  comm::mix(tag, steps_);
  for (const Message& message : messages_) {
    for (const std::size_t p : message.parameters) {
      comm::mix(tag, p);
      comm::mix(tag, optimizer.parameters_[p].requires_grad() ? 1 : 0);
    }
  }
  for (const auto& group : optimizer.groups_) {
    for (const double value : group.settings) comm::mix(tag, std::bit_cast<std::uint64_t>(value));
  }
  return tag;
}

void OptimizerShards::step(Optimizer& optimizer, const std::function<void()>& local) {
  if (group_.world() == 1) return local();
  place(optimizer);
  plan(optimizer);
  forget();
  ++steps_;
  try {
    local();
  } catch (...) {
    rethrow_everywhere(group_,
                       concat(optimizer.name(), ": step ", steps_,
                              " failed where the others wait for what came of it"),
                       "zero");
  }
  send(optimizer);
  // What owners sent is what their masters were rounded to.
  optimizer.note_versions();
}

void OptimizerShards::send(const Optimizer& optimizer) {
  const NoGrad guard;
  std::uint64_t number = tag(optimizer);
  std::string text;
  std::vector<comm::Work> sent;
  for (const Message& message : messages_) {
    std::vector<View> list;
    for (const std::size_t p : message.parameters) {
      list.push_back(optimizer.parameters_[p].detach());
    }
    text.assign(concat("step ", steps_, " of the optimizer (trained parameters, and settings, lr ",
                       optimizer.lr(), "): ", optimizer.names_[message.parameters.front()],
                       list.size() == 1 ? "" : " and others"));
    const comm::Label label(text, ++number);
    sent.push_back(list.size() == 1 ? group_.broadcast(list[0], message.owner, label)
                                    : group_.broadcast_coalesced(list, message.owner, label));
  }
  for (const comm::Work& work : sent) work.wait();
}

void OptimizerShards::consolidate(const Optimizer& optimizer, int to) {
  PEAL_CHECK(to >= 0 && to < group_.world(),
             "[zero] consolidate_state_dict: expected a rank from 0 to ", group_.world() - 1,
             ", got ", to);
  forget();
  if (group_.world() == 1) return;
  PEAL_CHECK(placement_.owners.size() == optimizer.parameters_.size(),
             "[zero] consolidate_state_dict: parameters have joined since the last step; take a "
             "step before");
  group_
      .barrier({concat("consolidate_state_dict to rank ", to), static_cast<std::uint64_t>(to) + 1})
      .wait();
  std::vector<NamedTensors> mine(placement_.owners.size());
  std::string list;
  for (std::size_t p = 0; p < mine.size(); ++p) {
    if (placement_.owners[p] != group_.rank()) continue;
    mine[p] = optimizer.state_of(p);
    list += list_of(p, mine[p]);
  }
  const std::vector<std::string> lists = group_.gather_object(list, to);
  if (group_.rank() != to) {
    for (const NamedTensors& entries : mine) {
      for (const auto& [key, tensor] : entries) {
        group_.send(tensor.detach().to(Device{}), to, state_messages).wait();
      }
    }
    return;
  }
  std::vector<NamedTensors> all(mine.size());
  for (int rank = 0; rank < group_.world(); ++rank) {
    if (rank == to) continue;
    std::istringstream lines(lists[static_cast<std::size_t>(rank)]);
    for (std::string line; std::getline(lines, line);) {
      Entry entry = entry_of(line);
      group_.recv(entry.tensor, rank, state_messages).wait();
      all[entry.parameter].emplace_back(std::move(entry.key), std::move(entry.tensor));
    }
  }
  gathered_ = std::move(all);
}

NamedTensors OptimizerShards::state_dict(const Optimizer& optimizer) const {
  if (group_.world() == 1) return optimizer.Optimizer::state_dict();
  PEAL_CHECK(!gathered_.empty(), "[zero] rank ", group_.global_rank(group_.rank()),
             ": state_dict: the state of ", optimizer.name(), " lies with ", group_.world(),
             " ranks; call consolidate_state_dict(to) on all of them after the last step, and "
             "state_dict() on rank `to` alone (local_state_dict() gives this rank's part)");
  NamedTensors whole = optimizer.group_state();
  for (std::size_t p = 0; p < gathered_.size(); ++p) {
    const bool own = placement_.owners[p] == group_.rank();
    for (auto& entry : own ? optimizer.state_of(p) : gathered_[p]) whole.push_back(entry);
  }
  for (auto& entry : optimizer.own_state()) whole.push_back(entry);
  return whole;
}

LocalState OptimizerShards::local_state(Optimizer& optimizer) const {
  if (group_.world() == 1) return optimizer.Optimizer::local_state();
  const auto save = [this, &optimizer] {
    PEAL_CHECK(
        placement_.owners.size() == optimizer.parameters_.size(),
        "[zero] local_state: parameters have joined since the last step; take a step before");
    std::vector<LocalTensor> mine;
    for (auto& [key, tensor] : optimizer.group_state()) mine.push_back({key, {}, tensor});
    for (std::size_t p = 0; p < placement_.owners.size(); ++p) {
      if (placement_.owners[p] != group_.rank()) continue;
      for (auto& [key, tensor] : optimizer.state_of(p)) {
        mine.push_back({key, tensor.shape(), tensor, 0});
      }
    }
    for (auto& [key, tensor] : optimizer.own_state()) {
      mine.push_back({key, tensor.shape(), tensor});
    }
    return mine;
  };
  // What other ranks own they look at.
  const auto want = [this, &optimizer](const std::vector<SavedTensor>& saved) {
    std::unordered_map<std::string, std::size_t> numbers;  // by name, and by number
    for (std::size_t p = 0; p < optimizer.names_.size(); ++p) numbers[optimizer.names_[p]] = p;
    for (std::size_t p = 0; p < optimizer.names_.size(); ++p) {
      numbers.emplace(std::to_string(p), p);
    }
    WantedRanges ranges = all_of(saved);
    for (std::size_t i = 0; i < saved.size(); ++i) {
      const auto found = numbers.find(saved[i].name.substr(0, saved[i].name.rfind('.')));
      if (found != numbers.end() && optimizer.is_elsewhere(found->second)) ranges[i].reset();
    }
    return ranges;
  };
  const auto load = [&optimizer](const NamedTensors& state) { optimizer.load_state_dict(state); };
  return {.save = save, .want = want, .load = load, .replaces = true};
}

}  // namespace peal::nn

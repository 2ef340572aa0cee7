// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/nn/parallel/sharded/sharded_state.h>

#include <utility>

namespace peal::nn {

ShardedState::ShardedState(comm::ProcessGroup group, std::string what, Gather gather, Load load,
                           LocalState local)
    : group_(std::move(group)),
      what_(std::move(what)),
      gather_(std::move(gather)),
      load_(std::move(load)),
      local_(std::move(local)),
      there_(std::make_shared<std::optional<NamedTensors>>()) {}

void ShardedState::consolidate_state_dict(int to) {
  PEAL_CHECK(to >= 0 && to < group_.world(), "consolidate_state_dict: expected a rank from 0 to ",
             group_.world() - 1, ", got ", to);
  there_->reset();
  NamedTensors whole = gather_(to);
  // Where groups beside this one have parts as well, one of their ranks `to` has it.
  if (to == group_.rank() && !whole.empty()) *there_ = std::move(whole);
}

NamedTensors ShardedState::state_dict() const {
  if (!*there_ && group_.world() == 1) return gather_({});
  PEAL_CHECK(there_->has_value(), "rank ", group_.global_rank(group_.rank()),
             ": state_dict: the state of ", what_, " lies with ", group_.world(),
             " ranks; call consolidate_state_dict(to) of the part (nn::Part) on all of them before "
             "each save, and save on "
             "rank `to` alone");
  return *std::exchange(*there_, std::nullopt);
}

void ShardedState::load_state_dict(const NamedTensors& state) { load_(state); }

}  // namespace peal::nn

// SPDX-License-Identifier: Apache-2.0
// The state of DDP, which all handles of a wrapper share: what it has wrapped, the reducer, and
// what goes on where steps begin and end. Whatever is decided here is the same on all ranks: it
// rests on calls that all of them make. Thread safety: the thread that runs forward and backward.
#pragma once

#include <peal/nn/parallel/announce.h>
#include <peal/nn/parallel/buffer_sync.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/nn/parallel/members.h>
#include <peal/nn/parallel/planning.h>
#include <peal/nn/parallel/replica_check.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace peal::nn {

struct DistributedDataParallel::State {
  State(const Module& wrapped, const DDPOptions& chosen, Members members_of, Planned planned,
        const comm::ProcessGroup& over, std::uint64_t tag_of);

  void before_forward(bool training);
  // Parameters that are trained from this forward on: the reducer hears of their gradients.
  void look_for_newcomers();
  // Until what is returned goes, the parameters are rounded ones.
  static std::shared_ptr<void> round(const std::shared_ptr<State>& state);
  void set_order(const std::vector<std::string>& names);
  void watch_members();
  void set_actives(int divisor, int lowest, bool all);
  void note_equal();  // buffers are
  // Error on all ranks where a backward is to begin within rounded().
  void check_not_rounded() const;
  void follow(const Announcement& where);

  const Module module;
  const comm::ProcessGroup group;
  const DDPOptions options;
  const std::uint64_t tag;
  std::vector<ParameterSpec> specs;
  BucketCaps caps;            // of the plan
  bool order_learnt = false;  // the plan is in rank 0's order of arrival
  Members members;
  std::vector<ReplicaCheck::Other> compared;  // besides members
  std::optional<BufferSync> buffer_sync;
  bool stale = false;  // a forward in training came since buffers were equal
  bool hooked;         // by mixed precision

 private:
  void before_layer(std::string_view layer);
  void prepare();
  void end();
  void learn_order();
  void exchange_members();
  std::string obstacle_to(const MemberList& now) const;
  void set_hook();
  void make_buffer_sync();
  void settle();

  std::optional<ReplicaCheck> replicas_;
  int root_ = 0;  // whose buffers all get; and whether every rank has a batch
  bool all_active_ = true;
  bool captured_ = false;         // a step was: its memory stays where it is
  bool learns_;                   // the next step may begin with another order
  std::uint64_t planned_in_ = 1;  // the first step of the plan
  NamedTensors joined_;           // and are not rank 0's yet: no step was done since
  std::weak_ptr<void> rounded_;   // while it lives, parameters are
  // When the reducer has gone, whose memory may be in other types than the masters'.
  const std::shared_ptr<void> restored_{
      nullptr, [this](void*) { restore_gradients(members.list().parameters); }};

 public:
  Reducer reducer;  // it calls the rest

 private:
  std::shared_ptr<void> layers_;  // the last: they call the reducer
};

}  // namespace peal::nn

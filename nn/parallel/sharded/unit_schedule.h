// SPDX-License-Identifier: Apache-2.0
// The schedule of a sharded step, as a value: which unit is gathered, used, freed and reduced, in
// which order. It is decided by what the model calls, and by nothing else, so ranks that call the
// same modules start the same collectives in the same order. The executor (fsdp_state.h) feeds it
// what hooks see and does what it says; anybody else may feed it a made-up step, and print and
// check that (plan_step, fault_in).
//
// A unit is gathered before its forward and freed after it, gathered again before its part of
// backward, and freed when that is over; its gradients are reduced when they are complete. While a
// unit computes the next one is gathered: in forward in the order of the last forward, in backward
// in the reverse of the order in which forwards ended. So at most two are there at once, besides
// those that enclose them. The model itself (unit 0) stays from its forward to the end of backward,
// where it would be first again. One reduction is in flight at most. Of units that one segment
// computes anew in backward each is freed when the next comes, and gathered again for its own part:
// the last one alone is gathered once.
// Thread safety: as of a value.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace peal::nn {

struct ScheduleOptions {
  // false: units stay from their forward to the end of their part of backward (ZeRO stage 2, with
  // parameters that are gathered once a step).
  bool reshard_after_forward = true;
  bool forward_prefetch = true, backward_prefetch = true;
};

struct UnitAction {
  enum class What : std::uint8_t {
    gather,  // the all-gather of its parameters starts
    use,     // it is over: the module computes with them
    free,    // their memory goes back
    reduce,  // the reduce-scatter of its gradients starts
    settle,  // it is over: the shards' gradients have it, and the memory of the whole ones goes
             // back; where there are replicas, these average first, until the next settle
  };
  What what;
  int unit;
  bool operator==(const UnitAction&) const = default;
};
using UnitActions = std::vector<UnitAction>;

class UnitSchedule {
 public:
  struct Unit {
    bool trained = true;  // its gradients are to be reduced
    bool frozen = false;  // parameters of it have none, and may be used until its part is over
  };
  // Of units in the order of the plan, none of which is gathered yet.
  UnitSchedule(std::vector<Unit> units, const ScheduleOptions& options);

  // What modules do. `grads`: a backward may follow; `wants`: some output waits for its gradient.
  UnitActions before_forward(int unit, bool grads);
  UnitActions after_forward(int unit, bool wants);
  UnitActions begin_backward();
  // A forward within a backward, of what is recomputed there; and its end.
  UnitActions before_recompute(int unit);
  void after_recompute(int unit) { recomputed_.push_back(unit); }
  UnitActions before_backward(int unit);
  // The gradients of a call's inputs are there: nothing of that call computes any more.
  UnitActions after_backward(int unit);
  // All of its gradients are. With `reduces` false they stay (no_sync).
  UnitActions complete(int unit, bool reduces);
  UnitActions end_backward();
  // What is there of it is not what ranks keep any more.
  UnitActions drop(int unit);

  // Its whole parameters are there, or on their way.
  bool live(int unit) const { return units_[static_cast<std::size_t>(unit)].live; }
  // The model's is under way.
  bool in_forward() const { return forward_; }

 private:
  struct State : Unit {
    bool live = false;
  };
  State& at(int unit) { return units_[static_cast<std::size_t>(unit)]; }
  void gather(int unit, UnitActions& actions);
  void free(int unit, UnitActions& actions);
  void settle(UnitActions& actions);

  std::vector<State> units_;
  ScheduleOptions options_;
  bool forward_ = false, grads_ = false;  // the model's is under way
  std::vector<int> order_, known_;        // of forwards: of this one, and of the last
  std::vector<int> ended_;                // in the order in which forwards ended
  std::vector<int> backward_;             // the order that backward has, mostly
  std::vector<int> recomputed_;           // forwards that ended in the segment under way
  std::size_t next_forward_ = 0, next_backward_ = 0;
  int reducing_ = -1;
};

// A step of a model whose units 1, 2, ... are called one after the other, each once, after as many
// steps as this one says.
UnitActions plan_step(const std::vector<UnitSchedule::Unit>& units, const ScheduleOptions& options,
                      int steps_before = 1);

// What is wrong with a step, or nothing: a unit that is used and not there, gathered twice, or left
// there; a reduction that is left out, or not settled; more units at once, besides the model, than
// `most`.
std::string fault_in(std::span<const UnitAction> step, const std::vector<UnitSchedule::Unit>& units,
                     int most);

// "gather 0, use 0, gather 1": for people.
std::string describe(std::span<const UnitAction> actions);

}  // namespace peal::nn

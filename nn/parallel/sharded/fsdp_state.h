// SPDX-License-Identifier: Apache-2.0
// The state of FSDP, which all handles of a wrapper share: its units' memory, and the executor that
// does what the schedule says when modules' hooks tell where the model is. Thread safety: the
// thread that runs forward and backward.
#pragma once

#include <peal/nn/parallel/buffer_sync.h>
#include <peal/nn/parallel/cut_parameters.h>
#include <peal/nn/parallel/members.h>
#include <peal/nn/parallel/sharded/flat_parameter.h>
#include <peal/nn/parallel/sharded/fsdp.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace peal::nn {

inline constexpr const char* advice_on_apart =
    "make the optimizer of local_parameters() on every rank; what each trains by itself "
    "(ignored_modules) one file cannot have: take state_dict() and optimizer_state_dict() on every "
    "rank, and nn::save() them to a file of its own";

// What is planned of a model that has these members.
ModelOutline outline_of(const Module& model, const MemberList& members);
// Of parameters and buffers within these modules, by all of their names: also by one that is tied
// to it from outside. Error for a path that the model has not.
std::vector<std::string> names_within(const Module& model, const std::vector<std::string>& paths);

struct FullyShardedDataParallel::State {
  // Collective: parameters become rank 0's, and are taken apart, a unit after the other, so that of
  // those that had no values yet (nn/empty_weights.h) no more than one unit is whole.
  State(const Module& model, const FSDPOptions& chosen, const MemberList& members, ModelOutline of,
        std::vector<UnitPlan> planned, ShardGroups over, std::uint64_t tag_of);

  // Hooks of the unit's module; what is returned takes them off again.
  static std::vector<std::uint64_t> hook(const std::shared_ptr<State>& state, Module& module,
                                         int unit);
  // Parameters are all there until it goes.
  static std::shared_ptr<void> summon(const std::shared_ptr<State>& state);
  void sync_buffers() {
    if (buffer_sync_) buffer_sync_->send_all();
  }
  // Between steps: parameters are those of the masters, or again those that are computed with; and
  // those of one unit are there, of all ranks.
  void turn(bool to_masters);
  void bring(int unit);
  void take_away(int unit);
  // Turns to the masters and does f; where that throws, all is again as it was.
  void at_masters(const std::function<void()>& f);
  // Error on all ranks where an exception has left a backward that had begun to reduce.
  void check_not_left() const;
  void check_idle(std::string_view what) const;
  NamedTensors pieces() const;  // of this rank, by the outline
  // The whole model's, on rank `to`, or on all where there is none. Collective.
  NamedTensors gathered(std::optional<int> to);
  NamedTensors gathered(const Optimizer& optimizer, std::optional<int> to) const;
  // Whether this rank brings together what `to` gets; of those that have parts of what is cut,
  // which one gets it, and whether that is another.
  bool takes(std::optional<int> to) const;
  std::optional<int> saver(std::optional<int> to) const;
  bool is_left_out(std::optional<int> to) const;
  const comm::ProcessGroup& savers() const;
  // This rank's part of both.
  static LocalState local_state(const std::shared_ptr<State>& state);
  static LocalState local_state(const std::shared_ptr<State>& state, Optimizer& optimizer);
  // f(flat, entry, parameter) of the parameter whose name the key begins with: "fc1.bias" of
  // "fc1.bias.exp_avg". Whether there is one.
  bool with_parameter(std::string_view key,
                      const std::function<void(const FlatParameter& flat, std::size_t entry,
                                               const ParameterSpec& parameter)>& f) const;

  // Error where an optimizer's state is not of this rank's pieces, element by element.
  void check_pieces(const NamedTensors& state) const;
  // Error on all ranks where parameters of ignored_modules differ between them: rank 0's, saved,
  // would be all ranks'.
  void check_ignored_are_equal() const;
  // Of ignored_modules.
  bool is_ignored(std::string_view parameter) const;
  // An optimizer's state of one of these: the parameter's name, and one more.
  bool is_of_ignored(std::string_view key) const;

  const Module module;
  const ShardGroups groups;
  const FSDPOptions options;
  const std::uint64_t tag;
  const ModelOutline outline;
  const std::vector<UnitPlan> plan;
  const CutParameters cuts;  // over other ranks: what is sharded are this rank's parts of them
  NamedTensors ignored;      // parameters of ignored_modules
  bool synchronizing = true;
  UnitActions actions;

  struct Unit {
    std::string name;
    std::function<void()> complete;
    std::deque<FlatParameter> flats;  // which stay where they are
    bool reduced = false;             // in this backward
  };
  std::vector<Unit> units;

 private:
  void check_not_thawed(int unit) const;
  void before_forward(int unit);
  std::optional<Tensors> rounded(const Tensors& inputs) const;
  std::optional<Tensors> given(const Tensors& outputs) const;
  void after_forward(int unit, bool wants);
  void begin_backward();
  void before_backward(int unit);
  void on_complete(int unit);
  void end_backward();
  void reduce_rest();
  void check_all_came(const Unit& unit) const;
  void run(const UnitActions& list);
  void act(const UnitAction& action);
  void finish_settled();
  // `apart`: of no step, but to read or write the whole model.
  comm::Label label(int unit, std::size_t flat, std::string_view what, bool apart = false);
  bool stale(int unit) const;

  UnitSchedule schedule_;
  std::optional<BufferSync> buffer_sync_;
  Unit* settled_ = nullptr;     // whose gradients replicas are averaging
  std::uint64_t backward_ = 0;  // the one under way (tape.h), 0: none
  bool in_sync_ = true;         // it is to reduce
  bool summoned_ = false;
  std::uint64_t forwards_ = 0, backwards_ = 0;
  std::string text_;  // of the last label
};

}  // namespace peal::nn

// SPDX-License-Identifier: Apache-2.0
// A step of an optimizer in a captured graph. The kernels and the tensors that they work on are
// those of the capture; which step it is and the settings are told anew to each replay, and the
// host counts and follows as in calls.
#include <peal/autograd/core/graph.h>
#include <peal/nn/optim/optimizer.h>

namespace peal::nn {

void Optimizer::check_state(std::size_t i, const Graph& graph) const {
  const Tensor& parameter = parameters_[i];
  const State& state = states_[i];
  PEAL_CHECK(parameter.device() == graph.device(), name(), ": ", called(i), " is on ",
             parameter.device(), ", and a graph on ", graph.device(), " is captured");
  const bool whole =
      wanted_state(i).whole && (state.master.defined() || !is_low_precision(parameter.dtype()));
  PEAL_CHECK(state.step > 0 && whole, name(), ": ", called(i),
             " has no state yet, and what is made while a graph is captured is made anew in each "
             "replay; take a step before, as Graph's warm-up does");
}

void Optimizer::capture(Graph& graph) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!is_elsewhere(i) && parameters_[i].grad().defined()) check_state(i, graph);
  }
  std::vector<std::vector<double>> numbers;
  for (const State& state : states_) numbers.push_back(state.numbers);
  const auto made = std::make_shared<const std::vector<List>>(lists());
  for (const List& list : *made) {
    for (const std::size_t i : list.numbers) {  // the replays count
      --states_[i].step;
      states_[i].numbers = numbers[i];
    }
  }
  const auto self_of = [weak = std::weak_ptr(self_), name = name()] {
    const auto self = weak.lock();
    PEAL_CHECK(self != nullptr, name, ": the optimizer whose step a graph has captured is gone");
    return *self;
  };
  graph.at_replay([made, self_of] { self_of()->begin_replay(*made); },
                  [made, self_of] { self_of()->end_replay(*made); });
  std::vector<bool> was_behind;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    was_behind.push_back(is_behind(states_[i], parameters_[i]));
  }
  for (const List& list : *made) {
    // Called behind the hook above, which has seen that the optimizer is there.
    const auto replayed = [this, &list, made, next = std::make_shared<std::vector<double>>()] {
      const State& state = states_[list.numbers.front()];
      *next = state.numbers;
      const Now now{state.step + 1, groups_[list.kind.group].settings, *next};
      advance(*next, now);
      return now;
    };
    update({list.kind.step, false, list.steps, list.kind.numbers, replayed},
           groups_[list.kind.group].settings);
  }
  // Masters that have yet to follow what somebody wrote do so before the first replay.
  std::vector<std::pair<std::size_t, State>> behind;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (was_behind[i]) behind.emplace_back(i, states_[i]);
  }
  note_versions();
  for (const auto& [i, before] : behind) states_[i].seen = before.seen;
}

// The captured kernels must still be right.
void Optimizer::check_replay(const List& list) const {
  const auto new_graph = "; make a new graph";
  PEAL_CHECK(list.kind.maximize == maximizes(list.kind.group), name(), ": group ", list.kind.group,
             " has another setting 'maximize' than when the graph was captured", new_graph);
  for (std::size_t k = 0; k < list.numbers.size(); ++k) {
    const std::size_t i = list.numbers[k];
    const State& state = states_[i];
    const Stepped& then = list.steps[k];
    const Tensor& rounded = then.rounded;
    const auto [wanted, want, whole] = wanted_state(i);
    const std::size_t had = (then.first.defined() ? 1u : 0u) + (then.second.defined() ? 1u : 0u) +
                            (then.third.defined() ? 1u : 0u);
    PEAL_CHECK(want == had, name(), ": the settings of group ", list.kind.group, " want ", want,
               " tensors of state, and when the graph was captured they wanted ", had, new_graph);
    const auto same = [](const Tensor& a, const Tensor& b) {
      return a.defined() == b.defined() && (!a.defined() || a.raw() == b.raw());
    };
    const bool there = same(then.first, wanted[0]) && same(then.second, wanted[1]) &&
                       same(then.third, wanted[2]) &&
                       same(rounded.defined() ? rounded : then.param, parameters_[i]) &&
                       (!rounded.defined() || same(then.param, state.master));
    PEAL_CHECK(there, name(), ": parameter ", names_[i],
               " or its state lies elsewhere than when the graph ",
               "was captured (load_state_dict brings new state)", new_graph);
    const State& first = states_[list.numbers.front()];
    PEAL_CHECK(state.numbers == first.numbers, name(), ": parameters ",
               names_[list.numbers.front()], " and ", names_[i],
               " have other numbers in their state, and had equal ones when the graph was captured",
               new_graph);
    PEAL_CHECK(state.step == states_[list.numbers.front()].step, name(), ": parameters ",
               names_[list.numbers.front()], " and ", names_[i], " have had ",
               states_[list.numbers.front()].step, " and ", state.step,
               " steps, and equally many when the graph was captured", new_graph);
  }
}

void Optimizer::begin_replay(const std::vector<List>& lists) {
  const NoGrad guard;
  for (const List& list : lists) check_replay(list);
  follow_all();
  note_versions();
}

void Optimizer::end_replay(const std::vector<List>& lists) {
  for (const List& list : lists) {
    for (const std::size_t i : list.numbers) {
      State& state = states_[i];
      ++state.step;
      advance(state.numbers, {state.step, groups_[group_of_[i]].settings, state.numbers});
    }
  }
}

}  // namespace peal::nn

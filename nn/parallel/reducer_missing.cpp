// SPDX-License-Identifier: Apache-2.0
// Gradients that are missing, and should not be: an Error in the same step (missing.h has its
// text).
#include <peal/autograd/grad_slot.h>
#include <peal/nn/parallel/any_rank.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/missing.h>
#include <peal/nn/parallel/reducer.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace peal::nn {

// That it has got nothing is wrong.
bool Reducer::is_missing(std::size_t parameter) const {
  if (came_[parameter] == Came::all || first_of_static() || following_) return false;
  return options_.static_graph ? expected_[parameter] > 0 : !options_.find_unused_parameters;
}

std::vector<bool> Reducer::missing() const {
  std::vector<bool> all;
  for (std::size_t p = 0; p < came_.size(); ++p) all.push_back(is_missing(p));
  return all;
}

void Reducer::check_missing() {
  const std::vector<bool> here = missing();
  if (std::find(here.begin(), here.end(), true) == here.end()) return;
  // All ranks are told when they have finished the sums.
  if (buckets_->has_flag()) return buckets_->raise_flag();
  if (!suspects_) fail_alone();
}

// Where the others do not look for a flag.
void Reducer::fail_alone() const {
  const std::vector<bool> here = missing();
  std::vector<std::string> names;
  for (std::size_t p = 0; p < here.size(); ++p) {
    if (here[p]) names.push_back(parameters_[p].first);
  }
  fail_everywhere(
      group_, concat("no gradient came for ", first_names(names), " in ", step_, ". ", advice()));
}

// Whether sums of this step, or before its first those of the last one, are of all ranks. Of local
// SGD none are, and a word to all in each step would be what it is there to save.
bool Reducer::averages_over_all() {
  if (!hook_) return true;
  for (std::size_t b = 0; b < buckets_->size(); ++b) {
    if ((*buckets_)[b].averaged == Averaged::over_all) return true;
  }
  return false;
}

// A hook sends the bucket without it, and one that goes to its owner tells nobody else.
bool Reducer::flag_goes_alone() {
  if (!buckets_->has_flag()) return false;
  return buckets_->flag_is_apart() || (hook_ && averages_over_all());
}

// Where no flag travels with the sums, as the host does not look at those of a device, a word goes
// to all ranks while backward goes on: whether the graph leaves a parameter out that no recomputed
// segment has used before. It is only a suspicion; where any rank has it, all compare what came.
void Reducer::ask_missing(std::size_t first) {
  shown_.clear();
  suspects_ = false;
  suspected_ = {};
  const bool none_is = options_.find_unused_parameters && !options_.static_graph;
  if (buckets_->has_flag() || captured_ || none_is) return;
  for (std::size_t p = 0; p < came_.size(); ++p) {
    shown_.push_back(p == first || came_[p] != Came::nothing ||
                     parameters_[p].second.grad_slot().expected > 0);
    suspects_ = suspects_ || (!shown_[p] && !hidden_[p] && is_missing(p));
  }
  if (!averages_over_all()) {
    suspects_ = false;
    return;
  }
  suspected_ = packed_bits({suspects_});
  asked_ = group_.all_reduce(suspected_, comm::ReduceOp::bor,
                             {"whether gradients are missing", tag_of(plan_.size() + 1)});
}

bool Reducer::any_suspicion() {
  if (!suspected_.defined()) return false;
  std::exchange(asked_, {}).wait();
  return unpacked_bits(std::exchange(suspected_, {}), 1)[0];
}

// Gradients that came though the graph had not shown them.
void Reducer::note_hidden() {
  for (std::size_t p = 0; p < shown_.size(); ++p) {
    if (!shown_[p] && came_[p] == Came::all) hidden_[p] = true;
  }
}

std::string Reducer::advice() const {
  if (options_.static_graph) {
    return "With static_graph each step is to be as the first was on the same rank; without it, "
           "find_unused_parameters takes steps that differ";
  }
  return "Every parameter must take part in the loss on every rank. Freeze those that are not to "
         "(set_requires_grad(false)), on all ranks; or set find_unused_parameters";
}

}  // namespace peal::nn

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/engine/branch.h>
#include <peal/comm/engine/lane.h>
#include <peal/comm/schedule/mix.h>

#include <utility>

namespace peal::comm {
namespace {

thread_local Branch* running = nullptr;

}  // namespace

Branch* Branch::current() { return running; }

Branch::Scope::Scope(Branch* branch) : before_(std::exchange(running, branch)) {}

Branch::Scope::~Scope() { running = before_; }

void Branch::check(const Lane& lane, std::uint64_t wanted) const {
  PEAL_CHECK(
      &lane == lane_, "[comm] ", lane.who(),
      ": what then() was given starts a collective of another group than the work before it, "
      "which ranks would not start in one order; wait for that work first");
  PEAL_CHECK(next_ + wanted <= end_, "[comm] ", lane.who(),
             ": what then() was given starts more than ", size, " collectives (", nested_size,
             " for each then() within it)");
}

Channel Branch::next_channel(const Lane& lane, std::uint64_t signature) {
  check(lane, 1);
  mix(history_, signature);
  return {next_++, history_};
}

Branch Branch::nested(const Lane& lane) {
  check(lane, nested_size);
  mix(history_, nested_size);
  const Branch part(lane, next_, nested_size, history_);
  next_ += nested_size;
  return part;
}

}  // namespace peal::comm

// SPDX-License-Identifier: Apache-2.0
// Work: a future (MPI: a request): a collective under way, or several as one. The buffers belong to
// it until wait() returns; on a device, until what the streams held when it returned is done.
// Letting go of a Work waits for nothing: the operation goes on, also when its group has gone; but
// with the last group of a process all that is in flight fails. In a graph that is captured
// (autograd/core/graph.h) wait() is all that there is; the others are an Error. Thread safety: the
// thread that made it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace peal::comm {

class Lane;
struct Operation;

class Work {
 public:
  // Done, and of no group: its then() takes no numbers, so all ranks must have none there.
  Work() = default;
  explicit Work(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
  // Nothing, which other ranks' work of the group may be something to.
  explicit Work(std::uint64_t lane) : lane_(lane) {}
  // What was over within the call, by that algorithm, whose name is a constant.
  Work(std::uint64_t lane, std::string_view algorithm) : lane_(lane), at_once_(algorithm) {}
  Work(const Work& other);
  Work(Work&& other) noexcept = default;
  Work& operator=(const Work& other) { return *this = Work(other); }
  Work& operator=(Work&& other) noexcept = default;
  ~Work() = default;
  // All of them as one.
  static Work all(std::vector<Work> parts);

  // Until later work on the calling thread's current stream may use the result; on the CPU, until
  // the result is there, and what was given to then() has run. Throws what went wrong, on any rank,
  // as far as it is known.
  void wait() const;
  // The same, for so long at most: then an Error that says what the ranks of this node wait for.
  // The work goes on, and can be waited for again, and its deadline (PEAL_TIMEOUT) runs only while
  // it is; ProcessGroup::abort() ends it.
  void wait(std::chrono::milliseconds timeout) const;
  // As wait(), and until the host may use the result.
  void synchronize() const;
  // True when it is done, on the device too, or has failed (wait() then throws). Makes progress.
  bool test() const;
  // Runs f on the thread that advances the engine, after this and all earlier work of the group.
  // Not run when the work fails. On a device it is run when the result is there, which the host
  // waits for. Where f starts work of its own and returns it, so does this: a Work that is done
  // when that is, and fails where this, f or that does. So two collectives are one Work:
  //
  //   group.reduce_scatter(part, all).then([&] { return group.all_gather(all, part); })
  //
  // All ranks call then() at the same place among their calls, and what f starts, up to 16
  // collectives of the same group, is numbered there: so it does not matter that ranks come to it
  // at different times, and what else they start meanwhile. Where nothing is under way, as in a
  // group of one, f runs, and throws, at once; where the work lies in a device's queue, once that
  // is done. What a continuation without a result starts is numbered when it runs: there the ranks
  // themselves see to one order. Where f keeps the group, they keep each other for as long as this
  // work is under way: for ever, where it is a receive that nobody answers.
  template <class F>
  requires std::is_invocable_v<F&>
  auto then(F f) const {
    if constexpr (std::is_same_v<std::invoke_result_t<F&>, Work>) {
      return followed_by(std::move(f));
    } else {
      run_after(std::move(f));
    }
  }
  // A receive's: the rank of its group that sent, once it is done. Error for other work.
  int source() const;
  // The name of the algorithm that runs it, or `native`; empty for nothing, and for several.
  std::string algorithm() const;

 private:
  struct Sequel;
  Work followed_by(std::function<Work()> f) const;
  void run_after(std::function<void()> f) const;
  const Operation* any_operation() const;
  bool is_in_a_queue() const;
  void need_operation() const;
  bool is_nothing() const { return !operation_ && parts_.empty() && !sequel_; }

  // One of the three, or none; the lane is known then, if it is a group's.
  std::uint64_t lane_ = 0;  // its serial number
  mutable std::shared_ptr<Operation> operation_;
  std::vector<Work> parts_;         // where it is several
  std::shared_ptr<Sequel> sequel_;  // where it is one after the other
  // The algorithm of what was over within its call; empty for all else. It gets an operation once
  // there is something to keep: a continuation, and what it throws.
  std::string_view at_once_;
};

}  // namespace peal::comm

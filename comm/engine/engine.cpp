// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/engine/branch.h>
#include <peal/comm/engine/engine.h>
#include <peal/comm/engine/spins.h>
#include <peal/comm/record/recorder.h>

#include <sched.h>

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

namespace peal::comm {
namespace {

using std::chrono::steady_clock;

// Lets another thread have the core. Among ranks a yield is cheapest; but where it comes back late,
// the core is wanted by programs that never wait, and one who sleeps briefly is put before them
// when it wakes.
void give_way() {
  thread_local bool contended = false;
  const auto before = steady_clock::now();
  if (contended) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  } else {
    sched_yield();
  }
  contended = steady_clock::now() - before > std::chrono::microseconds(500);
}

// Another group's library may be called by another thread alone.
bool is_for_this_thread(const Lane& lane) {
  try {
    lane.transport().check_thread();
    return true;
  } catch (const Error&) {
    return false;
  }
}

void refuse_captured(const Operation& operation) {
  PEAL_CHECK(!operation.captured, "[comm] ", describe(operation),
             " lies in a graph: each replay runs it, and the host can only wait for the stream of "
             "the replay; Work::wait() orders what is captured after it");
}

}  // namespace

// A continuation that starts operations does not run those behind it; one that waits does.
template <class F>
void Engine::locked(Nesting nesting, F f) {
  thread_local std::vector<Lane::Ready> room;  // for what ends, from call to call
  Lane::Ended ended{.gone = std::move(room)};
  bool any_due = false;
  // Another thread may have held the lock when the child was made: it is for ever locked there.
  PEAL_CHECK(!mark_.inherited() || !beside_,
             "[comm] a child by fork has no group, for its connections are its parent's; wait for "
             "work in the parent");
  {
    const std::lock_guard lock(mutex_);
    f(ended);
    std::move(left_.begin(), left_.end(), std::back_inserter(ended.gone));
    left_.clear();
    if (released_ > 0) part_with_lanes(ended);
    std::move(ended.due.begin(), ended.due.end(), std::back_inserter(due_));
    ended.due.clear();
    any_due = !due_.empty();
  }
  if (any_due) run_due(nesting);
  for (const auto& queue : ended.unwatched) watchdog_.forget(queue);
  ended.gone.clear();  // what dies there may come back here
  room = std::move(ended.gone);
}

void Engine::run_due(Nesting nesting) {
  std::vector<Lane::Ready> over;  // dropped without the lock
  std::unique_lock lock(mutex_);
  const auto me = std::this_thread::get_id();
  const auto outer = runner_.load();
  const bool mine = outer == me && nesting == Nesting::waits;
  if (outer != std::thread::id() && !mine) return;  // who runs continuations will come to them
  while (!due_.empty()) {
    over.push_back(std::move(due_.front()));
    due_.pop_front();
    Operation& operation = *over.back().operation;
    std::exception_ptr thrown;
    if (!operation.threw) {
      runner_ = me;
      running_.push_back(&operation);
      lock.unlock();
      try {
        const Branch::Scope own_numbers(nullptr);  // not those of one that waits
        operation.execution.order();
        over.back().f();
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      running_.pop_back();
      runner_ = outer;
    }
    if (thrown && !operation.threw) {
      operation.thrown = std::move(thrown);
      operation.threw = true;
    }
    if (--operation.due == 0) operation.settled = true;
  }
}

// Those of groups that have gone, and of whose operations none is left.
void Engine::part_with_lanes(Lane::Ended& ended) {
  std::erase_if(lanes_, [&](const std::shared_ptr<Lane>& lane) {
    if (!lane->released() || lane->pending()) return false;
    lane->leave(ended);
    ended.lanes.push_back(lane);
    --released_;
    return true;
  });
}

bool Engine::advance_beside() {
  Lane::Ended ended;
  bool left = false;
  const std::lock_guard lock(mutex_);
  for (const auto& lane : lanes_) {
    if (lane->advances_beside() && lane->pending()) left = lane->advance_hosts(ended) || left;
  }
  std::move(ended.due.begin(), ended.due.end(), std::back_inserter(due_));
  std::move(ended.gone.begin(), ended.gone.end(), std::back_inserter(left_));
  return left;
}

void Engine::end_beside() {
  std::unique_ptr<ProgressThread> ended;  // joined without the lock, which it takes
  const std::lock_guard lock(mutex_);
  ended = std::move(beside_);
  alone_ = true;
  for (const auto& lane : lanes_) lane->control().end_beats();
}

void Engine::write(Recorder& recorder) {
  const std::lock_guard lock(mutex_);
  recorder.write();
}

void Engine::add(const std::shared_ptr<Lane>& lane) {
  const std::lock_guard lock(mutex_);
  lanes_.push_back(lane);
  ++groups_;
}

// While one thread alone uses groups, where that waits nothing more is called.
void Engine::note_thread() {
  const auto me = std::this_thread::get_id();
  if (user_.load(std::memory_order_relaxed) == me) return;
  auto first = std::thread::id();
  if (!user_.compare_exchange_strong(first, me) && first != me) several_use_ = true;
}

const Lane* Engine::lane_of(std::uint64_t id, const Control& world) const {
  const auto found = std::ranges::find_if(lanes_, [&](const auto& lane) {
    return lane->id() == id && lane->control().shares_board(world);
  });
  return found == lanes_.end() ? nullptr : found->get();
}

const Operation* Engine::clashing(const Operation& operation) const {
  for (const auto& lane : lanes_) {
    if (const Operation* const found = lane->clashing(operation)) return found;
  }
  return nullptr;
}

void Engine::submit(const OperationRef& operation) {
  note_thread();
  locked(Nesting::starts, [&](Lane::Ended& ended) {
    const std::shared_ptr<Lane>& lane = operation->lane;
    lane->transport().check_thread();
    const auto& recorder = lane->recorder();
    Execution& execution = operation->execution;
    if (recorder && recorder->recording() &&
        !std::holds_alternative<ReplayCall>(execution.call())) {
      const std::shared_ptr<const Plan>& plan = execution.plan();
      const auto* const collective = std::get_if<CollectiveCall>(&execution.call());
      execution.record(
          recorder,
          recorder->begin(lane->id(), operation->channel, collective ? collective->purpose : 0,
                          describe(*operation), plan ? plan->name : "native",
                          plan ? std::shared_ptr<const Program>(plan, &plan->program) : nullptr,
                          execution.element()));
    }
    lane->submit(operation, ended);
    // A collective for which nobody has to wait advances the rest all the same. Messages do not:
    // many may be under way, and one is cheap.
    for (const auto& each : lanes_) {
      const bool due = operation->in_turn && operation->retired && each->wants_advance();
      if (due && is_for_this_thread(*each)) each->advance(ended);
    }
    if (alone_ || !lane->advances_beside() || !lane->pending()) return;
    if (beside_) return beside_->wake();
    beside_ = std::make_unique<ProgressThread>([this] { return advance_beside(); });
  });
}

Channel Engine::next_channel(Lane& lane, std::uint64_t signature, std::uint64_t* window_turn) {
  const std::lock_guard lock(mutex_);
  return lane.next_channel(signature, window_turn);
}

Branch Engine::branch(Lane& lane) {
  const std::lock_guard lock(mutex_);
  return lane.branch();
}

std::uint64_t Engine::sequence(const Lane& lane) {
  const std::lock_guard lock(mutex_);
  return lane.sequence();
}

Exchange Engine::exchange(Lane& lane, const Immediate& what, const std::byte* in, std::byte* out,
                          std::size_t bytes, std::string_view label) {
  note_thread();
  const std::lock_guard lock(mutex_);
  return may_exchange(lane) ? lane.exchange(what, in, out, bytes, label) : Exchange();
}

Exchange Engine::exchange_known(Lane& lane, const AllReduceKey& what, const std::byte* in,
                                std::byte* out, std::size_t bytes, std::string_view label) {
  note_thread();
  const std::lock_guard lock(mutex_);
  const Immediate* const known = lane.all_reduces().find(what);
  return known != nullptr && may_exchange(lane) ? lane.exchange(*known, in, out, bytes, label)
                                                : Exchange();
}

// What is over at once runs its continuations at once: those of earlier ones must have run. Nor
// does it advance anything: operations in flight, of other groups too, go forward with who waits.
bool Engine::may_exchange(Lane& lane) const {
  if (!due_.empty() || runner_.load(std::memory_order_relaxed) != std::thread::id()) return false;
  for (const auto& each : lanes_) {
    if (each->wants_advance()) return false;
  }
  lane.transport().check_thread();
  return true;
}

void Engine::know(Lane& lane, const CollectiveCall& call, Immediate what) {
  const std::lock_guard lock(mutex_);
  lane.all_reduces().keep({call.dtype(), call.op, call.elements(), call.purpose}, std::move(what));
}

void Engine::hand_over(const std::shared_ptr<Lane>& lane) {
  while (true) {
    progress();
    OperationRef entering;
    {
      std::lock_guard lock(mutex_);
      lane->check();
      for (std::size_t i = 0; i < lanes_.size() && !entering; ++i) entering = lanes_[i]->entering();
    }
    if (!entering) return;
    give_way();
    look(*entering);
  }
}

void Engine::capture(const OperationRef& operation) {
  const std::shared_ptr<Lane>& lane = operation->lane;
  hand_over(lane);
  try {
    {
      std::lock_guard lock(mutex_);
      operation->execution.take_place();
    }
    const auto began = steady_clock::now();
    for (bool whole = false; !whole;) {
      {
        std::lock_guard lock(mutex_);
        lane->check();
        whole = lane->capture(*operation);
      }
      if (whole) break;
      give_way();
      PEAL_CHECK(steady_clock::now() - began < lane->deadline(), "it is not whole after ",
                 std::chrono::duration<double>(lane->deadline()).count(), " s (PEAL_TIMEOUT)");
    }
  } catch (const std::exception& error) {
    operation->execution.leave_capture();
    fail(concat("[comm] ", lane->who(), ", ", describe(*operation), " in a graph: ", error.what()));
  }
  operation->captured = operation->complete = true;
  operation->retired = operation->settled = true;
}

void Engine::progress() {
  locked(Nesting::waits, [&](Lane::Ended& ended) {
    // Before anything is touched: a thread that may not is the caller's mistake.
    for (const auto& lane : lanes_) {
      if (lane->pending()) lane->transport().check_thread();
    }
    for (const auto& lane : lanes_) {
      if (lane->wants_advance()) lane->advance(ended);
    }
  });
}

void Engine::look(Operation& operation, Waits waits) {
  const bool alone = waits == Waits::to_the_end && !several_use_;
  locked(Nesting::waits, [&](Lane::Ended& ended) {
    if (!operation.retired) operation.lane->watch(operation, alone, ended);
  });
}

// A continuation that waits for its own operation does not wait for itself.
bool Engine::is_over(const Operation& operation) const {
  if (operation.settled) return true;
  return operation.retired && runner_.load() == std::this_thread::get_id() &&
         std::find(running_.begin(), running_.end(), &operation) != running_.end();
}

// The board without the lock, whose holder may wait for others, and sees it then. Each lane's
// transport ends.
void Engine::poison(const Lane& lane, const std::string& message) {
  lane.control().poison(message);
  const std::lock_guard lock(mutex_);
  for (const auto& each : lanes_) {
    if (each->control().shares_board(lane.control())) each->tell_failure();
  }
}

void Engine::abort(const std::shared_ptr<Lane>& lane, const std::string& message) {
  locked(Nesting::waits, [&](Lane::Ended& ended) {
    lane->control().poison(message);
    lane->fail_all(message, ended);
  });
}

void Engine::wait_until(Operation& operation, bool handed_over,
                        std::optional<std::chrono::milliseconds> timeout) {
  if (!handed_over) refuse_captured(operation);
  note_thread();
  const Waits waits = timeout ? Waits::for_a_while : Waits::to_the_end;
  const auto nap = operation.lane->transport().limits().nap;
  const auto over = [&] {
    const bool ordered = handed_over && operation.ordered && !operation.lane->ended_by_watchdog();
    return ordered || is_over(operation);
  };
  const auto end = timeout ? end_after(*timeout) : steady_clock::time_point::max();
  steady_clock::time_point since{};  // the epoch: it has not waited yet
  const auto note = [&] {
    if (since != steady_clock::time_point{}) note_wait(operation, steady_clock::now() - since);
    since = {};
  };
  for (Spins spins(crowded_); !over();) {
    if (since == steady_clock::time_point{}) since = steady_clock::now();
    progress();
    if (over()) break;
    spins.ask();
    if (timeout && steady_clock::now() >= end) {
      note();
      give_up(operation, *timeout);
    }
    if (nap.count() > 0) {
      std::this_thread::sleep_for(nap);
      look(operation, waits);
      continue;
    }
    if (spins.gives_way()) give_way();
    if (spins.looks()) look(operation, waits);
  }
  note();
  if (operation.retired && operation.error) std::rethrow_exception(operation.error);
  if (operation.threw) std::rethrow_exception(operation.thrown);
}

// The error of who waits no longer; unless it is over, or has failed, at the last look.
void Engine::give_up(Operation& operation, std::chrono::milliseconds timeout) {
  std::string message;
  locked(Nesting::waits, [&](Lane::Ended& ended) {
    if (!operation.retired) operation.lane->watch(operation, false, ended);
    if (!operation.retired) message = operation.lane->not_done_after(operation, timeout);
  });
  if (!message.empty()) fail(message);
}

void Engine::attach(const std::shared_ptr<Lane>& lane, std::unique_ptr<Transport> transport) {
  std::unique_ptr<Transport> before;  // it waits for its peers when it goes
  locked(Nesting::starts, [&](Lane::Ended& ended) {
    lane->check();  // works of a group that has failed may still use the one before
    before = lane->set_device_transport(std::move(transport), entrance_, watchdog_, ended);
  });
}

bool Engine::test(Operation& operation) {
  refuse_captured(operation);
  if (is_over(operation)) return true;
  progress();
  if (is_over(operation)) return true;
  const auto now = steady_clock::now();
  locked(Nesting::waits, [&](Lane::Ended& ended) {
    if (operation.retired || now < operation.next_look) return;
    operation.next_look = now + std::chrono::milliseconds(1);
    operation.lane->watch(operation, false, ended);
  });
  return is_over(operation);
}

void Engine::then(const OperationRef& operation, std::function<void()> f) {
  refuse_captured(*operation);
  locked(Nesting::starts, [&](Lane::Ended& ended) {
    if (!operation->retired) return operation->continuations.push_back(std::move(f));
    if (operation->error) return;
    ended.due.push_back({operation, std::move(f)});
    ++operation->due;
    operation->settled = false;
  });
}

// Nothing is left in flight where the last group goes: nobody would advance it, and it keeps its
// lane, and that the engine.
void Engine::remove(const std::shared_ptr<Lane>& lane, bool failed) {
  const std::string gone = "[comm] the process group is gone";
  for (OperationRef last; !failed;) {
    {
      std::lock_guard lock(mutex_);
      last = lane->handed_over();
    }
    if (!last) break;
    try {
      synchronize(*last);
    } catch (const std::exception&) {  // whoever waits for it is told
      failed = true;
    }
  }
  locked(Nesting::starts, [&](Lane::Ended& ended) {
    --groups_;
    ++released_;
    lane->release();
    if (failed) {
      lane->abandon();
      lane->fail_all(gone, ended);
    }
    if (groups_ > 0) return;
    if (const OperationRef left = lane->in_turn()) {
      const std::string message =
          concat("[comm] ", lane->who(), " let go of its last process group with ", describe(*left),
                 " in flight; wait for it first");
      lane->control().poison(message);
      lane->fail_all(message, ended);
    }
    for (const auto& each : lanes_) {
      if (each->pending()) each->fail_all(gone, ended);
    }
  });
}

}  // namespace peal::comm

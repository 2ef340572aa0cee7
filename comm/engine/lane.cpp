// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/engine/branch.h>
#include <peal/comm/engine/engine.h>
#include <peal/comm/engine/lane.h>
#include <peal/comm/schedule/mix.h>

#include <algorithm>
#include <map>
#include <utility>

namespace peal::comm {
namespace {

using std::chrono::milliseconds;
using Clock = Operation::Clock;

constexpr milliseconds publish_after{1000};
constexpr milliseconds between_comparisons{50};

// It poisons the group before it ends a queue.
std::string watchdogs_reason(const Control& control) {
  return control.poisoned().value_or("[comm] the watchdog has ended the device's queue");
}

// All lanes of the process, by number. It outlives those that outlive main().
struct Lanes {
  std::mutex mutex;
  std::map<std::uint64_t, Lane*> by_serial;
  std::uint64_t last = 0;
};

Lanes& lanes() {
  static auto& all = *new Lanes;
  return all;
}

std::uint64_t enlist(Lane* lane) {
  const std::lock_guard lock(lanes().mutex);
  lanes().by_serial[++lanes().last] = lane;
  return lanes().last;
}

}  // namespace

std::shared_ptr<Lane> Lane::find(std::uint64_t serial) {
  const std::lock_guard lock(lanes().mutex);
  const auto found = lanes().by_serial.find(serial);
  return found == lanes().by_serial.end() ? nullptr : found->second->weak_from_this().lock();
}

Lane::~Lane() {
  const std::lock_guard lock(lanes().mutex);
  lanes().by_serial.erase(serial_);
}

Lane::Lane(std::shared_ptr<Engine> engine, std::unique_ptr<Transport> transport,
           std::unique_ptr<Control> control, milliseconds deadline, std::string who,
           std::uint64_t id)
    : serial_(enlist(this)),
      engine_(std::move(engine)),
      control_(std::move(control)),
      transport_(std::move(transport)),
      deadline_(deadline),
      who_(std::move(who)),
      id_(id) {}

std::unique_ptr<Transport> Lane::set_device_transport(std::unique_ptr<Transport> transport,
                                                      std::shared_ptr<Entrance> entrance,
                                                      Watchdog& watchdog, Ended& ended) {
  PEAL_CHECK(!pending(), "[comm] ", who_,
             ": a transport cannot join while operations are in flight");
  leave(ended);
  entrance_ = std::move(entrance);
  auto before = std::exchange(device_transport_, std::move(transport));
  if (device_transport_->stream_ordered()) {
    watched_ = std::make_shared<WatchedQueue>(*device_transport_, *control_, who_, id_, deadline_,
                                              ended_by_watchdog_);
    watchdog.watch(watched_);
  }
  return before;
}

void Lane::leave(Ended& ended) {
  if (watched_) ended.unwatched.push_back(std::exchange(watched_, nullptr));
}

// What the watchdog has looked at and let go of.
void Lane::collect(Ended& ended) {
  if (!watched_ || !watched_->has_any_to_collect()) return;
  for (OperationRef& each : watched_->collect()) ended.gone.push_back({std::move(each), nullptr});
}

// What it waits for, in words.
std::string Lane::needs_of(const Operation& operation) const {
  const Execution& execution = operation.execution;
  if (execution.enters() && !entrance_->is_next(operation)) {
    return "its turn (all groups' operations on the device, in the order of their calls)";
  }
  if (execution.one_sided() && operation.window_turn != window_turn_) {
    return "its turn (the group's shared memory serves one operation after the other)";
  }
  return execution.waits_for();
}

Channel Lane::next_channel(std::uint64_t signature, std::uint64_t* window_turn) {
  if (Branch* const branch = Branch::current()) return branch->next_channel(*this, signature);
  return number(signature, window_turn);
}

Channel Lane::number(std::uint64_t signature, std::uint64_t* window_turn) {
  mix(history_, signature);
  if (window_turn != nullptr) *window_turn = window_turns_++;
  return {sequence_++, history_};
}

Branch Lane::branch() {
  if (Branch* const branch = Branch::current()) return branch->nested(*this);
  mix(history_, Branch::size);
  const Branch branch(*this, sequence_, Branch::size, history_);
  sequence_ += Branch::size;
  return branch;
}

void Lane::compare_finished(std::uint64_t end) const {
  control_->compare_finished(id_, end, describe);
}

void Lane::submit(const OperationRef& operation, Ended& ended) {
  if (broken_.empty()) control_->hear_far();
  if (broken_.empty() && control_->poisoned()) fail_all(*control_->poisoned(), ended);
  if (!broken_.empty()) fail(broken_);
  PEAL_CHECK(!released_, "[comm] ", who_, ", ", describe(*operation),
             ": its process group is gone");
  queue_.push_back(operation);
  operation->flight = control_->flight().begin(id_, operation->channel.sequence,
                                               finished(*operation), operation->label);
  const auto [kind, bytes] = counted(operation->execution.call(), transport_->world());
  counters_.note_call(kind, bytes);
  try {
    check_apart(*operation);
    operation->buffers.begin(clashing(*operation, true) != nullptr);
    if (operation->execution.enters()) entrance_->join(*operation);
    operation->execution.take_place();
  } catch (const std::exception& error) {
    return fail_by(*operation, error, ended);
  }
  if (!advance(operation, ended)) return;
  if (operation->complete && !operation->in_turn) {
    retire(operation, ended);
    queue_.pop_back();
  } else if (operation->complete) {
    retire_complete(ended);
  }
}

const Operation* Lane::clashing(const Operation& with, bool in_order) const {
  constexpr std::size_t most = 256;  // of many messages the last
  const auto end = queue_.rbegin() + static_cast<std::ptrdiff_t>(std::min(most, queue_.size()));
  const auto clashes = [&](const OperationRef& each) {
    const bool one_queue = each->lane == with.lane && each->execution.stream_ordered() &&
                           with.execution.stream_ordered();
    return each.get() != &with && one_queue == in_order && !each->execution.handed_over() &&
           each->buffers.clash(with.buffers);
  };
  const auto found = std::find_if(queue_.rbegin(), end, clashes);
  return found == end ? nullptr : found->get();
}

// Whether the other one is still in flight may differ on the ranks, so all of them are to fail.
void Lane::check_apart(const Operation& operation) const {
  const Operation* const other = engine_->clashing(operation);
  if (other == nullptr) return;
  fail(concat("it uses memory that ", describe(*other),
              " uses, which is in flight, and one of the two writes there, so that they have no "
              "order; wait for the first before you call the second"));
}

void Lane::fail_all(const std::string& message, Ended& ended) {
  broken_ = message;
  late_.clear();
  for (const OperationRef& operation : queue_) {
    operation->error = std::make_exception_ptr(Error(message));
    if (entrance_) entrance_->leave(*operation);
    // Now, for who holds its Work may want the memory. What lies in a device's queue ends below.
    if (!operation->execution.stream_ordered()) operation->execution.give_up();
    let_go(operation, ended);
  }
  // What waits in a device's queue would wait for ever. Last: who waits for the queue finds the
  // error.
  if (device_transport_ && !queue_.empty()) device_transport_->abandon();
  if (control_->is_poisoned()) tell_failure();
  queue_.clear();
}

// Both may have ranks to tell.
void Lane::tell_failure() {
  control_->fail_far();
  transport_->abandon();
}

// This rank's fault, and everyone's failure; but for what follows from the watchdog's end.
void Lane::fail_by(const Operation& operation, const std::exception& error, Ended& ended) {
  if (ended_by_watchdog()) return fail_all(watchdogs_reason(*control_), ended);
  control_->hear_beside();  // what a rank that is gone had said
  const std::string message = concat("[comm] ", who_, ", ", describe(operation), ": ", error.what(),
                                     control_->describe_far_work());
  control_->poison(message);
  fail_all(message, ended);
}

void Lane::abandon() {
  if (control_->poisoned()) transport_->abandon();
  if (device_transport_) device_transport_->abandon();
}

void Lane::check() const {
  if (!broken_.empty()) fail(broken_);
  if (const auto poisoned = control_->poisoned()) fail(*poisoned);
}

OperationRef Lane::entering() const {
  const auto found = std::find_if(queue_.begin(), queue_.end(),
                                  [](const OperationRef& o) { return o->execution.enters(); });
  return found == queue_.end() ? nullptr : *found;
}

OperationRef Lane::handed_over() const {
  const auto found = std::find_if(queue_.begin(), queue_.end(),
                                  [](const OperationRef& o) { return o->ordered && !o->complete; });
  return found == queue_.end() ? nullptr : *found;
}

OperationRef Lane::in_turn() const {
  const auto found =
      std::find_if(queue_.begin(), queue_.end(), [](const OperationRef& o) { return o->in_turn; });
  return found == queue_.end() ? nullptr : *found;
}

// Its continuations are due, and it is the caller's to drop.
void Lane::let_go(const OperationRef& operation, Ended& ended) {
  if (watched_ && operation->ordered) watched_->dequeue(*operation);
  const bool failed = operation->error != nullptr;
  if (operation->flight) {
    control_->flight().end(*operation->flight, failed ? FlightState::failed : FlightState::done);
  }
  if (failed) {
    counters_.note_failure(counted(operation->execution.call(), transport_->world()).kind);
  }
  for (auto& f : operation->continuations) {
    (failed ? ended.gone : ended.due).push_back({operation, std::move(f)});
  }
  if (!failed) operation->due = operation->continuations.size();
  operation->continuations.clear();
  operation->settled = operation->due == 0;
  operation->retired = true;
  if (operation->settled) ended.gone.push_back({operation, nullptr});
}

void Lane::retire(const OperationRef& operation, Ended& ended) {
  if (!is_message(operation->execution.call())) {
    control_->finished(id_, operation->channel.sequence, finished(*operation));
  }
  if (row_is_out_ && control_->own_row().group == id_) control_->publish({});
  row_is_out_ = false;
  let_go(operation, ended);
}

// Collectives retire in order. What has no turn does not wait for others, nor lets them wait.
void Lane::retire_complete(Ended& ended) {
  std::size_t continuations = 0;
  for (const OperationRef& operation : queue_) continuations += operation->continuations.size();
  ended.gone.reserve(ended.gone.size() + queue_.size());  // nothing may fail half way
  ended.due.reserve(ended.due.size() + continuations);
  bool in_turn = true;
  auto stays = queue_.begin();
  for (OperationRef& operation : queue_) {
    if (operation->complete && (in_turn || !operation->in_turn)) {
      retire(operation, ended);
      continue;
    }
    in_turn = in_turn && !operation->in_turn;
    if (&*stays != &operation) *stays = std::move(operation);
    ++stays;
  }
  queue_.erase(stays, queue_.end());
}

// What the operation can do without waiting. False where it failed, and the lane with it.
bool Lane::advance(const OperationRef& advanced, Ended& ended) {
  Operation& operation = *advanced;
  Execution& execution = operation.execution;
  const bool enters = execution.enters();
  if (enters && !entrance_->is_next(operation)) return true;
  if (execution.one_sided() && operation.window_turn != window_turn_) return true;
  const auto* const message = std::get_if<MessageCall>(&execution.call());
  const bool sends = message != nullptr && message->sends() && !execution.begun();
  const bool waits_its_turn =
      sends && std::any_of(late_.begin(), late_.end(), [&](const Operation* earlier) {
        return earlier->channel == operation.channel &&
               std::get<MessageCall>(earlier->execution.call()).peer == message->peer;
      });
  try {
    if (!execution.handed_over()) {
      const std::string written = operation.buffers.written();
      PEAL_CHECK(written.empty(), written,
                 " of its buffers were written in place between the call and wait(), and what the "
                 "ranks get depends on who was faster; wait before you write, or give it a copy");
    }
    if (!waits_its_turn) {
      const std::size_t before = execution.progress();
      {
        const WatchedQueue::Feeding feeding(enters ? watched_.get() : nullptr);
        operation.complete = execution.advance();
      }
      if (ended_by_watchdog()) {  // what seems to be complete may have been cut off
        operation.complete = false;
        fail_all(watchdogs_reason(*control_), ended);
        return false;
      }
      // The end of the last is of no interest to anybody.
      const bool any_left = !operation.complete || queue_.size() > 1;
      if (any_left && execution.progress() != before) last_progress_ = Clock::now();
      if (operation.complete && execution.one_sided()) ++window_turn_;
      const bool handed_over = execution.handed_over();
      if (enters && handed_over) entrance_->leave(operation);
      if (handed_over && !operation.complete && !operation.ordered) {
        if (watched_ && execution.stream_ordered()) watched_->enqueue(advanced);
        operation.ordered = true;
      }
    }
    if (sends && !execution.begun()) late_.push_back(&operation);
  } catch (const std::exception& error) {
    fail_by(operation, error, ended);
    return false;
  }
  return true;
}

// A call of the library below may wait there for ranks that never come: the watchdog ends it.
bool Lane::capture(Operation& operation) {
  bool whole = false;
  try {
    const WatchedQueue::Feeding feeding(watched_.get());
    whole = operation.execution.hand_over();
  } catch (const std::exception&) {
    if (!ended_by_watchdog()) throw;
  }
  if (ended_by_watchdog()) fail(watchdogs_reason(*control_));  // what seems whole may be cut off
  return whole;
}

void Lane::advance(Ended& ended) {
  collect(ended);
  if (ended_by_watchdog()) return fail_all(watchdogs_reason(*control_), ended);
  late_.clear();
  bool any_complete = false;
  for (const OperationRef& operation : queue_) {
    if (!operation->complete && !advance(operation, ended)) return;
    any_complete = any_complete || operation->complete;
  }
  if (any_complete) retire_complete(ended);
}

bool Lane::advance_hosts(Ended& ended) {
  const auto waits = [](const OperationRef& o) { return !o->complete && !o->execution.stages(); };
  for (const OperationRef& operation : queue_) {
    if (waits(operation) && !advance(operation, ended)) return false;
  }
  const bool left = std::ranges::any_of(queue_, waits);
  retire_complete(ended);
  return left;
}

Row Lane::publish_row_of(const Operation& pending, bool alone) {
  Row row = row_of(pending, id_, needs_of(pending));
  row.alone = alone ? 1 : 0;
  if (!row_is_out_ || control_->own_row() != row) control_->publish(row);
  row_is_out_ = true;
  return row;
}

std::string Lane::not_done_after(Operation& waited, milliseconds timeout) {
  publish_row_of(waited, false);
  waited.had_waited = Clock::now() - waited.first_look;
  waited.first_look = {};
  return concat("[comm] ", who_, ": ", describe(waited), " is not done after the ",
                seconds(timeout), " s that were to be waited for it",
                waits(needs_of(waited), *control_));
}

// Once a job, by the node of the first rank that waits in this call, and less and less often.
void Lane::warn_of_stall(Operation& waited, Clock::duration idle) {
  waited.next_warning = 2 * idle;
  const Row mine = publish_row_of(waited, false);
  const auto tells = [&](int peer) {
    if (peer > control_->rank() || control_->has_flight(peer)) return false;
    const auto theirs = control_->read(peer);
    return theirs && theirs->text[0] != 0 && theirs->group == mine.group &&
           theirs->sequence == mine.sequence;
  };
  if (std::ranges::any_of(control_->peers(), tells)) return;
  if (control_->anyone_works(true) || !control_->take_stall_word(stall_warning_)) return;
  log_warning(
      "[comm] ", who_, ": ", describe(waited), " has not moved for ", seconds(idle),
      " s, and is an error after ", seconds(deadline_),
      " s (PEAL_TIMEOUT), unless a rank that works meanwhile says so: group.busy(\"tests\")",
      waits(needs_of(waited), *control_));
}

// A rank that waits in one group, and a peer in another that both are in, wait for each other where
// neither has made the other's call, nor has a thread that could.
void Lane::compare_groups(const Row& mine) const {
  if (mine.alone == 0) return;
  for (const int peer : control_->peers()) {
    const auto theirs = control_->read(peer);
    if (!theirs || theirs->alone == 0 || theirs->group == id_) continue;
    const Lane* const other = engine_->lane_of(theirs->group, *control_);
    if (other == nullptr || other->sequence_ > theirs->sequence) continue;
    const auto begun =
        control_->has_begun(peer, id_, mine.sequence, {theirs->group, theirs->sequence});
    if (begun != std::optional(false)) continue;
    control_->fail_crossed(mine, group_name_, peer, *theirs, other->group_name_);
  }
}

void Lane::watch(Operation& waited, bool alone, Ended& ended) {
  const auto now = Clock::now();
  if (waited.first_look == Clock::time_point{}) waited.first_look = now - waited.had_waited;
  // A rank that computes for long before it waits has not been waiting.
  const auto idle = now - std::max(waited.first_look, last_progress_);
  try {
    const milliseconds quiet = std::min(publish_after, deadline_ / 4);
    if (idle > quiet && now >= next_comparison_) {
      next_comparison_ = now + between_comparisons;
      // The first collective that is not done is the one that holds up the rest.
      const auto ordered = [](const Operation& o) { return !is_message(o.execution.call()); };
      const auto first =
          std::ranges::find_if(queue_, [&](const OperationRef& o) { return ordered(*o); });
      const Operation& pending = first == queue_.end() ? waited : **first;
      const Row row = publish_row_of(pending, alone && ordered(waited));
      control_->meet_far(row);
      if (first != queue_.end()) control_->compare(row, describe);
      if (idle > 2 * quiet) compare_groups(row);
    }
    control_->check();
    if (device_transport_) device_transport_->queue()->check();
    const bool stalls = idle >= std::max<Clock::duration>(stall_warning_, waited.next_warning);
    if (stalls && idle < deadline_) warn_of_stall(waited, idle);
    const auto too_late = [&] { return is_overdue(idle, now, deadline_, *control_, last_work_); };
    bool late = too_late();
    if (late) {  // a short deadline ends between two comparisons
      control_->hear_beside();
      control_->check();
      late = too_late();
    }
    if (late) {
      fail(overdue(waited, who_, deadline_, needs_of(waited), *control_));
    }
  } catch (const std::exception& error) {
    control_->poison(error.what());  // the first message stays
    fail_all(error.what(), ended);
  }
}

}  // namespace peal::comm

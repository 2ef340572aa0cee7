// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/engine/lane.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace peal::comm {
namespace {

using std::chrono::milliseconds;
using Clock = Operation::Clock;

constexpr milliseconds publish_after{1000};
constexpr milliseconds between_comparisons{50};

void mix(std::uint64_t& hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
  hash ^= hash >> 29;
}

}  // namespace

std::uint64_t signature(const Call& call) {
  std::uint64_t hash = 1;
  mix(hash, static_cast<std::uint64_t>(call.dtype()));
  if (call.point_to_point()) return hash;  // sizes are compared when the message comes
  mix(hash, static_cast<std::uint64_t>(call.what));
  mix(hash, static_cast<std::uint64_t>(call.op));
  mix(hash, static_cast<std::uint64_t>(call.root));
  mix(hash, call.purpose);
  for (const std::int64_t count : call.counts) mix(hash, static_cast<std::uint64_t>(count));
  for (const Piece& piece : call.gathered) mix(hash, static_cast<std::uint64_t>(piece.data.count));
  return hash;
}

std::string describe(const Operation& operation) {
  return describe(operation.execution.call(), operation.channel.sequence, operation.label);
}

Lane::Lane(std::unique_ptr<Transport> transport, std::unique_ptr<Control> control,
           milliseconds deadline, std::string who, std::uint64_t id)
    : transport_(std::move(transport)),
      control_(std::move(control)),
      deadline_(deadline),
      who_(std::move(who)),
      id_(id) {}

std::unique_ptr<Transport> Lane::set_device_transport(std::unique_ptr<Transport> transport,
                                                      std::shared_ptr<Entrance> entrance) {
  PEAL_CHECK(!pending(), "[comm] ", who_,
             ": a transport cannot join while operations are in flight");
  entrance_ = std::move(entrance);
  return std::exchange(device_transport_, std::move(transport));
}

// What it waits for, in words.
std::string Lane::needs_of(const Operation& operation) const {
  const Execution& execution = operation.execution;
  if (execution.enters() && !entrance_->is_next(operation)) {
    return "its turn (all groups' operations on the device, in the order of their calls)";
  }
  return execution.waits_for();
}

Row Lane::row_of(const Operation& operation) const {
  Row row;
  row.group = id_;
  row.sequence = operation.channel.sequence;
  row.signature = operation.channel.signature;
  const std::string text = describe(operation);
  std::memcpy(row.text, text.data(), std::min(text.size(), sizeof row.text - 1));
  const std::string needs = needs_of(operation);
  std::memcpy(row.waits_for, needs.data(), std::min(needs.size(), sizeof row.waits_for - 1));
  return row;
}

void Lane::submit(const OperationRef& operation, std::vector<Ready>& ready) {
  if (broken_.empty() && control_->poisoned()) fail_all(*control_->poisoned(), ready);
  if (!broken_.empty()) fail(broken_);
  queue_.push_back(operation);
  if (operation->execution.enters()) entrance_->join(*operation);
  try {
    operation->execution.take_place();
  } catch (const Error& error) {
    return fail_by(*operation, error, ready);
  }
  advance(ready);
}

void Lane::fail_all(const std::string& message, std::vector<Ready>& ready) {
  broken_ = message;
  for (const OperationRef& operation : queue_) {
    operation->error = std::make_exception_ptr(Error(message));
    if (entrance_) entrance_->leave(*operation);
    let_go(operation, ready);
  }
  // What waits in a device's queue would wait for ever. Last: who waits for the queue finds the
  // error.
  if (device_transport_ && !queue_.empty()) device_transport_->abandon();
  queue_.clear();
}

// This rank's fault, and everyone's failure.
void Lane::fail_by(const Operation& operation, const Error& error, std::vector<Ready>& ready) {
  const std::string message =
      concat("[comm] ", who_, ", ", describe(operation), ": ", error.what());
  control_->poison(message);
  fail_all(message, ready);
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

// Its continuations are due, and it is the caller's to drop.
void Lane::let_go(const OperationRef& operation, std::vector<Ready>& ready) {
  if (operation->continuations.empty()) ready.push_back({shared_from_this(), operation, nullptr});
  for (auto& f : operation->continuations)
    ready.push_back({shared_from_this(), operation, std::move(f)});
  operation->continuations.clear();
  operation->retired = true;
}

void Lane::retire(std::deque<OperationRef>::iterator place, std::vector<Ready>& ready) {
  const OperationRef operation = *place;
  queue_.erase(place);
  if (!operation->execution.call().point_to_point()) {
    control_->finished(id_, operation->channel.sequence, operation->channel.signature);
  }
  if (row_is_out_) control_->publish({});
  row_is_out_ = false;
  let_go(operation, ready);
}

void Lane::advance(std::vector<Ready>& ready) {
  // Messages whose data is still on its way from a device: later ones must not overtake them.
  std::vector<const Operation*> late;
  for (const OperationRef& operation : queue_) {
    if (operation->complete) continue;
    const bool enters = operation->execution.enters();
    if (enters && !entrance_->is_next(*operation)) continue;
    const bool sends = operation->execution.call().verb == "send" && !operation->execution.begun();
    if (sends && std::any_of(late.begin(), late.end(), [&](const Operation* earlier) {
          return earlier->channel == operation->channel &&
                 earlier->execution.call().peer == operation->execution.call().peer;
        })) {
      continue;
    }
    try {
      const std::size_t before = operation->execution.rounds_done();
      operation->complete = operation->execution.advance();
      if (sends && !operation->execution.begun()) late.push_back(operation.get());
      if (operation->complete) operation->finished = Clock::now();
      const bool handed_over = operation->execution.handed_over();
      if (enters && handed_over) entrance_->leave(*operation);
      if (handed_over && !operation->complete) operation->ordered = true;
      if (operation->execution.rounds_done() != before) last_progress_ = Clock::now();
    } catch (const Error& error) {
      return fail_by(*operation, error, ready);
    }
  }
  // Collectives retire in order. A message does not wait for its turn, nor lets others wait: ranks
  // may send and receive in orders of their own between the same collectives.
  bool in_turn = true;
  for (std::size_t i = 0; i < queue_.size();) {
    const bool ordered = !queue_[i]->execution.call().point_to_point();
    if (queue_[i]->complete && (in_turn || !ordered)) {
      retire(queue_.begin() + static_cast<std::ptrdiff_t>(i), ready);
    } else {
      in_turn = in_turn && !ordered;
      ++i;
    }
  }
}

void Lane::watch(const OperationRef& waited, std::vector<Ready>& ready) {
  const auto now = Clock::now();
  if (waited->first_look == Clock::time_point{}) waited->first_look = now;
  // A rank that computes for long before it waits has not been waiting.
  const auto idle = now - std::max(waited->first_look, last_progress_);
  try {
    if (idle > std::min(publish_after, deadline_ / 2) && now >= next_comparison_) {
      next_comparison_ = now + between_comparisons;
      // The first collective that is not done is the one that holds up the rest.
      const auto ordered = [](const OperationRef& o) {
        return !o->execution.call().point_to_point();
      };
      const auto first = std::find_if(queue_.begin(), queue_.end(), ordered);
      const Row row = row_of(first == queue_.end() ? *waited : **first);
      if (!row_is_out_ || control_->own_row() != row) control_->publish(row);
      row_is_out_ = true;
      if (first != queue_.end()) control_->compare(row);
    }
    control_->check();
    if (device_transport_) device_transport_->check();
    if (idle >= deadline_) {
      const std::string needs = needs_of(*waited);
      fail(concat("[comm] ", who_, ": ", describe(*waited), " has not moved for ",
                  std::chrono::duration<double>(deadline_).count(), " s (PEAL_TIMEOUT)",
                  needs.empty() ? "" : "; it waits for ", needs,
                  "; what the ranks of this node wait for:", control_->describe()));
    }
  } catch (const Error& error) {
    control_->poison(error.what());  // the first message stays
    fail_all(error.what(), ready);
  }
}

void Lane::watch_device(std::vector<Ready>& ready) {
  OperationRef first;
  try {
    // What the device has done is over, though the host has not looked since.
    for (const OperationRef& operation : queue_) {
      const Execution& execution = operation->execution;
      if (!execution.stream_ordered() || operation->complete || execution.is_over()) continue;
      first = operation;
      break;
    }
    if (!first || !first->execution.may_begin()) return;
  } catch (const Error&) {  // who advances it will say what it is
    return;
  }
  watch(first, ready);
}

void Lane::relieve(Clock::duration stood) {
  try {
    control_->check();
    PEAL_CHECK(stood < deadline_, "[comm] ", who_, ": the queue of ", device_transport_->name(),
               " has taken nothing for ", std::chrono::duration<double>(stood).count(),
               " s (PEAL_TIMEOUT); what the ranks of this node wait for:", control_->describe());
  } catch (const Error& error) {
    control_->poison(error.what());
    device_transport_->abandon();
  }
}

}  // namespace peal::comm

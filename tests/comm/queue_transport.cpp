// SPDX-License-Identifier: Apache-2.0
#include "queue_transport.h"

#include <peal/autograd/core/error.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "queue_device.h"

namespace peal::testing {

using namespace peal::comm;

std::shared_ptr<MeetingPlace> MeetingPlace::child(std::uint64_t id, int world) {
  const std::lock_guard lock(mutex_);
  auto& place = children_[id];
  if (!place) place = std::make_shared<MeetingPlace>(world);
  return place;
}

std::unique_ptr<Transport> QueueTransport::subset(const std::vector<int>& ranks, std::uint64_t id) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank_);
  if (found == ranks.end()) return nullptr;
  const auto place = found - ranks.begin();
  return std::make_unique<QueueTransport>(place_->child(id, static_cast<int>(ranks.size())),
                                          static_cast<int>(place), device_, log_, id);
}

Ticket QueueTransport::post(Channel channel, std::span<const Message> round) {
  check();
  PEAL_CHECK(looks_ == 0, "queue: a round is posted before the last one is in the stream");
  const std::lock_guard lock(log_->mutex);
  if (std::exchange(last_sequence_, channel.sequence) != channel.sequence) {
    log_->posted.emplace_back(group_, channel.sequence);
  }
  looks_ = 1 + log_->busy;
  round_.assign(round.begin(), round.end());
  posted_in_ = current_stream(device_);
  return next_++;
}

bool QueueTransport::test(Ticket) {
  check();
  if (--looks_ > 0) return false;
  if (log_->full) {
    log_->stands = true;
    std::unique_lock lock(place_->mutex_);
    place_->changed_.wait(lock, [&] { return state_->aborted; });
  }
  put(posted_in_, [place = place_, state = state_, rank = rank_, round = std::move(round_)] {
    meet(*place, *state, rank, round);
  });
  round_.clear();
  return true;
}

// On the stream.
void QueueTransport::meet(MeetingPlace& place, State& state, int rank,
                          const std::vector<Message>& round) {
  std::unique_lock lock(place.mutex_);
  if (state.aborted) return;
  std::vector<const Message*> receives;
  std::vector<std::shared_ptr<bool>> sent;
  for (const Message& message : round) {
    if (message.direction == Direction::recv) {
      receives.push_back(&message);
      continue;
    }
    sent.push_back(std::make_shared<bool>(false));
    place.mailbox(rank, message.peer).push_back({message.data, message.bytes, sent.back()});
  }
  place.changed_.notify_all();
  const auto take = [&](const Message* message) {
    auto& mailbox = place.mailbox(message->peer, rank);
    if (mailbox.empty() || mailbox.front().bytes != message->bytes) return false;
    if (message->bytes != 0) std::memcpy(message->data, mailbox.front().data, message->bytes);
    *mailbox.front().taken = true;
    mailbox.pop_front();
    place.changed_.notify_all();
    return true;
  };
  place.changed_.wait(lock, [&] {
    if (state.aborted) return true;
    for (auto next = receives.begin(); next != receives.end();) {  // in order, from each peer
      next = take(*next) ? receives.erase(next) : next + 1;
    }
    return receives.empty() && std::all_of(sent.begin(), sent.end(), [](auto& t) { return *t; });
  });
}

void QueueTransport::check() {
  const std::lock_guard lock(log_->mutex);
  PEAL_CHECK(log_->fails.empty(), "[queue] ", log_->fails);
}

// When it returns, nobody reads or writes this rank's memory through it.
void QueueTransport::abandon() {
  {
    const std::lock_guard lock(place_->mutex_);
    if (std::exchange(state_->aborted, true)) return;
    for (int peer = 0; peer < world(); ++peer) place_->mailbox(rank_, peer).clear();
  }
  place_->changed_.notify_all();
  answer(device_, true);
  const std::lock_guard lock(log_->mutex);
  ++log_->aborted;
}

}  // namespace peal::testing

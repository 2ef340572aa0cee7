// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/threads/threads.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace peal::comm {

Switchboard::Switchboard(int world)
    : world_(world),
      mailboxes_(static_cast<std::size_t>(world) * static_cast<std::size_t>(world)) {}

std::shared_ptr<Switchboard> Switchboard::child(std::uint64_t id, int world) {
  std::lock_guard lock(children_mutex_);
  std::erase_if(children_, [](const auto& child) { return child.second.expired(); });
  auto& known = children_[id];
  auto board = known.lock();
  if (!board) known = board = std::make_shared<Switchboard>(world);
  return board;
}

void ThreadsTransport::connect(std::shared_ptr<Network> network) {
  network_ = std::move(network);
  members_.resize(static_cast<std::size_t>(world()));
  std::iota(members_.begin(), members_.end(), 0);
}

std::unique_ptr<Transport> ThreadsTransport::subset(const std::vector<int>& ranks,
                                                    std::uint64_t id) {
  const auto place = std::find(ranks.begin(), ranks.end(), rank_);
  if (place == ranks.end()) return nullptr;
  auto transport =
      std::make_unique<ThreadsTransport>(switchboard_->child(id, static_cast<int>(ranks.size())),
                                         static_cast<int>(place - ranks.begin()));
  if (network_) {
    transport->network_ = network_;
    transport->group_ = id;
    for (const int r : ranks) {
      transport->members_.push_back(members_[static_cast<std::size_t>(r)]);
    }
  }
  return transport;
}

// How many messages went to the peer in the channel before this one.
std::int64_t ThreadsTransport::count_in_channel(Channel channel, int to) {
  constexpr std::uint64_t in_flight_at_most = 4096;
  // A collective's channel is of no more use once it is done; those of messages sort behind.
  while (!sent_.empty() && sent_.begin()->first.sequence + in_flight_at_most < channel.sequence &&
         channel.sequence >> 63 == 0) {
    sent_.erase(sent_.begin());
  }
  auto& counts = sent_[channel];
  counts.resize(static_cast<std::size_t>(world()));
  return counts[static_cast<std::size_t>(to)]++;
}

// What is sent and expected is noted before it is in anybody's reach, so that a post that fails
// half way takes all of it back: the messages' memory is the caller's again.
Ticket ThreadsTransport::post(Channel channel, std::span<const Message> round) {
  const Ticket ticket = next_++;
  Posted& posted = posted_[ticket];
  posted.channel = channel;
  try {
    for (const Message& message : round) {
      if (message.direction == Direction::recv) {
        expected_[channel].push_back({message, ticket});
        ++posted.receives;
        continue;
      }
      auto arrives = Network::Clock::time_point::min();
      if (network_) {
        arrives = network_->send({.group = group_,
                                  .channel = channel,
                                  .from = members_[static_cast<std::size_t>(rank_)],
                                  .to = members_[static_cast<std::size_t>(message.peer)],
                                  .in_channel = count_in_channel(channel, message.peer),
                                  .bytes = message.bytes});
      }
      const bool dropped = arrives == Network::never;
      auto taken = std::make_shared<std::atomic<bool>>(dropped);
      posted.sends.push_back({message, taken});
      Switchboard::Mailbox& box = switchboard_->mailbox(rank_, message.peer);
      std::lock_guard lock(box.mutex);
      box.parcels.push_back(
          {channel, dropped ? nullptr : message.data, message.bytes, std::move(taken), arrives});
    }
  } catch (...) {
    cancel(ticket);
    throw;
  }
  return ticket;
}

// Copies the oldest parcel of the channel, if there is one and it has arrived: a later one must not
// overtake it. The copy is made under the mailbox's lock, so that a cancelled send is never read
// after cancel() returned.
bool ThreadsTransport::receive(Channel channel, int from, const Message& message) {
  Switchboard::Mailbox& box = switchboard_->mailbox(from, rank_);
  std::lock_guard lock(box.mutex);
  const auto parcel = std::find_if(box.parcels.begin(), box.parcels.end(),
                                   [&](const auto& p) { return p.channel == channel; });
  if (parcel == box.parcels.end()) return false;
  if (network_ && parcel->arrives > Network::Clock::now()) return false;
  PEAL_CHECK(parcel->bytes == message.bytes, "expected ", message.bytes, " bytes from rank ", from,
             ", got ", parcel->bytes);
  if (message.bytes != 0) std::memcpy(message.data, parcel->data, message.bytes);
  if (message.source != nullptr) *message.source = from;
  parcel->taken->store(true, std::memory_order_release);
  box.parcels.erase(parcel);
  return true;
}

bool ThreadsTransport::receive_any(Channel channel, const Message& message,
                                   const std::vector<int>& spoken_for) {
  for (int i = 0; i < world(); ++i) {
    const int from = (next_source_ + i) % world();
    if (from == rank_ || std::find(spoken_for.begin(), spoken_for.end(), from) != spoken_for.end())
      continue;
    if (!receive(channel, from, message)) continue;
    next_source_ = (from + 1) % world();
    return true;
  }
  return false;
}

bool ThreadsTransport::test(Ticket ticket) {
  Posted& posted = posted_.at(ticket);
  if (posted.receives != 0) {
    // A message belongs to the first receive that it fits, in the order of posting: one that waits,
    // of this ticket or of an earlier one, has the right to the next from its peer; and where any
    // peer would do, to whatever comes.
    std::deque<Expected>& queue = expected_.at(posted.channel);
    spoken_for_.clear();
    for (auto next = queue.begin(); next != queue.end() && posted.receives != 0;) {
      const Message& message = next->message;
      const bool own = next->ticket == ticket;
      if (message.peer == any_source) {
        if (!own || !receive_any(posted.channel, message, spoken_for_)) break;
      } else if (std::find(spoken_for_.begin(), spoken_for_.end(), message.peer) !=
                     spoken_for_.end() ||
                 !own || !receive(posted.channel, message.peer, message)) {
        spoken_for_.push_back(message.peer);
        ++next;
        continue;
      }
      next = queue.erase(next);
      --posted.receives;
    }
    if (queue.empty()) expected_.erase(posted.channel);
  }
  std::erase_if(posted.sends,
                [](const Sent& send) { return send.taken->load(std::memory_order_acquire); });
  if (posted.receives != 0 || !posted.sends.empty()) return false;
  posted_.erase(ticket);
  return true;
}

bool ThreadsTransport::cancel(Ticket ticket) {
  const auto found = posted_.find(ticket);
  if (found == posted_.end()) return true;
  for (const Sent& send : found->second.sends) {
    Switchboard::Mailbox& box = switchboard_->mailbox(rank_, send.message.peer);
    std::lock_guard lock(box.mutex);
    std::erase_if(box.parcels, [&](const auto& parcel) { return parcel.taken == send.taken; });
  }
  if (const auto queue = expected_.find(found->second.channel); queue != expected_.end()) {
    std::erase_if(queue->second, [&](const Expected& next) { return next.ticket == ticket; });
    if (queue->second.empty()) expected_.erase(queue);
  }
  posted_.erase(found);
  return true;
}

std::vector<Message> ThreadsTransport::open(Ticket ticket) const {
  const Posted& posted = posted_.at(ticket);
  std::vector<Message> messages;
  if (posted.receives != 0) {
    for (const Expected& next : expected_.at(posted.channel)) {
      if (next.ticket == ticket) messages.push_back(next.message);
    }
  }
  for (const Sent& send : posted.sends) messages.push_back(send.message);
  return messages;
}

}  // namespace peal::comm

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/threads/threads.h>

#include <algorithm>
#include <cstring>

namespace peal::comm {

Switchboard::Switchboard(int world)
    : world_(world),
      mailboxes_(static_cast<std::size_t>(world) * static_cast<std::size_t>(world)) {}

std::shared_ptr<Switchboard> Switchboard::child(std::uint64_t id, int world) {
  std::lock_guard lock(children_mutex_);
  auto& board = children_[id];
  if (!board) board = std::make_shared<Switchboard>(world);
  return board;
}

std::unique_ptr<Transport> ThreadsTransport::subset(const std::vector<int>& ranks,
                                                    std::uint64_t id) {
  const auto place = std::find(ranks.begin(), ranks.end(), rank_);
  return std::make_unique<ThreadsTransport>(board_->child(id, static_cast<int>(ranks.size())),
                                            static_cast<int>(place - ranks.begin()));
}

Ticket ThreadsTransport::post(Channel channel, std::span<const Message> round) {
  Posted posted{channel, {}, {}};
  for (const Message& message : round) {
    if (message.direction == Direction::recv) {
      posted.receives.push_back(message);
      continue;
    }
    auto taken = std::make_shared<std::atomic<bool>>(false);
    Switchboard::Mailbox& box = board_->mailbox(rank_, message.peer);
    std::lock_guard lock(box.mutex);
    box.parcels.push_back({channel, message.data, message.bytes, taken});
    posted.sends.emplace_back(message.peer, std::move(taken));
  }
  posted_.emplace(next_, std::move(posted));
  return next_++;
}

// Copies the oldest parcel of the channel, if there is one. The copy is made under the mailbox's
// lock, so that a cancelled send is never read after cancel() returned.
bool ThreadsTransport::receive(Channel channel, const Message& message) {
  Switchboard::Mailbox& box = board_->mailbox(message.peer, rank_);
  std::lock_guard lock(box.mutex);
  const auto parcel = std::find_if(box.parcels.begin(), box.parcels.end(),
                                   [&](const auto& p) { return p.channel == channel; });
  if (parcel == box.parcels.end()) return false;
  PEAL_CHECK(parcel->bytes == message.bytes, "expected ", message.bytes, " bytes from rank ",
             message.peer, ", got ", parcel->bytes);
  if (message.bytes != 0) std::memcpy(message.data, parcel->data, message.bytes);
  parcel->taken->store(true, std::memory_order_release);
  box.parcels.erase(parcel);
  return true;
}

bool ThreadsTransport::test(Ticket ticket) {
  Posted& posted = posted_.at(ticket);
  // Messages of one direction between two ranks match in order, so a later receive from a peer
  // waits for an earlier one; those of different peers do not.
  std::vector<int> waiting;
  std::erase_if(posted.receives, [&](const Message& message) {
    if (std::find(waiting.begin(), waiting.end(), message.peer) != waiting.end()) return false;
    if (receive(posted.channel, message)) return true;
    waiting.push_back(message.peer);
    return false;
  });
  std::erase_if(posted.sends,
                [](const auto& send) { return send.second->load(std::memory_order_acquire); });
  if (!posted.receives.empty() || !posted.sends.empty()) return false;
  posted_.erase(ticket);
  return true;
}

bool ThreadsTransport::cancel(Ticket ticket) {
  const auto found = posted_.find(ticket);
  if (found == posted_.end()) return true;
  for (const auto& [peer, taken] : found->second.sends) {
    Switchboard::Mailbox& box = board_->mailbox(rank_, peer);
    std::lock_guard lock(box.mutex);
    std::erase_if(box.parcels, [&](const auto& parcel) { return parcel.taken == taken; });
  }
  posted_.erase(found);
  return true;
}

}  // namespace peal::comm

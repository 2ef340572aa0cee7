// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/transport/shm/shm.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace peal::comm {

ShmTransport::ShmTransport(std::shared_ptr<Mailroom> mailroom) : mailroom_(std::move(mailroom)) {
  group_.rank = mailroom_->rank();
  group_.members.resize(static_cast<std::size_t>(mailroom_->world()));
  std::iota(group_.members.begin(), group_.members.end(), 0);
}

ShmTransport::ShmTransport(std::shared_ptr<Mailroom> mailroom, Mailroom::Group group)
    : mailroom_(std::move(mailroom)), group_(std::move(group)) {}

ShmTransport::~ShmTransport() { mailroom_->forget(group_.id); }

std::unique_ptr<Transport> ShmTransport::subset(const std::vector<int>& ranks, std::uint64_t id) {
  const auto place = std::ranges::find(ranks, rank());
  if (place == ranks.end()) return nullptr;
  Mailroom::Group part{.id = id, .rank = static_cast<int>(place - ranks.begin())};
  for (const int rank : ranks) {
    part.members.push_back(group_.members[static_cast<std::size_t>(rank)]);
  }
  return std::unique_ptr<Transport>(new ShmTransport(mailroom_, std::move(part)));
}

Ticket ShmTransport::post(Channel channel, std::span<const Message> round) {
  return mailroom_->post(group_, channel, round);
}

bool ShmTransport::test(Ticket ticket) { return mailroom_->test(ticket); }

bool ShmTransport::cancel(Ticket ticket) {
  mailroom_->cancel(ticket);
  return true;
}

std::vector<Message> ShmTransport::open(Ticket ticket) const {
  return mailroom_->open_messages(ticket);
}

}  // namespace peal::comm

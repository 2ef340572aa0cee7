// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/transport/mail/mail_transport.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

namespace peal::comm {

MailTransport::MailTransport(std::shared_ptr<Mailroom> mailroom, std::string_view name)
    : mailroom_(std::move(mailroom)), name_(name) {
  group_.rank = mailroom_->rank();
  group_.members.resize(static_cast<std::size_t>(mailroom_->world()));
  std::iota(group_.members.begin(), group_.members.end(), 0);
}

MailTransport::MailTransport(std::shared_ptr<Mailroom> mailroom, std::string_view name,
                             MailGroup group)
    : mailroom_(std::move(mailroom)), name_(name), group_(std::move(group)) {}

MailTransport::~MailTransport() { mailroom_->forget(group_.id); }

std::unique_ptr<Transport> MailTransport::subset(const std::vector<int>& ranks, std::uint64_t id) {
  const auto place = std::ranges::find(ranks, rank());
  if (place == ranks.end()) return nullptr;
  MailGroup part{.id = id, .rank = static_cast<int>(place - ranks.begin())};
  for (const int rank : ranks) {
    part.members.push_back(group_.members[static_cast<std::size_t>(rank)]);
  }
  return std::unique_ptr<Transport>(new MailTransport(mailroom_, name_, std::move(part)));
}

Ticket MailTransport::post(Channel channel, std::span<const Message> round) {
  return mailroom_->post(group_, channel, round);
}

bool MailTransport::test(Ticket ticket) { return mailroom_->test(ticket); }

bool MailTransport::cancel(Ticket ticket) {
  mailroom_->cancel(ticket);
  return true;
}

std::vector<Message> MailTransport::open(Ticket ticket) const {
  return mailroom_->open_messages(ticket);
}

void MailTransport::abandon() {
  try {
    hopeless_();
  } catch (const std::exception& error) {
    mailroom_->tell(error.what());
  }
}

}  // namespace peal::comm

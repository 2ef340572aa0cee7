// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/mail/mailroom.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace peal::comm {

Mailroom::Mailroom(int rank, std::vector<std::unique_ptr<Line>> lines, std::function<void()> ask)
    : rank_(rank), lines_(std::move(lines)), ask_(std::move(ask)) {}

Mailroom::~Mailroom() { leave(); }

void Mailroom::leave() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(left_, true)) return;
  constexpr std::chrono::milliseconds longest{200};
  const auto until = std::chrono::steady_clock::now() + longest;
  // All are asked each time, so that none waits for one that waits for another.
  const auto one_goes_on = [&] {
    const auto goes_on = [&](const auto& line) { return !line->leave(*this) || !line->ended(); };
    return std::ranges::count_if(lines_, goes_on) > 0;
  };
  while (one_goes_on() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// What is sent and expected is noted before it is in anybody's reach, so that a post that fails
// half way takes back what it can.
Ticket Mailroom::post(const MailGroup& group, Channel channel, std::span<const Message> round) {
  const std::lock_guard lock(mutex_);
  const Ticket ticket = next_++;
  const Address address(group.id, channel.sequence, channel.signature);
  Posted& posted = posted_[ticket];
  posted.address = address;
  posted.seen = looks_;
  try {
    for (const Message& message : round) {
      if (message.direction == Direction::recv) {
        ++posted.open;
        receive(boxes_[address], {ticket, message, &group});
        continue;
      }
      const int to = group.members[static_cast<std::size_t>(message.peer)];
      Line& line = *lines_[static_cast<std::size_t>(to)];
      line.post({ticket, message, group.id, channel, group.rank});
      ++posted.open;
      line.write(*this);
    }
  } catch (...) {
    withdraw(ticket);
    throw;
  }
  return ticket;
}

bool Mailroom::test(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  const auto found = posted_.find(ticket);
  Posted& posted = found->second;
  if (posted.open > 0 && posted.problem.empty() && posted.seen == looks_) look();
  posted.seen = looks_;
  if (!posted.problem.empty()) fail(posted.problem);
  if (posted.open > 0) {
    if (!trouble_.empty()) fail(trouble_);
    if (lines_are_over_) check_lines(ticket, posted);
    return false;
  }
  posted_.erase(found);
  return true;
}

void Mailroom::check_lines(Ticket ticket, const Posted& posted) const {
  const auto check = [&](const Line& line, const auto& messages) {
    for (const auto& [number, each] : messages) {
      if (each.ticket == ticket && !line.over().empty()) fail(line.over());
    }
  };
  for (const auto& line : lines_) {
    check(*line, line->sends());
    check(*line, line->accepted());
  }
  const auto box = boxes_.find(posted.address);
  if (box == boxes_.end()) return;
  for (const Receive& each : box->second.expected) {
    if (each.ticket != ticket) continue;
    const std::string over = why_none_sends(each);
    if (!over.empty()) fail(over);
  }
}

// Empty: somebody still may. Of any source, that is somebody else: who waits sends itself nothing.
std::string Mailroom::why_none_sends(const Receive& receive) const {
  const auto over = [&](int member) { return lines_[static_cast<std::size_t>(member)]->over(); };
  const auto& members = receive.group->members;
  if (receive.message.peer != any_source) {
    return over(members[static_cast<std::size_t>(receive.message.peer)]);
  }
  std::string last;
  for (const int member : members) {
    if (member == rank_) continue;
    last = over(member);
    if (last.empty()) return {};
  }
  return last.empty() || members.size() == 2 ? last : concat(last, ", as all others have");
}

void Mailroom::cancel(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  withdraw(ticket);
}

// A rank that had accepted a message gets no more of it: its own operation has failed, or will.
void Mailroom::withdraw(Ticket ticket) {
  const auto found = posted_.find(ticket);
  if (found == posted_.end()) return;
  for (const auto& line : lines_) line->withdraw(ticket);
  if (const auto box = boxes_.find(found->second.address); box != boxes_.end()) {
    std::erase_if(box->second.expected, [&](const Receive& r) { return r.ticket == ticket; });
    if (box->second.expected.empty() && box->second.arrived.empty()) boxes_.erase(box);
  }
  posted_.erase(found);
}

std::vector<Message> Mailroom::open_messages(Ticket ticket) const {
  const std::lock_guard lock(mutex_);
  std::vector<Message> messages;
  const auto add = [&](const auto& each) {
    if (each.ticket == ticket) messages.push_back(each.message);
  };
  const auto found = posted_.find(ticket);
  if (found == posted_.end()) return messages;
  if (const auto box = boxes_.find(found->second.address); box != boxes_.end()) {
    for (const Receive& receive : box->second.expected) add(receive);
  }
  for (const auto& line : lines_) {
    for (const auto& [number, receive] : line->accepted()) add(receive);
  }
  for (const auto& line : lines_) {
    for (const auto& [number, send] : line->sends()) add(send);
  }
  return messages;
}

void Mailroom::forget(std::uint64_t group) {
  const std::lock_guard lock(mutex_);
  for (auto box = boxes_.lower_bound({group, 0, 0});
       box != boxes_.end() && std::get<0>(box->first) == group;) {
    for (const Arrived& each : box->second.arrived) drop(each);
    box = boxes_.erase(box);
  }
  forgotten_.insert(group);
}

void Mailroom::tell(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(told_, true)) return;
  for (const auto& line : lines_) {
    line->tell(why);
    line->write(*this);
  }
}

void Mailroom::look() {
  ++looks_;
  if (left_) return;
  if (ask_) ask_();
  for (const auto& line : lines_) line->take_in(*this);
  for (const auto& line : lines_) line->write(*this);
}

void Mailroom::finish(Ticket ticket) { --posted_.at(ticket).open; }

}  // namespace peal::comm

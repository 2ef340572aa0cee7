// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/shm/mailroom.h>

#include <utility>

namespace peal::comm {
namespace {

// Of one ring: what many ranks have together stays small.
constexpr std::size_t largest_ring = std::size_t{64} << 10, smallest_ring = std::size_t{4} << 10,
                      rings_of_a_rank = std::size_t{512} << 10;

std::size_t ring_for(int world) {
  std::size_t ring = largest_ring;
  while (ring > smallest_ring && ring * static_cast<std::size_t>(world) > rings_of_a_rank) {
    ring /= 2;
  }
  return ring;
}

}  // namespace

std::shared_ptr<Mailroom> Mailroom::open(Rendezvous& ranks) {
  const auto world = static_cast<std::size_t>(ranks.world());
  const std::size_t ring = ring_for(ranks.world());
  auto segment = SharedSegment::create(ranks, world * world * bytes_of_ring(ring), "messages");
  return std::shared_ptr<Mailroom>(
      new Mailroom(std::move(segment), ranks.rank(), ranks.world(), ring));
}

Mailroom::Mailroom(std::shared_ptr<SharedSegment> segment, int rank, int world, std::size_t ring)
    : segment_(std::move(segment)), rank_(rank), ring_(ring) {
  const auto at = [&](int from, int to) {
    return segment_->data() + static_cast<std::size_t>(from * world + to) * bytes_of_ring(ring);
  };
  for (int peer = 0; peer < world; ++peer) {
    lines_.push_back({RingWriter(at(rank, peer), ring), RingReader(at(peer, rank), ring)});
  }
}

// What is sent and expected is noted before it is in anybody's reach, so that a post that fails
// half way takes back what it can.
Ticket Mailroom::post(const Group& group, Channel channel, std::span<const Message> round) {
  const std::lock_guard lock(mutex_);
  const Ticket ticket = next_++;
  const Address address(group.id, channel.sequence, channel.signature);
  Posted& posted = posted_[ticket];
  posted.address = address;
  try {
    for (const Message& message : round) {
      if (message.direction == Direction::recv) {
        ++posted.open;
        receive(boxes_[address], {ticket, message});
        continue;
      }
      const int to = group.members[static_cast<std::size_t>(message.peer)];
      Line& line = lines_[static_cast<std::size_t>(to)];
      const std::uint64_t number = line.numbers++;
      line.waiting.push_back({Outgoing::What::message, number});
      line.sends.emplace(number, Send{ticket, message, group.id, channel, group.rank});
      ++posted.open;
      write(line);
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
  if (found->second.open > 0 && found->second.problem.empty()) look();
  if (!found->second.problem.empty()) fail(found->second.problem);
  if (found->second.open > 0) return false;
  posted_.erase(found);
  return true;
}

void Mailroom::cancel(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  withdraw(ticket);
}

// A rank that had accepted a message gets no more of it: its own operation has failed, or will.
void Mailroom::withdraw(Ticket ticket) {
  const auto found = posted_.find(ticket);
  if (found == posted_.end()) return;
  const auto ours = [&](const auto& each) { return each.second.ticket == ticket; };
  for (Line& line : lines_) {
    std::erase_if(line.sends, ours);
    std::erase_if(line.accepted, ours);
  }
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
  for (const Line& line : lines_) {
    for (const auto& [number, receive] : line.accepted) add(receive);
  }
  for (const Line& line : lines_) {
    for (const auto& [number, send] : line.sends) add(send);
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
}

void Mailroom::look() {
  for (Line& line : lines_) take_in(line);
  for (Line& line : lines_) write(line);
}

void Mailroom::finish(Ticket ticket) { --posted_.at(ticket).open; }

}  // namespace peal::comm

// SPDX-License-Identifier: Apache-2.0
// Which receive a message meets.
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/mail/mailroom.h>

#include <algorithm>
#include <utility>

namespace peal::comm {
namespace {

bool fits(const Receive& receive, int from) {
  return receive.message.peer == any_source || receive.message.peer == from;
}

}  // namespace

// A receive and what it gets. True where the bytes of a whole message are to be copied.
bool Mailroom::meet(const Receive& receive, const Arrived& arrived) {
  Posted& posted = posted_.at(receive.ticket);
  const auto& members = receive.group->members;
  const auto from = static_cast<std::size_t>(arrived.from);
  if (from >= members.size() || members[from] != arrived.line) {
    posted.problem = concat("rank ", arrived.line, " of the job sent a message as if it were rank ",
                            arrived.from, " of the group");
    return false;
  }
  if (arrived.bytes != receive.message.bytes) {
    posted.problem = concat("expected ", receive.message.bytes, " bytes from rank ", arrived.from,
                            ", got ", arrived.bytes);
    return false;
  }
  if (receive.message.source != nullptr) *receive.message.source = arrived.from;
  // Of nothing no part will come.
  if (arrived.whole || arrived.bytes == 0) finish(receive.ticket);
  if (!arrived.whole) {
    lines_[static_cast<std::size_t>(arrived.line)]->accept(arrived.number, receive);
  }
  return arrived.whole;
}

void Mailroom::drop(const Arrived& arrived) {
  if (arrived.whole) lines_[static_cast<std::size_t>(arrived.line)]->add_met(arrived.bytes);
}

// A new receive gets the first of what has come that it fits; REQUIRES: earlier ones fit none.
void Mailroom::receive(Box& box, const Receive& receive) {
  const auto found = std::ranges::find_if(
      box.arrived, [&](const Arrived& each) { return fits(receive, each.from); });
  if (found == box.arrived.end()) {
    box.expected.push_back(receive);
    return;
  }
  if (meet(receive, *found)) std::ranges::copy(found->content, receive.message.data);
  drop(*found);
  const Address address = posted_.at(receive.ticket).address;
  box.arrived.erase(found);
  if (box.expected.empty() && box.arrived.empty()) boxes_.erase(address);
}

std::byte* Mailroom::arrive(int line, const Parcel& parcel) {
  Arrived arrived{.from = parcel.from,
                  .line = line,
                  .number = parcel.number,
                  .bytes = static_cast<std::size_t>(parcel.bytes),
                  .whole = parcel.kind == Parcel::Kind::whole};
  const Address address(parcel.group, parcel.channel.sequence, parcel.channel.signature);
  if (forgotten_.contains(parcel.group)) {
    drop(arrived);
    return nullptr;
  }
  const auto box = boxes_.try_emplace(address).first;
  auto& expected = box->second.expected;
  const auto found =
      std::ranges::find_if(expected, [&](const Receive& each) { return fits(each, parcel.from); });
  if (found == expected.end()) {
    arrived.content.resize(parcel.content());
    return box->second.arrived.emplace_back(std::move(arrived)).content.data();
  }
  const Receive receive = *found;
  expected.erase(found);
  if (expected.empty() && box->second.arrived.empty()) boxes_.erase(box);
  const bool copied = meet(receive, arrived);
  drop(arrived);
  return copied ? receive.message.data : nullptr;
}

}  // namespace peal::comm

// SPDX-License-Identifier: Apache-2.0
// What a mailroom takes in.
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/shm/parcel.h>

#include <algorithm>

namespace peal::comm {

bool Mailroom::meet(const Receive& receive, int from, int line, std::uint64_t number,
                    std::size_t bytes, bool whole) {
  Posted& posted = posted_.at(receive.ticket);
  if (bytes != receive.message.bytes) {
    posted.problem =
        concat("expected ", receive.message.bytes, " bytes from rank ", from, ", got ", bytes);
    return false;
  }
  if (receive.message.source != nullptr) *receive.message.source = from;
  if (whole) {
    finish(receive.ticket);
    return true;
  }
  Line& sender = lines_[static_cast<std::size_t>(line)];
  if (bytes == 0) {  // no part will come
    finish(receive.ticket);
  } else {
    sender.accepted.emplace(number, receive);
  }
  sender.waiting.push_back({Outgoing::What::answer, number});
  return false;
}

void Mailroom::drop(const Arrived& arrived) {
  if (!arrived.whole) return;
  const Parcel parcel{.bytes = arrived.bytes, .kind = Parcel::Kind::whole};
  lines_[static_cast<std::size_t>(arrived.line)].in.add_met(parcel.record());
}

// A new receive gets the first of what has come that it fits; REQUIRES: earlier ones fit none.
void Mailroom::receive(Box& box, const Receive& receive) {
  const auto fits = [&](const Arrived& each) {
    return receive.message.peer == any_source || receive.message.peer == each.from;
  };
  const auto found = std::ranges::find_if(box.arrived, fits);
  if (found == box.arrived.end()) {
    box.expected.push_back(receive);
    return;
  }
  if (meet(receive, found->from, found->line, found->number, found->bytes, found->whole)) {
    std::ranges::copy(found->content, receive.message.data);
  }
  drop(*found);
  const Address address = posted_.at(receive.ticket).address;
  box.arrived.erase(found);
  if (box.expected.empty() && box.arrived.empty()) boxes_.erase(address);
}

void Mailroom::arrive(Line& line, const Parcel& parcel) {
  const bool whole = parcel.kind == Parcel::Kind::whole;
  const Address address(parcel.group, parcel.channel.sequence, parcel.channel.signature);
  const auto box = boxes_.try_emplace(address).first;
  const auto fits = [&](const Receive& each) {
    return each.message.peer == any_source || each.message.peer == parcel.from;
  };
  auto& expected = box->second.expected;
  const auto found = std::ranges::find_if(expected, fits);
  if (found == expected.end()) {
    Arrived& kept = box->second.arrived.emplace_back(
        Arrived{parcel.from, line_of(line), parcel.number, parcel.bytes, whole});
    kept.content.resize(parcel.content());
    line.in.read(kept.content.data(), kept.content.size());
    return;
  }
  const Receive receive = *found;
  expected.erase(found);
  if (expected.empty() && box->second.arrived.empty()) boxes_.erase(box);
  const bool copied = meet(receive, parcel.from, line_of(line), parcel.number, parcel.bytes, whole);
  line.in.read(copied ? receive.message.data : nullptr, parcel.content());
  if (whole) line.in.add_met(parcel.record());
}

void Mailroom::take_in(Line& line) {
  while (line.in.any()) {
    Parcel parcel;
    line.in.read(&parcel, sizeof parcel);
    switch (parcel.kind) {
      case Parcel::Kind::whole:
      case Parcel::Kind::offer:
        arrive(line, parcel);
        break;
      case Parcel::Kind::accept:
        line.waiting.push_back({Outgoing::What::parts, parcel.number});
        break;
      case Parcel::Kind::part: {
        const auto found = line.accepted.find(parcel.number);
        if (found == line.accepted.end()) {  // given up
          line.in.read(nullptr, parcel.content());
          break;
        }
        Receive& receive = found->second;
        line.in.read(receive.message.data + receive.done, parcel.content());
        receive.done += parcel.content();
        if (receive.done < receive.message.bytes) break;
        finish(receive.ticket);
        line.accepted.erase(found);
      }
    }
    line.in.read(nullptr, parcel.record() - sizeof parcel - parcel.content());
    line.in.release();
  }
}

}  // namespace peal::comm

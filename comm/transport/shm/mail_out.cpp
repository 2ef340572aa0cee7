// SPDX-License-Identifier: Apache-2.0
// What a mailroom sends.
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/shm/parcel.h>

#include <algorithm>

namespace peal::comm {

void Mailroom::write(Line& line) {
  while (!line.waiting.empty()) {
    const auto [what, number] = line.waiting.front();
    bool written = false;
    switch (what) {
      case Outgoing::What::message:
        written = write_message(line, number);
        break;
      case Outgoing::What::parts:
        written = write_parts(line, number);
        break;
      case Outgoing::What::answer: {
        const Parcel parcel{.number = number, .kind = Parcel::Kind::accept};
        written = line.out.fits(parcel.record());
        if (written) parcel.write(line.out, nullptr);
      }
    }
    if (!written) return;
    line.waiting.pop_front();
  }
}

bool Mailroom::write_message(Line& line, std::uint64_t number) {
  const auto found = line.sends.find(number);
  if (found == line.sends.end()) return true;  // given up
  const Send& send = found->second;
  Parcel parcel{.group = send.group,
                .channel = send.channel,
                .number = number,
                .bytes = send.message.bytes,
                .from = send.from,
                .kind = Parcel::Kind::whole};
  const std::uint64_t unmet = line.sent_whole - line.out.met();
  const bool whole = parcel.record() <= ring_ / 4 && unmet + parcel.record() <= 4 * ring_;
  if (!whole) parcel.kind = Parcel::Kind::offer;
  if (!line.out.fits(parcel.record())) return false;
  parcel.write(line.out, send.message.data);
  if (!whole) return true;
  line.sent_whole += parcel.record();
  finish(send.ticket);
  line.sends.erase(found);
  return true;
}

// As much as there is room for; true where that was the last.
bool Mailroom::write_parts(Line& line, std::uint64_t number) {
  const auto found = line.sends.find(number);
  if (found == line.sends.end()) return true;  // given up
  Send& send = found->second;
  while (send.done < send.message.bytes) {
    const Parcel parcel{
        .number = number,
        .bytes = std::min(ring_ / 4 - sizeof(Parcel), send.message.bytes - send.done),
        .kind = Parcel::Kind::part};
    if (!line.out.fits(parcel.record())) return false;
    parcel.write(line.out, send.message.data + send.done);
    send.done += parcel.content();
  }
  finish(send.ticket);
  line.sends.erase(found);
  return true;
}

}  // namespace peal::comm

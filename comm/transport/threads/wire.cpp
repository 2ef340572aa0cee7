// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/schedule/mix.h>
#include <peal/comm/transport/threads/wire.h>

#include <cmath>
#include <string_view>

namespace peal::comm {
namespace {

// In [0, 1): the question-th draw about the transfer.
double draw(const Wire& wire, const Transfer& transfer, std::uint64_t question) {
  std::uint64_t hash = wire.seed;
  for (const std::uint64_t word :
       {transfer.group, transfer.channel.sequence, transfer.channel.signature,
        static_cast<std::uint64_t>(transfer.from), static_cast<std::uint64_t>(transfer.to),
        static_cast<std::uint64_t>(transfer.in_channel), question}) {
    mix(hash, word);
  }
  return static_cast<double>(hash >> 11) * 0x1p-53;
}

bool fits(int rule, int rank) { return rule == Wire::any || rule == rank; }

void check_seconds(double seconds, std::string_view what) {
  PEAL_CHECK(seconds >= 0 && seconds <= 1e6, "wire: ", what, " is in seconds, 0 to 1e6, got ",
             seconds);
}

void check_rate(double rate, std::string_view what) {
  PEAL_CHECK(rate >= 1, "wire: ", what, " is in bytes a second, at least 1, got ", rate);
}

void check_rank(int rank, int world, std::string_view what) {
  PEAL_CHECK(rank == Wire::any || (rank >= 0 && rank < world), "wire: ", what, " is a rank below ",
             world, ", or Wire::any, got ", rank);
}

}  // namespace

void check(const Wire& wire, int world) {
  check_seconds(wire.latency, "latency");
  check_seconds(wire.jitter, "jitter");
  check_rate(wire.bandwidth, "bandwidth");
  check_rate(wire.port, "port");
  for (const Wire::Link& link : wire.links) {
    check_rank(link.from, world, "a link's from");
    check_rank(link.to, world, "a link's to");
    check_seconds(link.latency, "a link's latency");
    check_rate(link.bandwidth, "a link's bandwidth");
  }
  for (const Wire::Fault& fault : wire.faults) {
    check_rank(fault.from, world, "a fault's from");
    check_rank(fault.to, world, "a fault's to");
    check_seconds(fault.delay, "a fault's delay");
    PEAL_CHECK(fault.nth >= Wire::every, "wire: a fault's nth counts from 0, got ", fault.nth);
    PEAL_CHECK(fault.share >= 0 && fault.share <= 1, "wire: a fault's share is 0 to 1, got ",
               fault.share);
  }
}

Fate fate(const Wire& wire, const Transfer& transfer) {
  double latency = wire.latency, bandwidth = wire.bandwidth;
  for (const Wire::Link& link : wire.links) {
    if (!fits(link.from, transfer.from) || !fits(link.to, transfer.to)) continue;
    latency = link.latency;
    bandwidth = link.bandwidth;
  }
  const auto bytes = static_cast<double>(transfer.bytes);
  Fate fate{.link = bytes / bandwidth, .port = bytes / wire.port, .late = latency};
  std::uint64_t question = 0;
  fate.late += wire.jitter * draw(wire, transfer, question);
  for (const Wire::Fault& fault : wire.faults) {
    ++question;  // so that one rule's draws do not depend on another's
    if (!fits(fault.from, transfer.from) || !fits(fault.to, transfer.to)) continue;
    if (fault.nth != Wire::every && fault.nth != transfer.on_link) continue;
    if (draw(wire, transfer, question) >= fault.share) continue;
    fate.late += fault.delay;
    fate.dropped = fate.dropped || fault.drop;
  }
  return fate;
}

}  // namespace peal::comm

// SPDX-License-Identifier: Apache-2.0
#pragma once

// How long a schedule takes on a machine that one can describe in ten numbers, or by measurements.
//
// Model. A message takes latency + gap + rate of its bytes. It starts when both sides are in their
// rounds (rendezvous), the sender has a free port out, the receiver a free port in, and the shared
// wire has room; among messages that could start, the one ready first does. But for the latency, it
// occupies both ports all the time. Inside a node the shared wire is the memory bus, between
// nodes the sending and the receiving node's adapter: each passes one message at a time, at a rate
// of its own, so that many slow ranks fill it together. A rank's copies and reductions run one
// after the other, beside its messages. A round ends with the last of its steps.
//
// On a machine without sharing, jitter and stragglers, a program whose ranks keep in step and send
// one message a round takes what Cost says: rounds * (latency + gap) + rate of what is sent +
// reduce of what is added.
//
// Size. Programs are made one rank at a time and kept as lists of round shapes, in which peers are
// distances; equal ones are kept once. So 4096 ranks of a ring, 67 million steps, fit in a few
// megabytes.
//
// Thread safety: a pure function. Equal arguments give equal times on every machine but for the
// last bits of a logarithm.

#include <peal/comm/draw/timeline.h>
#include <peal/comm/schedule/schedule.h>
#include <peal/comm/simulate/rate.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace peal::comm {

struct Link {
  double latency = 0;  // seconds
  Rate rate = 0;       // what its bytes take
  double gap = 0;      // seconds that a message occupies the ports, however small it is
};

struct Straggler {
  int rank = 0;
  double late = 0;      // seconds after the others
  double slowdown = 1;  // its messages and its arithmetic take this many times as long
};

struct Machine {
  Topology nodes;             // of as many ranks as the world has
  Link inside, between;       // what one message alone gets, within a node and between two
  int ports = 1;              // messages that a rank can send at a time, and as many receive
  Rate bus = 0;               // on the wire that a node's ranks share inside; 0: no limit
  Rate adapter = 0;           // the same for what leaves a node, and for what comes in
  Rate reduce = 0, copy = 0;  // a rank's own arithmetic
  double start = 0;           // seconds that a rank needs before its first round
  std::vector<Straggler> stragglers;
  // A message's latency is multiplied by 1 + jitter * e, with e exponentially distributed, mean 1.
  double jitter = 0;
  std::uint64_t seed = 1;
};

struct Simulation {
  std::vector<double> finish;  // seconds, by rank
  double seconds = 0;          // the last of them
  std::int64_t messages = 0;
  double bytes_inside = 0, bytes_between = 0;
  Timeline timeline;  // if asked for
};

enum class Record : std::uint8_t { nothing, timeline };

// program_of(r) is asked once for every rank. Throws std::invalid_argument if messages do not meet
// (verify() says more), or the machine is of another number of ranks.
Simulation simulate(int world, const std::function<Program(int)>& program_of, int bytes_per_element,
                    const Machine& machine, Record record = Record::nothing);

}  // namespace peal::comm

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Collective times: what a group's collectives take by the algorithms that there are, in memory of
// allocate() and in other memory.
//
// Calls are timed a few at a time, each on memory that its rank has just written, as data has that
// was just computed; in turns, so that what drifts meets all alike; and of each the lower quartile
// counts, for whatever disturbs a call makes it longer. What is far behind after the first turn is
// left out. Thread safety: one thread a rank; all is collective, and the same on all ranks.

#include <peal/comm/group/process_group.h>
#include <peal/launch/tools/schedule/quickest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace peal::launch {

struct TimingOptions {
  std::vector<std::int64_t> bytes;  // ascending
  int turns = 7;
  bool native = false;  // the transport's own as well
};

struct CollectiveTimes {
  comm::Collective what;
  std::vector<std::string> algorithms;  // with chunks: "direct_slices/65536"
  std::vector<TimesAt> sizes;           // kinds of memory: allocate()'s, and other
};

class CollectiveTimer {
 public:
  CollectiveTimer(const comm::ProcessGroup& group, const TimingOptions& options);
  CollectiveTimes measure(comm::Collective what);

 private:
  struct Run;
  bool call(const Run& run, std::int64_t place);
  double sample(const Run& run, std::int64_t calls);
  void turn(Run& run, double seconds);
  TimesAt measure(comm::Collective what, const std::vector<std::string>& algorithms,
                  std::int64_t bytes);

  const comm::ProcessGroup& group_;
  const TimingOptions& options_;
  Tensor in_[2], out_[2];  // by kind of memory
};

// Those that may be worth a try, whatever the number of ranks.
std::vector<std::string> algorithms_to_try(comm::Collective what, bool native);
bool is_one_sided(comm::Collective what, std::string_view algorithm);
// As if those that are one-sided did not serve, or the others.
TimesAt without(TimesAt times, const std::vector<std::string>& algorithms, comm::Collective what,
                bool one_sided);

}  // namespace peal::launch

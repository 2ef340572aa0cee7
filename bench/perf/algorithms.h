// SPDX-License-Identifier: Apache-2.0
// Algorithms: which ones can do a test, a call by one of them, and what the model of the machine
// says that it takes. Thread safety: one thread.
#pragma once

#include <peal/bench/perf/measure.h>
#include <peal/comm/simulate/simulate.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace peal::bench {

// The names of all that there are for the operation, `native` last: the transport's own, where it
// has one.
std::vector<std::string> algorithm_names(const Operation& operation);

// A call by that algorithm, or, for an empty name, as the group chooses.
Caller caller(const comm::ProcessGroup& group, const Case& test, const std::string& algorithm);
// Makes a call: the name of the algorithm that ran it, `none` where there was nothing to do. Empty
// where the one that is named does not serve the test, or this group. Collective.
std::string algorithm_of(const comm::ProcessGroup& group, const Case& test,
                         const std::string& algorithm, Buffers& buffers);

// The machine's model: measured when it is made, or from a file (bench/calibrate). Collective.
class Model {
 public:
  Model(const comm::ProcessGroup& group, const std::string& file, std::int64_t most_bytes);
  // Seconds of a call by the algorithm; nothing where it has no schedule.
  std::optional<double> seconds(const Case& test, const std::string& algorithm) const;

 private:
  const comm::ProcessGroup& group_;
  comm::Machine machine_;
};

// What the rank that does most of each does in a call: rounds, elements sent and reduced. Sent,
// too, is what a rank reads from others' memory or writes there. Nothing where there is no
// schedule.
std::optional<comm::Cost> cost_of(const comm::ProcessGroup& group, const Case& test,
                                  const std::string& algorithm);

}  // namespace peal::bench

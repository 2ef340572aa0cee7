// SPDX-License-Identifier: Apache-2.0
// Sweep: all the tests of a program, over types, reductions, roots and sizes, and its reports.
// Thread safety: the main thread.
#pragma once

#include <peal/bench/perf/algorithms.h>
#include <peal/bench/perf/memory_bandwidth.h>
#include <peal/bench/perf/report.h>
#include <peal/bench/perf/report_json.h>
#include <peal/comm/simulate/calibration.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace peal::bench {

class Sweep {
 public:
  // Collective.
  Sweep(const Operation& operation, const Options& options, launch::Job& job);
  Summary run();

 private:
  // What a test is run by: the group's own choice, or the plan of an algorithm.
  struct Way {
    std::string algorithm;
    bool chosen;
  };

  Case test_of(const TypeName& type, const OpName& op, int root, std::int64_t size,
               bool in_place) const;
  std::vector<Way> ways(const Case& test);
  std::vector<Half> measured(const Case& test, const std::vector<Way>& ways, bool in_place);
  void series(const TypeName& type, const OpName& op, int root);
  void size(const TypeName& type, const OpName& op, int root, std::int64_t bytes);
  void add_further(Row& row, const Case& test);
  // Bytes that the process has had at most, of the device's.
  std::int64_t memory_now() const;
  MemoryUse memory_use() const;
  void print_end(const MemoryUse& memory);

  const Operation& operation_;
  const Options& options_;
  const comm::ProcessGroup& group_;
  bool main_;
  Device device_;
  std::int64_t memory_before_;
  Buffers buffers_;
  std::int64_t memory_with_buffers_;
  MemoryBandwidth memory_;
  std::optional<Model> model_;
  std::unique_ptr<JsonReport> json_;  // rank 0's
  Summary summary_;
  int halves_ = 0;
  std::vector<Row> rows_;              // where somebody wants them at the end
  std::vector<comm::Measured> terms_;  // of them
};

}  // namespace peal::bench

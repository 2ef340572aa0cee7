// SPDX-License-Identifier: Apache-2.0
// Options: the command line of the programs. Letters, long names and defaults are those of
// nccl-tests 2.19, all of them; what has no meaning for ranks that are processes is accepted, and
// said. Another word is a mistake, which ends the program with 6. Thread safety: one thread.
#pragma once

#include <peal/autograd/core/dtype.h>
#include <peal/bench/perf/operation.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace peal::bench {

// When buffers are given fresh values.
enum class Rewrite : std::uint8_t {
  when_used_up,  // all places at once, as soon as each has had its call
  every_call,    // right before each call, which follows a barrier
  never          // as nccl-tests
};

struct Options {
  std::string program;  // the command's last name
  std::vector<std::string> words;
  // As nccl-tests.
  std::int64_t first = 32 << 20, last = 32 << 20, step = 1 << 20, factor = 1;  // -b -e -i -f
  int iterations = 20, together = 1, warm_up = 1, cycles = 1;                  // -n -m -w -N
  int check = 1, root = 0, blocking = 0, average = 1, registered = 0;          // -c -r -z -a -R
  int timeout = 0, graphs = 0, unaligned = 0;                                  // -T -G -u
  int threads = 1, gpus = 1;                                                   // -t -g
  bool cpu_time = false, timestamps = false, memory = false;                   // -C -S -M
  bool each_iteration = false;                                                 // -I
  int skipped = 0;                                                             // -K
  std::string type = "float", op = "sum", json;                                // -d -o -J
  // peal's own.
  std::string device = "cpu", algorithm, plot, machine;
  Rewrite rewrite = Rewrite::when_used_up;
  bool columns = false, fit = false;

  std::vector<std::string> without_meaning;  // what was asked for, and why nothing comes of it

  std::vector<std::int64_t> sizes() const;
  bool all_algorithms() const { return algorithm == "all"; }
  // Iterations are timed one by one as well.
  bool times_each() const { return each_iteration || columns || !json.empty(); }
  // What is beyond nccl-tests' table is wanted.
  bool further() const { return columns || !json.empty() || fit || !plot.empty(); }
};

inline constexpr int usage_error = 6, wrong_values = 7;

// Prints a mistake and returns the status for it.
int refuse(const std::string& program, const std::string& what);

// Reads the words into `options`. Nothing, or the status to end with.
std::optional<int> parse(const Operation& operation, int argc, char** argv, Options& options);

// "8", "64K", "1.5M", "64KiB": K, M and G are powers of 1024. Nothing for other words.
std::optional<std::int64_t> parse_bytes(std::string_view text);

// What types and reductions are called on the command line and in the table, in nccl-tests' order.
struct TypeName {
  std::string_view name;
  DType dtype;
};
struct OpName {
  std::string_view name;
  comm::ReduceOp op;
};
std::vector<TypeName> types(const std::string& wanted);
std::vector<OpName> ops(const std::string& wanted);

}  // namespace peal::bench

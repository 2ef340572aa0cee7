// SPDX-License-Identifier: Apache-2.0
#include "mismatch_cases.h"

#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/tensor.h>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <peal/tests/errors.h>
#include <chrono>
#include <thread>
#include <utility>

namespace peal::comm::testing {
namespace {

using peal::testing::check_has;

Tensor some(std::int64_t count, Device device, DType dtype = DType::f32) {
  return Tensor::zeros({count}, dtype, device);
}

// What differs may end on some ranks before they have met; the next call never does.
void end(const ProcessGroup& group, const Work& work) {
  work.synchronize();
  group.barrier().synchronize();
}

const Mismatch all[] = {
    {"operation",
     {"all_reduce #", "reduce_scatter #"},
     [](const ProcessGroup& group, bool last, Device device) {
       const Tensor out = some(4, device), in = some(12, device);
       end(group, last ? group.reduce_scatter(out, in) : group.all_reduce(in));
     }},
    {"type",
     {"(sum of 16 f32)", "(sum of 16 f64)"},
     [](const ProcessGroup& group, bool last, Device device) {
       end(group, group.all_reduce(some(16, device, last ? DType::f64 : DType::f32)));
     }},
    {"count",
     {"(sum of 256 f32)", "(sum of 255 f32)"},
     [](const ProcessGroup& group, bool last, Device device) {
       end(group, group.all_reduce(some(last ? 255 : 256, device)));
     }},
    {"counts of one sum",
     {"(6 f32 in parts of 1 3 2)", "(6 f32 in parts of 3 1 2)"},
     [](const ProcessGroup& group, bool last, Device device) {
       const std::vector<std::int64_t> counts =
           last ? std::vector<std::int64_t>{3, 1, 2} : std::vector<std::int64_t>{1, 3, 2};
       const auto mine = counts[static_cast<std::size_t>(group.rank())];
       end(group, group.all_gather_v(some(6, device), some(mine, device), counts));
     }},
    {"reduction",
     {"(sum of 16 f32)", "(max of 16 f32)"},
     [](const ProcessGroup& group, bool last, Device device) {
       end(group, group.all_reduce(some(16, device), last ? ReduceOp::max : ReduceOp::sum));
     }},
    {"root",
     {"(16 f32, root 1)", "(16 f32, root 2)"},
     [](const ProcessGroup& group, bool last, Device device) {
       end(group, group.broadcast(some(16, device), last ? 2 : 1));
     }},
    {"order",
     {"all_reduce #", "broadcast #"},
     [](const ProcessGroup& group, bool last, Device device) {
       const Tensor sum = some(16, device), data = some(16, device);
       Work first = last ? group.broadcast(data) : group.all_reduce(sum);
       first.synchronize();
       end(group, last ? group.all_reduce(sum) : group.broadcast(data));
     }},
    {"group",
     {"(sum of 16 f32) of the world", "(sum of 16 f32) of the group of ranks 0, 1, 2"},
     [](const ProcessGroup& group, bool last, Device device) {
       const ProcessGroup part = group.split(0);
       end(last ? part : group, (last ? part : group).all_reduce(some(16, device)));
     }},
    {"missing call",
     {"all_reduce #", "broadcast #"},
     [](const ProcessGroup& group, bool last, Device device) {
       group.all_reduce(some(16, device)).synchronize();
       if (!last) group.all_reduce(some(16, device)).synchronize();
       end(group, group.broadcast(some(5, device)));
     }},
    {"call too many",
     {"barrier #", "all_reduce #"},
     [](const ProcessGroup& group, bool last, Device device) {
       group.all_reduce(some(16, device)).synchronize();
       if (last) group.all_reduce(some(16, device)).synchronize();
       group.barrier().synchronize();
     }},
};

}  // namespace

std::span<const Mismatch> mismatches() { return all; }

Told run_mismatch(const Mismatch& mismatch, const ProcessGroup& group, Device device) {
  const auto start = std::chrono::steady_clock::now();
  std::string error =
      peal::testing::error_of([&] { mismatch.run(group, group.rank() == 2, device); });
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  return {std::move(error), time.count()};
}

void print_mismatch(std::string_view transport, const Mismatch& mismatch, const Told& told) {
  MESSAGE(transport << ", " << mismatch.what << ", " << fmt::format("{:.1f} s: ", told.seconds)
                    << told.error);
}

void check_mismatch(const Mismatch& mismatch, const std::string& error) {
  CAPTURE(mismatch.what);
  for (const std::string_view call : mismatch.calls) check_has(error, std::string(call));
  check_has(error, "rank 2 ");
  CAPTURE(error);
  CHECK((peal::testing::contains(error, "rank 0 ") || peal::testing::contains(error, "rank 1 ")));
  check_has(error, "must make the same calls");
}

void check_mismatches(std::string_view transport, const ThreeRanks& three_ranks) {
  std::vector<std::vector<std::string>> errors(std::size(all));
  std::vector<double> seconds(std::size(all));
  std::vector<std::thread> runs;
  for (std::size_t i = 0; i < std::size(all); ++i) {
    runs.emplace_back([&, i] {
      errors[i] = three_ranks([&, i](const ProcessGroup& group) {
        const Told told = run_mismatch(all[i], group, context().device);
        if (group.rank() == 0) seconds[i] = told.seconds;
        throw Error(told.error);
      });
    });
  }
  for (std::thread& run : runs) run.join();
  for (std::size_t i = 0; i < std::size(all); ++i) {
    CAPTURE(transport);
    print_mismatch(transport, all[i], {errors[i].at(0), seconds[i]});
    for (const std::string& error : errors[i]) check_mismatch(all[i], error);
  }
}

}  // namespace peal::comm::testing

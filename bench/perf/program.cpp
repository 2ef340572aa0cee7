// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/bench/perf/program.h>
#include <peal/bench/perf/report.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace peal::bench {
namespace {

// A launcher that speaks of several ranks where MPI, or none, found one alone: each process would
// measure itself, and all would print a table. Nothing, or what to do.
std::string lonely() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS",
                           "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "WORLD_SIZE"}) {
    const char* text = std::getenv(name);
    if (text == nullptr || std::atoi(text) < 2) continue;
    return concat("the launcher says that there are ", text, " ranks (", name,
                  "), but this process is alone in its world: start with the mpirun of the MPI "
                  "that it was built with, `mpirun -n ",
                  text, " PROGRAM ...`, or unset ", name, " to measure one rank");
  }
  return "";
}

// Runs all tests, and keeps what they came to.
class Sweep {
 public:
  Sweep(const Operation& operation, const Options& options, launch::Job& job)
      : operation_(operation),
        options_(options),
        group_(job.group()),
        main_(job.is_main()),
        device_(job.device(options.device)),
        buffers_(group_, device_, options.last, options.unaligned, options.registered > 0) {
    const auto ranks = rank_lines(job, device_);
    if (main_) print_head(options_, ranks);
  }

  Summary run() {
    const bool all_roots = operation_.rooted && options_.root == -1;
    const int first = !operation_.rooted ? -1 : all_roots ? 0 : options_.root;
    const int last = all_roots ? group_.world() - 1 : first;
    // Sends have a reduction in the table, as in nccl-tests', and do not reduce.
    const bool named = operation_.reduces || !operation_.what;
    const std::vector<OpName> none{{"none", comm::ReduceOp::sum}};
    for (const TypeName& type : types(options_.type)) {
      for (const OpName& op : named ? ops(options_.op) : none) {
        for (int root = first; root <= last; ++root) series(type, op, root);
      }
    }
    if (halves_ > 0) summary_.rate /= halves_;
    const char* least = std::getenv("NCCL_TESTS_MIN_BW");
    if (least != nullptr) summary_.least_rate = std::atof(least);
    if (main_) print_foot(options_, summary_);
    return summary_;
  }

 private:
  Case test_of(const TypeName& type, const OpName& op, int root, std::int64_t size,
               bool in_place) const {
    const auto element = static_cast<std::int64_t>(size_of(type.dtype));
    return {&operation_,
            type.dtype,
            operation_.reduces ? op.op : comm::ReduceOp::sum,
            std::max(root, 0),
            operation_.layout(size / element, element, group_.world()),
            in_place && operation_.has_in_place};
  }

  Measurement measurement(const Case& test) {
    return Measurement(
        group_, options_, buffers_, test,
        [this, test](const Place& place) {
          return start(group_, operation_, place, test.in_place, test.op, test.root);
        },
        options_.each_iteration);
  }

  Half measured(const Case& test, bool in_place) {
    Measurement of = measurement(test);
    of.warm_up(1);
    of.run(options_.iterations);
    Half half{of.result(), 0, 0};
    if (in_place && !operation_.has_in_place) half.result.checked = false;
    half.algorithm_rate = static_cast<double>(test.bytes()) / 1e9 / half.result.seconds;
    half.bus_rate = half.algorithm_rate * operation_.bus_factor(group_.world());
    summary_.rate += half.bus_rate;
    ++halves_;
    summary_.bad += half.result.bad_ranks;
    return half;
  }

  // All sizes.
  void series(const TypeName& type, const OpName& op, int root) {
    const auto sizes = options_.sizes();
    for (const std::int64_t size : sizes) {
      measurement(test_of(type, op, root, size, false)).warm_up(options_.warm_up);
    }
    for (int cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle) {
      for (const std::int64_t size : sizes) {
        const Case apart = test_of(type, op, root, size, false);
        Row row{apart.bytes(), apart.layout.count, type.name, op.name, root, "", {}, {}};
        row.out_of_place = measured(apart, false);
        row.in_place = measured(test_of(type, op, root, size, true), true);
        if (main_) print_row(options_, row);
      }
    }
  }

  const Operation& operation_;
  const Options& options_;
  const comm::ProcessGroup& group_;
  bool main_;
  Device device_;
  Buffers buffers_;
  Summary summary_;
  int halves_ = 0;
};

}  // namespace

int perf_main(std::string_view name, int argc, char** argv) {
  const Operation& operation = operation_named(name);
  Options options;
  if (const auto status = parse(operation, argc, argv, options)) return *status;
  if (options.timeout > 0) {
    setenv("PEAL_TIMEOUT", std::to_string(options.timeout).c_str(), 1);
  }
  int status = 0;
  const int ended = launch::run_main([&](launch::Job& job) {
    const std::string alone = job.world() == 1 ? lonely() : "";
    if (!alone.empty()) {
      status = refuse(options.program, alone);
      return;
    }
    if (options.root >= job.world()) {
      status = job.is_main() ? refuse(options.program, concat("-r: there is no rank ", options.root,
                                                              " of ", job.world()))
                             : usage_error;
      return;
    }
    const Summary summary = Sweep(operation, options, job).run();
    if (summary.bad > 0 || summary.too_slow()) status = wrong_values;
  });
  return ended != 0 ? ended : status;
}

}  // namespace peal::bench

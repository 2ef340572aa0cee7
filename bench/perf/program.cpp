// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/bench/perf/options.h>
#include <peal/bench/perf/osu.h>
#include <peal/bench/perf/program.h>
#include <peal/bench/perf/sweep.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace peal::bench {
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

int perf_main(std::string_view name, int argc, char** argv) {
  const Operation& operation = operation_named(name);
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--osu") return osu_main(operation, argc, argv);
  }
  Options options;
  if (const auto status = parse(operation, argc, argv, options)) return *status;
  if (options.timeout > 0) {
    setenv("PEAL_TIMEOUT", std::to_string(options.timeout).c_str(), 1);
  }
  if (!options.algorithm.empty() && !options.all_algorithms()) {
    const auto names = algorithm_names(operation);
    if (std::ranges::find(names, options.algorithm) == names.end()) {
      std::string all = "all";
      for (const std::string& each : names) all += concat(", ", each);
      return refuse(options.program,
                    concat("--algo: expected one of ", all, ", got '", options.algorithm, "'"));
    }
    const std::string rule = concat(comm::name(*operation.what), "=", options.algorithm);
    setenv("PEAL_ALGO", rule.c_str(), 1);
  }
  int status = 0;
  const int ended = launch::run_main([&](launch::Job& job) {
    const auto refused = [&](const std::string& what) {
      status = job.is_main() ? refuse(options.program, what) : usage_error;
    };
    const std::string alone = job.world() == 1 ? lonely() : "";
    if (!alone.empty()) return refused(alone);
    if (options.root >= job.world()) {
      return refused(concat("-r: there is no rank ", options.root, " of ", job.world()));
    }
    const Summary summary = Sweep(operation, options, job).run();
    if (summary.bad > 0 || summary.too_slow()) status = wrong_values;
  });
  return ended != 0 ? ended : status;
}

}  // namespace peal::bench

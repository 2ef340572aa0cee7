// SPDX-License-Identifier: Apache-2.0
// The command line of --osu, and what is printed. Formats are OSU's.
#include <peal/autograd/core/error.h>
#include <peal/bench/perf/options.h>
#include <peal/bench/perf/osu.h>
#include <peal/bench/perf/program.h>
#include <peal/launch/command_line.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>

namespace peal::bench {
namespace {

constexpr int width = 20, percentiles[] = {50, 90, 99};

std::optional<int> parse_osu(const Operation& operation, int argc, char** argv,
                             OsuOptions& options) {
  const bool messages = !operation.what;
  options.program = std::filesystem::path(argv[0]).filename();
  options.type = operation.reduces ? "mpi_int" : "mpi_char";
  options.test = "latency";
  std::string sizes;
  bool osu = false;
  launch::CommandLine line(concat(
      "Measures ", operation.name,
      " by the habits of OSU's micro-benchmarks 7.4. Each call is timed alone; the latency is the "
      "mean of a rank's calls, and Min and Max are of these over ranks. Buffers are written anew "
      "before each call, which follows a barrier. Of overlap, Compute is what the arithmetic takes "
      "alone: what the calls take from it while they are under way counts against them. peal's "
      "calls go on by themselves, so there are no test calls."));
  const auto option = [&](const char* name, launch::CommandLine::Value value, const char* what) {
    return line.option(name, value, what).last_counts();
  };
  line.flag("--osu", &osu, "what brought you here");
  option("--test", &options.test,
         messages ? "latency, bw or bibw" : "latency, or overlap (non-blocking)")
      .one_of(messages ? std::vector<std::string>{"latency", "bw", "bibw"}
                       : std::vector<std::string>{"latency", "overlap"});
  option("-m,--message-size", &sizes, "[MIN:]MAX bytes");
  option("-i,--iterations", &options.iterations, "timed calls of a size").positive();
  option("-x,--warmup", &options.warm_up, "calls before").not_negative();
  option("-T,--type", &options.type, "mpi_char, mpi_int or mpi_float")
      .one_of({"mpi_char", "mpi_int", "mpi_float"});
  option("-d,--accelerator", &options.device, "cpu, cuda or cuda:N");
  option("-k,--root-rank", &options.root, "root").not_negative();
  option("--window", &options.window, "messages under way at once, of bw and bibw").positive();
  line.flag("-f,--full", &options.full, "also Min and Max over ranks, and Iterations");
  line.flag("-c,--validation", &options.validate, "check what each call gives");
  line.flag("-z,--tail-lat", &options.tails, "also P50, P90 and P99 of a rank's calls");
  line.flag("--clean", &options.clean, "write buffers once, as OSU's own do");
  if (const auto status = line.parse(argc, argv)) return *status == 0 ? 0 : usage_error;
  if (!sizes.empty()) {
    const auto colon = sizes.find(':');
    const bool two = colon != std::string::npos;
    const auto first = two ? parse_bytes(sizes.substr(0, colon)) : std::optional(options.first);
    const auto last = parse_bytes(two ? sizes.substr(colon + 1) : sizes);
    if (!first || !last || *first < 1 || *first > *last) {
      return refuse(options.program, concat("-m: expected [MIN:]MAX bytes, got '", sizes, "'"));
    }
    options.first = *first;
    options.last = *last;
  }
  if (messages && (options.full || options.tails)) {
    return refuse(options.program, "-f and -z are for collectives");
  }
  return std::nullopt;
}

void print_head(const Operation& operation, const OsuOptions& options) {
  const bool overlap = options.test == "overlap";
  std::string what = operation.what ? concat(operation.osu, " Latency") : "Latency";
  if (overlap) what = "Non-blocking " + what;
  if (options.test == "bw") what = "Bandwidth";
  if (options.test == "bibw") what = "Bi-Directional Bandwidth";
  std::printf("\n# OSU MPI%s %s Test v7.4\n", options.device == "cpu" ? "" : "-CUDA", what.c_str());
  if (overlap) std::printf("# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n\n");
  std::printf("# Measured by peal; %s\n",
              options.clean ? "buffers are written once" : "buffers are written before each call");
  std::string type = options.type;
  std::ranges::transform(type, type.begin(), [](unsigned char c) { return std::toupper(c); });
  std::printf("# Datatype: %s.\n%-10s", type.c_str(), "# Size");
  const auto column = [](const char* name) { std::printf("%*s", width, name); };
  if (overlap) {
    column("Overall(us)");
    column("Compute(us)");
    if (options.full) {
      for (const char* name : {"Coll. Init(us)", "MPI_Test(us)", "MPI_Wait(us)"}) column(name);
    }
    column("Pure Comm.(us)");
    if (options.full) {
      column("Min Comm.(us)");
      column("Max Comm.(us)");
    }
    column("Overlap(%)");
  } else {
    column(options.test == "latency" ? "Avg Latency(us)" : "Bandwidth (MB/s)");
    if (options.full) {
      column("Min Latency(us)");
      column("Max Latency(us)");
      std::printf("%*s", 12, "Iterations");
    }
  }
  if (options.validate) column("Validation");
  if (options.tails) {
    for (const int percent : percentiles) column(concat("P", percent, " Tail Lat(us)").c_str());
  }
  std::printf("\n");
  std::fflush(stdout);
}

void print_line(const OsuOptions& options, const OsuLine& line) {
  std::printf("%-10lld", static_cast<long long>(line.bytes));
  for (const double value : line.columns) std::printf("%*.2f", width, value);
  if (line.iterations > 0) std::printf("%*d", 12, line.iterations);
  if (options.validate) std::printf("%*s", width, line.wrong == 0 ? "Pass" : "Fail");
  for (const double value : line.tails) std::printf("%*.2f", width, value);
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

OsuOptions::Loops OsuOptions::loops(std::int64_t bytes, Loops small, Loops large) const {
  const Loops& usual = bytes > 8192 ? large : small;
  return {warm_up < 0 ? usual.warm_up : warm_up, iterations < 0 ? usual.timed : iterations};
}

DType OsuOptions::dtype() const {
  return type == "mpi_float" ? DType::f32 : type == "mpi_int" ? DType::i32 : DType::i8;
}

int osu_main(const Operation& operation, int argc, char** argv) {
  OsuOptions options;
  if (const auto status = parse_osu(operation, argc, argv, options)) return *status;
  int status = 0;
  const int ended = launch::run_main([&](launch::Job& job) {
    const auto refused = [&](const std::string& what) {
      status = job.is_main() ? refuse(options.program, what) : usage_error;
    };
    const std::string alone = job.world() == 1 ? lonely() : "";
    if (!alone.empty()) return refused(alone);
    if (job.world() < 2 || (!operation.what && job.world() != 2)) {
      return refused(concat("this test wants ", operation.what ? "two ranks or more" : "two ranks",
                            ", got ", job.world(), ": mpirun -n 2"));
    }
    if (options.root >= job.world()) {
      return refused(concat("-k: there is no rank ", options.root, " of ", job.world()));
    }
    const Device device = job.device(options.device);
    const OsuTest test = !operation.what             ? osu_messages(job, operation, options, device)
                         : options.test == "overlap" ? osu_overlap(job, operation, options, device)
                                                     : osu_latency(job, operation, options, device);
    if (job.is_main()) print_head(operation, options);
    for (std::int64_t bytes = options.first; bytes <= options.last; bytes *= 2) {
      const auto line = test(bytes);
      if (!line) continue;
      if (job.is_main()) print_line(options, *line);
      if (line->wrong == 0) continue;
      if (job.is_main()) {
        std::printf("DATA VALIDATION ERROR: %s exited with status %d on message size %lld.\n",
                    argv[0], 1, static_cast<long long>(bytes));
      }
      status = 1;
      return;
    }
  });
  return ended != 0 ? ended : status;
}

}  // namespace peal::bench

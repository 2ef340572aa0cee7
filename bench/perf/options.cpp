// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/bench/perf/options.h>
#include <peal/launch/command_line.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>

namespace peal::bench {
namespace {

using comm::ReduceOp;

constexpr TypeName all_types[] = {
    {"int8", DType::i8},  {"uint8", DType::u8},  {"int32", DType::i32},  {"int64", DType::i64},
    {"half", DType::f16}, {"float", DType::f32}, {"double", DType::f64}, {"bfloat16", DType::bf16}};
constexpr OpName all_ops[] = {{"sum", ReduceOp::sum},
                              {"prod", ReduceOp::prod},
                              {"max", ReduceOp::max},
                              {"min", ReduceOp::min},
                              {"avg", ReduceOp::avg}};

// Those of a name, or all.
template <class Name, std::size_t n>
std::vector<Name> named(const Name (&all)[n], const std::string& wanted) {
  std::vector<Name> found;
  for (const Name& each : all) {
    if (wanted == "all" || wanted == each.name) found.push_back(each);
  }
  return found;
}

template <class Name, std::size_t n>
std::vector<std::string> words(const Name (&all)[n]) {
  std::vector<std::string> names{"all"};
  for (const Name& each : all) names.emplace_back(each.name);
  return names;
}

std::string what_it_does(const Operation& operation) {
  return concat(
      "Measures ", operation.name,
      " over sizes, by the habits of nccl-tests 2.19: its options, its table, its JSON, its exit "
      "statuses (0; 6: usage; 7: wrong values, or a mean below NCCL_TESTS_MIN_BW; 1: any other "
      "failure).\n\nWhat is timed: -n times -m calls, without a barrier between them, each on "
      "memory of its own that was written before (see -e). Where all of -e's memory has been "
      "used, the clock stops, every result is checked, everything is written anew, and after a "
      "barrier the clock goes on. With --dirty that happens before each call, on its memory "
      "alone, so a call finds what it reads in the caches of its own core; with --clean never, as "
      "nccl-tests does it: then each rank reads again and again what it has read, and the results "
      "look better than they are. With --columns and -J the clock is read after each iteration "
      "too, "
      "some 20 ns.");
}

// What this machine's ranks have no use for.
void explain(Options& options, int streams, int policy, int device_code, int blocks, int init) {
  const auto say = [&](bool given, const char* text) {
    if (given) options.without_meaning.emplace_back(text);
  };
  say(options.threads != 1, "-t (a rank is a process: mpirun -n)");
  say(options.gpus != 1, "-g (a rank has one device: mpirun -n)");
  say(init != 0, "-p (a rank starts by itself)");
  say(streams != 0, "-y (calls go to the device's own stream)");
  say(options.graphs != 0, "-G (nothing is captured)");
  say(policy != -1, "-x");
  say(device_code != 0, "-D");
  say(blocks != 16, "-V");
}

}  // namespace

std::vector<TypeName> types(const std::string& wanted) { return named(all_types, wanted); }
std::vector<OpName> ops(const std::string& wanted) { return named(all_ops, wanted); }

int refuse(const std::string& program, const std::string& what) {
  std::fprintf(stderr, "%s: %s\nRun with --help for more information.\n", program.c_str(),
               what.c_str());
  return usage_error;
}

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || !(value >= 0)) return std::nullopt;
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  int shift = 0;
  if (!unit.empty()) {
    const std::string_view letters = "KMG";
    const auto at = letters.find(static_cast<char>(std::toupper(unit[0])));
    if (at == std::string_view::npos) return std::nullopt;
    shift = 10 * (static_cast<int>(at) + 1);
    unit.remove_prefix(1);
    if (!unit.empty() && unit != "B" && unit != "iB") return std::nullopt;
  }
  const double bytes = std::ldexp(value, shift);
  if (bytes > 1e18) return std::nullopt;
  return static_cast<std::int64_t>(bytes);
}

std::vector<std::int64_t> Options::sizes() const {
  std::vector<std::int64_t> all;
  for (std::int64_t size = first; size <= last;) {
    all.push_back(size);
    size = factor > 1 ? std::max(size * factor, size + 1) : size + step;
  }
  return all;
}

std::optional<int> parse(const Operation& operation, int argc, char** argv, Options& options) {
  options.words.assign(argv, argv + argc);
  options.program = std::filesystem::path(argv[0]).filename();
  std::string first = "32M", last = "32M", step = "1M";
  int streams = 0, policy = -1, device_code = 0, blocks = 16, init = 0;
  int cpu_time = 0, timestamps = 0, memory = 0, each = 0;
  bool dirty = false, clean = false, osu = false;
  launch::CommandLine line(what_it_does(operation));
  const auto option = [&](const char* name, launch::CommandLine::Value value, const char* what) {
    return line.option(name, value, what).last_counts();
  };
  option("-b,--minbytes", &first, "smallest size: bytes, or with K, M, G (of 1024)");
  option("-e,--maxbytes", &last,
         "largest size, and how much memory calls move through, one after the other");
  option("-i,--stepbytes", &step, "from one size to the next, where there is no factor");
  option("-f,--stepfactor", &options.factor, "from one size to the next");
  option("-n,--iters", &options.iterations, "timed iterations").positive();
  option("-m,--agg_iters", &options.together, "calls in an iteration, all started first")
      .positive();
  option("-w,--warmup_iters", &options.warm_up, "calls of each size before").not_negative();
  option("-N,--run_cycles", &options.cycles, "times through all sizes; 0: for ever").not_negative();
  option("-c,--check", &options.check,
         "calls that are checked besides the timed ones; 0: nothing is checked")
      .not_negative();
  option("-o,--op", &options.op, "reduction").one_of(words(all_ops));
  option("-d,--datatype", &options.type, "type").one_of(words(all_types));
  option("-r,--root", &options.root, "root; -1: each rank in turn");
  option("-z,--blocking", &options.blocking,
         "1: wait and barrier after each call, 2: wait, 3: wait and barrier after each "
         "iteration, the barrier untimed")
      .between(0, 3);
  option("-a,--average", &options.average, "over ranks: 0 rank 0's, 1 mean, 2 least, 3 most")
      .between(0, 3);
  option("-R,--local_register", &options.registered,
         "1, 2: buffers in memory for collectives (ProcessGroup::allocate)")
      .between(0, 2);
  option("-T,--timeout", &options.timeout, "seconds that a call may take").not_negative();
  option("-u,--unalign", &options.unaligned, "elements by which buffers begin late").not_negative();
  option("-C,--report_cputime", &cpu_time, "1: time until the calls have returned").between(0, 1);
  option("-S,--report_timestamps", &timestamps, "1: when, behind each row").between(0, 1);
  option("-M,--memory", &memory, "1: memory used, at the end").between(0, 1);
  option("-I,--per_iter_timing", &each, "1: least, most, p99 and spread of the iterations")
      .between(0, 1);
  option("-K,--per_iter_skip", &options.skipped, "first iterations that -I leaves out")
      .not_negative();
  option("-J,--output_file", &options.json, "file.json for the results");
  const auto idle = [&](const char* name, int* value) {
    option(name, value, "accepted, without meaning here").group("Of nccl-tests alone");
  };
  idle("-t,--nthreads", &options.threads);
  idle("-g,--ngpus", &options.gpus);
  idle("-p,--parallel_init", &init);
  idle("-y,--stream_null", &streams);
  idle("-G,--cudagraph", &options.graphs);
  idle("-x,--cta_policy", &policy);
  idle("-D,--device_implementation", &device_code);
  idle("-V,--device_cta_count", &blocks);
  option("--device", &options.device, "cpu, cuda or cuda:N").group("Of peal");
  line.option("--algo", &options.algorithm,
              "algorithm of every call (PEAL_ALGO's names), or all: a row by each, in turns")
      .group("Of peal");
  line.flag("--columns", &options.columns,
            "also: algorithm, bytes that the busiest rank sends, what the model says, and of both "
            "halves eff% (of what the memory passes while all ranks update theirs), p50 and p99");
  line.option("--machine", &options.machine, "the model's file (bench/calibrate), not measured")
      .existing_file()
      .group("Of peal");
  line.flag("--fit", &options.fit, "latency and seconds a byte, by least squares, at the end");
  line.option("--plot", &options.plot, "SVG file of times and rates over sizes").group("Of peal");
  line.flag("--osu", &osu, "as OSU's benchmarks instead: see --osu --help");
  line.flag("--dirty", &dirty, "write the buffers before each call, and begin it after a barrier");
  line.flag("--clean", &clean, "write the buffers once, as nccl-tests");
  if (const auto status = line.parse(argc, argv)) {
    return *status == 0 ? 0 : usage_error;
  }
  options.cpu_time = cpu_time != 0;
  options.timestamps = timestamps != 0;
  options.memory = memory != 0;
  options.each_iteration = each != 0;
  options.rewrite = clean ? Rewrite::never : dirty ? Rewrite::every_call : Rewrite::when_used_up;
  const auto mistake = [&](const auto&... parts) {
    return refuse(options.program, concat(parts...));
  };
  struct Size {
    const char* name;
    const std::string& text;
    std::int64_t& bytes;
  };
  for (const Size& size : {Size{"-b", first, options.first}, Size{"-e", last, options.last},
                           Size{"-i", step, options.step}}) {
    const auto parsed = parse_bytes(size.text);
    if (!parsed) {
      return mistake(size.name, ": expected bytes, as 8, 64K or 1.5M, got '", size.text, "'");
    }
    size.bytes = *parsed;
  }
  if (options.first > options.last) {
    return mistake("-b is larger than -e: ", options.first, " > ", options.last, " bytes");
  }
  if (options.factor <= 1 && options.step < 1)
    return mistake("-i: expected a step, got '", step, "'");
  if (dirty && clean) return mistake("--dirty and --clean exclude each other");
  if (options.skipped >= options.iterations) {
    return mistake("-K: expected less than -n's ", options.iterations, ", got ", options.skipped);
  }
  if (options.skipped > 0 && !options.each_iteration) return mistake("-K wants -I 1");
  if (options.root < -1) return mistake("-r: expected a rank, or -1, got ", options.root);
  if (!options.json.empty() && std::filesystem::path(options.json).extension() != ".json") {
    return mistake("-J: expected a name that ends in .json, got '", options.json, "'");
  }
  if (!options.algorithm.empty() && !operation.what) return mistake("--algo: sends have none");
  explain(options, streams, policy, device_code, blocks, init);
  return std::nullopt;
}

}  // namespace peal::bench

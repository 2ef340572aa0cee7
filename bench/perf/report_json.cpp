// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/bench/perf/report_json.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace peal::bench {
namespace {

using Json = nlohmann::ordered_json;

// What tells one run from another, and can be shown to anybody.
constexpr const char* shown_variables[] = {"CUDA_VISIBLE_DEVICES",
                                           "MPI_LOCALNRANKS",
                                           "NCCL_ALGO",
                                           "NCCL_HOSTID",
                                           "NCCL_PROTO",
                                           "NCCL_TESTS_MIN_BW",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_MCA_btl",
                                           "OMP_NUM_THREADS",
                                           "PEAL_ALGO",
                                           "PEAL_CUDA_TRANSPORT",
                                           "PEAL_IPC_ONE_SHOT",
                                           "PEAL_MPI_CUDA_AWARE",
                                           "PEAL_TIMEOUT",
                                           "PMI_SIZE",
                                           "SLURM_STEP_NUM_TASKS",
                                           "WORLD_SIZE"};

const char* truth(bool value) { return value ? "true" : "false"; }

// JSON has no other numbers.
Json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}
Json number(const std::optional<double>& value, double factor = 1) {
  return value ? number(*value * factor) : Json(nullptr);
}
Json numbers(const std::vector<double>& seconds) {
  Json all = Json::array();
  for (const double value : seconds) all.push_back(number(value * 1e6));
  return all;
}

Json half(const Options& options, const Half& half) {
  const Result& result = half.result;
  Json all{{"algorithm", half.algorithm}};
  all[options.cpu_time ? "cpu_time" : "time"] =
      number((options.cpu_time ? result.cpu_seconds : result.seconds) * 1e6);
  all["alg_bw"] = number(half.algorithm_rate);
  all["bus_bw"] = number(half.bus_rate);
  all["nwrong"] = result.checked ? Json(static_cast<double>(result.wrong)) : Json(nullptr);
  const Spread s = spread(result.iterations, options.skipped);
  all["p50_us"] = number(s.p50 * 1e6);
  all["p99_us"] = number(s.p99 * 1e6);
  all["efficiency_percent"] = number(half.efficiency, 100);
  return all;
}

Json iterations(const Options& options, const Result& result) {
  const Spread s = spread(result.iterations, options.skipped);
  Json all{{"skipped_iterations", options.skipped}, {"min_us", number(s.least * 1e6)},
           {"max_us", number(s.most * 1e6)},        {"avg_us", number(s.mean * 1e6)},
           {"p50_us", number(s.p50 * 1e6)},         {"p95_us", number(s.p95 * 1e6)},
           {"p99_us", number(s.p99 * 1e6)},         {"stdev_us", number(s.deviation * 1e6)},
           {"cv_pct", number(s.percent())},         {"times_us", numbers(result.iterations)}};
  if (result.by_rank.size() > 1) {
    Json ranks = Json::array();
    for (const auto& row : result.by_rank) ranks.push_back(numbers(row));
    all["per_process_max_times_us"] = ranks;
  }
  return all;
}

Json configuration(const Options& options, const std::vector<RankLine>& ranks) {
  Json all{{"nthreads", options.threads},
           {"ngpus", options.gpus},
           {"minimum_bytes", options.first},
           {"maximum_bytes", options.last}};
  if (options.factor > 1) {
    all["step_factor"] = options.factor;
  } else {
    all["step_bytes"] = options.step;
  }
  all["warmup_iters"] = options.warm_up;
  all["iterations"] = options.iterations;
  all["aggregated_iterations"] = options.together;
  all["validation"] = options.check;
  all["graph"] = options.graphs;
  all["blocking_collectives"] = truth(options.blocking != 0);
  all["per_iter_timing"] = truth(options.each_iteration);
  all["per_iter_skip"] = options.skipped;
  all["parallel_init"] = truth(false);
  all["rewrite"] = options.rewrite == Rewrite::never        ? "never"
                   : options.rewrite == Rewrite::every_call ? "every call"
                                                            : "when used up";
  Json devices = Json::array();
  for (const RankLine& rank : ranks) {
    devices.push_back({{"rank", rank.rank},
                       {"group", 0},
                       {"pid", rank.pid},
                       {"hostname", rank.host},
                       {"device", rank.device},
                       {"device_hex", "0000:00:00"},
                       {"device_info", rank.name}});
  }
  all["devices"] = devices;
  return all;
}

// A file that nobody has.
std::string free_path(const std::string& wanted) {
  std::string path = wanted;
  for (int i = 0; std::filesystem::exists(path); ++i) path = concat(wanted, ".", i);
  return path;
}

}  // namespace

struct JsonReport::Document {
  Json json;
};

JsonReport::JsonReport(const Options& options, const std::vector<RankLine>& ranks)
    : options_(options), path_(free_path(options.json)), document_(std::make_unique<Document>()) {
  Json variables = Json::array();
  for (const char* name : shown_variables) {
    if (const char* value = std::getenv(name)) variables.push_back(concat(name, "=", value));
  }
  document_->json = {{"version", 3},
                     {"start_time", now_text()},
                     {"args", options.words},
                     {"env", variables},
                     {"nccl_version", 0},
                     {"config", configuration(options, ranks)},
                     {"results", Json::array()}};
  write();
  std::printf("# Writing JSON output to %s\n", path_.c_str());
}

JsonReport::~JsonReport() = default;

void JsonReport::write() const {
  const std::string beside = path_ + ".part";
  std::ofstream file(beside);
  // What is no UTF-8, of a host's name or a word of the command line, is replaced.
  file << document_->json.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
  PEAL_CHECK(file.flush().good(), options_.program, ": cannot write ", path_);
  file.close();
  std::filesystem::rename(beside, path_);
}

void JsonReport::add(const Row& row) {
  char root[16];
  std::snprintf(root, sizeof root, "%6i", row.root);
  Json all{{"size", row.bytes},
           {"count", row.count},
           {"type", row.type},
           {"redop", row.op},
           {"root", root},
           {"algorithm", row.algorithm},
           {"chosen", truth(row.chosen)},
           {"wire_bytes", number(row.wire_bytes)},
           {"model_us", number(row.model_seconds, 1e6)},
           {"memory_bandwidth", number(row.memory_rate, 1e-9)}};
  all["out_of_place"] = half(options_, row.out_of_place);
  if (options_.each_iteration) {
    all["out_of_place_per_iter"] = iterations(options_, row.out_of_place.result);
  }
  all["in_place"] = half(options_, row.in_place);
  if (options_.each_iteration) {
    all["in_place_per_iter"] = iterations(options_, row.in_place.result);
  }
  all["actual_iterations"] = options_.iterations;
  all["experiment_name"] = "";
  document_->json["results"].push_back(all);
  write();
}

void JsonReport::finish(const Summary& summary) {
  Json& json = document_->json;
  json["out_of_bounds"] = {{"count", summary.bad}, {"okay", truth(summary.bad == 0)}};
  json["average_bus_bandwidth"] = {
      {"bandwidth", number(summary.rate)},
      {"okay", summary.least_rate == -1 ? "unchecked" : truth(!summary.too_slow())}};
  json["errors"] = Json::array();
  json["end_time"] = now_text();
  write();
}

}  // namespace peal::bench

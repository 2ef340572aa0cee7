// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/profile.h>
#include <peal/bench/perf/fit.h>
#include <peal/bench/perf/plot.h>
#include <peal/bench/perf/sweep.h>

#include <algorithm>
#include <cstdlib>
#include <deque>

namespace peal::bench {

Sweep::Sweep(const Operation& operation, const Options& options, launch::Job& job)
    : operation_(operation),
      options_(options),
      group_(job.group()),
      main_(job.is_main()),
      device_(job.device(options.device)),
      memory_before_(memory_now()),
      buffers_(group_, device_, options.last, options.unaligned, options.registered > 0),
      memory_with_buffers_(memory_now()),
      memory_(group_) {
  const auto ranks = rank_lines(job, device_);
  if (main_ && !options.json.empty()) json_ = std::make_unique<JsonReport>(options, ranks);
  if (main_) print_head(options_, ranks);
  // The model is one of messages between processes' memories.
  if (options.further() && group_.world() > 1 && device_.type == DeviceType::cpu) {
    model_.emplace(group_, options.machine, options.last);
  }
}

Summary Sweep::run() {
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
  const MemoryUse memory = memory_use();
  if (main_) print_end(memory);
  return summary_;
}

std::int64_t Sweep::memory_now() const {
  const MemoryMarks marks = memory_marks(device_);
  return static_cast<std::int64_t>(device_.type == DeviceType::cpu ? marks.resident
                                                                   : marks.tensors);
}

MemoryUse Sweep::memory_use() const {
  const auto most = [this](std::int64_t mine) {
    return static_cast<std::int64_t>(over_ranks(group_, static_cast<double>(mine), 3));
  };
  return {most(memory_before_), most(memory_with_buffers_ - memory_before_),
          most(memory_now() - memory_with_buffers_)};
}

void Sweep::print_end(const MemoryUse& memory) {
  print_foot(options_, summary_, memory);
  if (json_) json_->finish(summary_);
  if (options_.fit) {
    std::vector<FitPoint> points;
    for (std::size_t i = 0; i < rows_.size(); ++i) points.push_back({&rows_[i], terms_[i]});
    print_fit(points);
  }
  if (!options_.plot.empty()) {
    const int n = group_.world();
    save_plot(options_.plot,
              concat(operation_.name, ", ", n, n == 1 ? " rank of " : " ranks of ", options_.type,
                     ", ", device_.type == DeviceType::cpu ? "CPU" : "GPU"),
              rows_, operation_.bus_factor(n) / operation_.traffic(n));
  }
}

Case Sweep::test_of(const TypeName& type, const OpName& op, int root, std::int64_t size,
                    bool in_place) const {
  const auto element = static_cast<std::int64_t>(size_of(type.dtype));
  return {&operation_,
          type.dtype,
          operation_.reduces ? op.op : comm::ReduceOp::sum,
          std::max(root, 0),
          layout_of(operation_, size / element, element, group_.world()),
          in_place && operation_.has_in_place};
}

std::vector<Sweep::Way> Sweep::ways(const Case& test) {
  std::vector<Way> all{{algorithm_of(group_, test, "", buffers_), true}};
  if (!options_.all_algorithms() || group_.world() == 1) return all;
  for (const std::string& name : algorithm_names(operation_)) {
    if (!algorithm_of(group_, test, name, buffers_).empty()) all.push_back({name, false});
  }
  return all;
}

// By each way, in turns: what drifts meanwhile meets all alike.
std::vector<Half> Sweep::measured(const Case& test, const std::vector<Way>& ways, bool in_place) {
  std::deque<Measurement> all;
  for (const Way& way : ways) {
    all.emplace_back(group_, options_, buffers_, test,
                     caller(group_, test, way.chosen ? "" : way.algorithm), options_.times_each());
    all.back().warm_up(1);
  }
  const int n = options_.iterations, rounds = ways.size() == 1 ? 1 : std::min(n, 5);
  for (int round = 0; round < rounds; ++round) {
    for (Measurement& each : all) each.run(n * (round + 1) / rounds - n * round / rounds);
  }
  std::vector<Half> halves;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    Half half{
        .result = all[i].result(),
        .algorithm = ways[i].chosen ? algorithm_of(group_, test, "", buffers_) : ways[i].algorithm};
    if (in_place && !operation_.has_in_place) half.result.checked = false;
    half.algorithm_rate = static_cast<double>(test.bytes()) / 1e9 / half.result.seconds;
    half.bus_rate = half.algorithm_rate * operation_.bus_factor(group_.world());
    summary_.bad += half.result.bad_ranks;
    if (ways[i].chosen) {
      summary_.rate += half.bus_rate;
      ++halves_;
    }
    halves.push_back(std::move(half));
  }
  return halves;
}

void Sweep::series(const TypeName& type, const OpName& op, int root) {
  const auto sizes = options_.sizes();
  for (const std::int64_t bytes : sizes) {
    const Case test = test_of(type, op, root, bytes, false);
    Measurement(group_, options_, buffers_, test, caller(group_, test, ""), false)
        .warm_up(options_.warm_up);
  }
  for (int cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle) {
    for (const std::int64_t bytes : sizes) size(type, op, root, bytes);
  }
}

void Sweep::size(const TypeName& type, const OpName& op, int root, std::int64_t bytes) {
  const Case apart = test_of(type, op, root, bytes, false);
  const Case inside = test_of(type, op, root, bytes, true);
  const auto all = ways(apart);
  const auto left = measured(apart, all, false), right = measured(inside, all, true);
  for (std::size_t i = 0; i < all.size(); ++i) {
    Row row{.bytes = apart.bytes(),
            .count = apart.layout.count,
            .type = type.name,
            .op = op.name,
            .root = root,
            .algorithm = all[i].algorithm,
            .chosen = all[i].chosen,
            .out_of_place = left[i],
            .in_place = right[i]};
    if (options_.further()) add_further(row, inside);
    if (!main_) continue;
    print_row(options_, row);
    if (json_) json_->add(row);
    if (options_.fit || !options_.plot.empty()) rows_.push_back(row);
  }
}

void Sweep::add_further(Row& row, const Case& test) {
  const auto element = static_cast<double>(size_of(test.dtype));
  const int n = group_.world();
  const std::string& algorithm = row.in_place.algorithm;
  const auto cost = cost_of(group_, test, algorithm);
  if (cost) row.wire_bytes = static_cast<double>(cost->sent) * element;
  if (model_) row.model_seconds = model_->seconds(test, algorithm);
  if (device_.type == DeviceType::cpu) row.memory_rate = memory_.of(row.bytes);
  const double share = operation_.bus_factor(n) / operation_.traffic(n);
  if (row.memory_rate && share > 0) {
    const double most = *row.memory_rate * share / 1e9;
    row.out_of_place.efficiency = row.out_of_place.bus_rate / most;
    row.in_place.efficiency = row.in_place.bus_rate / most;
  }
  const double sent = static_cast<double>(row.bytes) * operation_.bus_factor(n);
  terms_.push_back({cost ? static_cast<double>(cost->rounds) : 1, row.wire_bytes.value_or(sent), 0,
                    row.in_place.result.seconds});
}

}  // namespace peal::bench

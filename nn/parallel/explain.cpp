// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/nn/parallel/explain.h>
#include <peal/nn/parallel/missing.h>
#include <peal/nn/parallel/step_clock.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace peal::nn {
namespace {

std::string size_text(std::int64_t bytes) {
  if (bytes >= std::int64_t{10} << 20) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= std::int64_t{10} << 10) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} bytes", bytes);
}

std::string caps_text(const BucketCaps& caps, const DDPOptions& options,
                      const std::vector<int>& node) {
  const bool several = std::ranges::any_of(node, [&](int n) { return n != node[0]; });
  const std::string_view why = options.buckets.bytes != 0 ? "as the options say"
                               : options.all_reduce_cost  ? "the shortest step by all_reduce_cost"
                               : several ? "the shortest step at 100 Gbit/s between nodes"
                                         : "as ranks on one node gain nothing by less";
  return fmt::format("buckets are closed at {}, the first of a kind at {}{}: {}",
                     size_text(caps.bytes), size_text(caps.first_bytes),
                     caps.last_bytes == 0 ? std::string()
                                          : ", the last ones down to " + size_text(caps.last_bytes),
                     why);
}

std::string dtypes_text(const MixedPrecision& settings) {
  std::string text = "mixed precision:";
  const auto add = [&](std::string_view what, const std::optional<DType>& dtype) {
    if (dtype) text += concat(text.back() == ':' ? " " : ", ", what, " in ", *dtype);
  };
  add("parameters", settings.param_dtype);
  add("gradients travel", settings.travels_in());
  add("buffers", settings.buffer_dtype);
  add("outputs", settings.output_dtype);
  return text;
}

// "norm1, norm2: synchronised batch norm over 4 ranks", or nothing.
std::string norms_text(const Module& module) {
  std::vector<std::string> names;
  int world = 0;
  auto layers = module.named_modules();
  layers.front().first = "the model";
  for (auto& [name, layer] : layers) {
    const auto* const norm = layer.as<SyncBatchNorm>();
    if (norm == nullptr) continue;
    names.push_back(name);
    world = norm->group().world();
  }
  if (names.empty()) return {};
  return concat(first_names(names), ": synchronised batch norm over ", world, " ranks");
}

}  // namespace

std::string explain(const Explained& wrapper) {
  const auto& [group, options, caps, order_learnt, specs, module, reducer] = wrapper;
  std::int64_t sent = 0, frozen = 0;
  for (const ParameterSpec& spec : specs) frozen += spec.requires_grad ? 0 : 1;
  for (const Bucket& bucket : reducer.buckets()) {
    sent += bucket.count * static_cast<std::int64_t>(size_of(bucket.dtype));
  }
  std::string text = fmt::format(
      "DDP: rank {} of {} over {}; {} parameters, {} of them frozen; {} in {} buckets a step\n",
      group.rank(), group.world(), group.transport(), specs.size(), frozen, size_text(sent),
      reducer.buckets().size());
  const auto option = [&](bool on, std::string_view what) {
    if (on) text += fmt::format("  {}\n", what);
  };
  option(options.find_unused_parameters && !options.static_graph,
         "find_unused_parameters: a small collective more at the end of each step");
  option(options.static_graph, "static_graph: each backward is as the first was");
  option(!options.broadcast_buffers, "buffers are each rank's own");
  option(options.check_every > 0,
         fmt::format("parameters{} are compared every {} steps",
                     options.broadcast_buffers ? " and buffers" : "", options.check_every));
  option(options.measure_every > 0,
         fmt::format("times are taken every {} steps", options.measure_every));
  option(options.mixed_precision.any(), dtypes_text(options.mixed_precision));
  option(reducer.has_comm_hook(), "a communication hook is called for each bucket");
  const std::string norms = norms_text(module);
  option(!norms.empty(), norms);
  option(true, caps_text(caps, options, group.nodes().node));
  option(!options.order.empty(), "buckets are in the order that was given");
  option(order_learnt, "buckets are in the order in which rank 0's gradients came in a step");
  for (const std::string& name : options.delayed) option(true, name + " goes last");
  for (const std::string& name : options.ignored) option(true, name + " is each rank's own");
  for (std::size_t b = 0; b < reducer.buckets().size(); ++b) {
    const Bucket& bucket = reducer.buckets()[b];
    text += fmt::format("  bucket {}: {} {}{}:", b, bucket.dtype,
                        size_text(bucket.count * static_cast<std::int64_t>(size_of(bucket.dtype))),
                        bucket.owner == everyone ? "" : concat(" for rank ", bucket.owner));
    for (const auto& entry : bucket.entries) {
      text += ' ' + specs[static_cast<std::size_t>(entry.parameter)].name;
    }
    text += '\n';
  }
  const std::uint64_t steps = reducer.step();
  text += fmt::format(
      "  {} steps since the start; since reset_times() {:.3f} ms in all of waiting for gradients\n",
      steps, reducer.exposed_seconds() * 1e3);
  if (const StepClock* const clock = reducer.clock()) text += describe(clock->last());
  return text;
}

}  // namespace peal::nn

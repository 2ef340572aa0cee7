// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/parallel/explain.h>
#include <peal/nn/parallel/step_clock.h>

#include <fmt/core.h>

#include <cstdint>

namespace peal::nn {
namespace {

std::string size_text(std::int64_t bytes) {
  if (bytes >= std::int64_t{10} << 20) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= std::int64_t{10} << 10) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} bytes", bytes);
}

}  // namespace

std::string explain(const comm::ProcessGroup& group, const DDPOptions& options,
                    const std::vector<ParameterSpec>& specs, const Reducer& reducer) {
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
  option(!options.order.empty(), "buckets are in the order that was given");
  for (const std::string& name : options.delayed) option(true, name + " goes last");
  for (const std::string& name : options.ignored) option(true, name + " is each rank's own");
  for (std::size_t b = 0; b < reducer.buckets().size(); ++b) {
    const Bucket& bucket = reducer.buckets()[b];
    text += fmt::format("  bucket {}: {} {}:", b, bucket.dtype,
                        size_text(bucket.count * static_cast<std::int64_t>(size_of(bucket.dtype))));
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

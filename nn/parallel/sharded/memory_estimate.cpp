// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad_slot.h>
#include <peal/nn/parallel/sharded/fsdp_state.h>
#include <peal/nn/parallel/sharded/memory_estimate.h>
#include <peal/nn/parallel/sharded/placement.h>

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>

namespace peal::nn {
namespace {

constexpr double mebibyte = 1 << 20;

// The line of the rank that takes the most.
std::string line_of(const char* name, const std::vector<MemoryEstimate>& ranks) {
  const MemoryEstimate most = *std::ranges::max_element(ranks, {}, &MemoryEstimate::total);
  return fmt::format("{:<8} {:>12.2f} {:>12.2f} {:>12.2f} {:>12.2f}\n", name,
                     static_cast<double>(most.parameters) / mebibyte,
                     static_cast<double>(most.gradients) / mebibyte,
                     static_cast<double>(most.state) / mebibyte,
                     static_cast<double>(most.total()) / mebibyte);
}

std::string line_of_activations(std::int64_t bytes) {
  if (bytes == 0) return "";
  return fmt::format("activations in a step: {:.2f} more\n", static_cast<double>(bytes) / mebibyte);
}

// Of the first, and the two largest of the others.
std::int64_t at_once(std::vector<std::int64_t> units) {
  std::sort(units.begin() + 1, units.end(), std::greater<>());
  std::int64_t sum = 0;
  for (std::size_t u = 0; u < std::min<std::size_t>(units.size(), 3); ++u) sum += units[u];
  return sum;
}

std::int64_t bytes_in_step(const std::vector<UnitPlan>& units, const MixedPrecision& precision,
                           int world) {
  std::vector<std::int64_t> parameters, gradients;
  for (const UnitPlan& unit : units) {
    parameters.push_back(0);
    gradients.push_back(0);
    for (const FlatPlan& flat : unit.flats) {
      const auto bytes_in = [&](DType dtype) {
        return flat.chunk * world * static_cast<std::int64_t>(size_of(dtype));
      };
      parameters.back() += bytes_in(precision.param_dtype.value_or(flat.dtype));
      if (flat.trained) gradients.back() += bytes_in(precision.travels_in().value_or(flat.dtype));
    }
  }
  return at_once(std::move(parameters)) + at_once(std::move(gradients));
}

}  // namespace

std::vector<MemoryEstimate> estimate_memory(const Optimizer& optimizer, Sharded sharded, int world,
                                            std::int64_t activations) {
  const std::vector<Tensor>& parameters = optimizer.parameters();
  std::vector<std::int64_t> counts;
  for (const Tensor& parameter : parameters) {
    counts.push_back(parameter.requires_grad() ? parameter.numel() : 1);
  }
  const Placement placement = place_greedily(counts, world);
  std::vector<MemoryEstimate> ranks(static_cast<std::size_t>(world),
                                    MemoryEstimate{.activations = activations});
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const Tensor& parameter = parameters[p];
    for (int rank = 0; rank < world; ++rank) {
      MemoryEstimate& here = ranks[static_cast<std::size_t>(rank)];
      here.parameters += static_cast<std::int64_t>(parameter.view().bytes());
      if (!parameter.requires_grad()) continue;
      const bool own = placement.owners[p] == rank;
      const auto size = static_cast<std::int64_t>(size_of(parameter.grad_slot().dtype()));
      if (own || sharded != Sharded::gradients) here.gradients += parameter.numel() * size;
      if (own || sharded == Sharded::nothing) here.state += optimizer.state_bytes(p);
    }
  }
  return ranks;
}

std::vector<MemoryEstimate> estimate_memory(const Optimizer& optimizer, const Module& model,
                                            const WrapPolicy& wrap, int world,
                                            std::int64_t activations) {
  return estimate_memory(optimizer, model, FSDPOptions{.wrap = wrap}, world, activations);
}

std::vector<MemoryEstimate> estimate_memory(const Optimizer& optimizer, const Module& model,
                                            const FSDPOptions& options, int world,
                                            std::int64_t activations) {
  std::unordered_map<const TensorBody*, std::size_t> numbers;
  for (std::size_t p = 0; p < optimizer.parameters().size(); ++p) {
    numbers[&optimizer.parameters()[p].body()] = p;
  }
  const std::vector<std::string> ignored = names_within(model, options.ignored_modules);
  const MemberList members = Members(model, ignored).list();
  const std::vector<UnitPlan> units = plan_units(outline_of(model, members), options.wrap, world);
  MemoryEstimate everywhere{.activations = activations};  // what each rank has all of
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (std::ranges::find(ignored, name) == ignored.end()) continue;
    everywhere.parameters += static_cast<std::int64_t>(parameter.view().bytes());
    if (!parameter.requires_grad()) continue;
    everywhere.gradients +=
        parameter.numel() * static_cast<std::int64_t>(size_of(parameter.grad_slot().dtype()));
    const auto number = numbers.find(&parameter.body());
    if (number != numbers.end()) everywhere.state += optimizer.state_bytes(number->second);
  }
  std::vector<MemoryEstimate> ranks(static_cast<std::size_t>(world), everywhere);
  for (int rank = 0; rank < world; ++rank) {
    MemoryEstimate& here = ranks[static_cast<std::size_t>(rank)];
    here.in_step = bytes_in_step(units, options.mixed_precision, world);
    for (const UnitPlan& unit : units) {
      for (const FlatPlan& flat : unit.flats) {
        const auto size = static_cast<std::int64_t>(size_of(flat.dtype));
        here.parameters += flat.chunk * size;
        if (!flat.trained) continue;
        for (const FlatPlan::Entry& entry : flat.entries) {
          const Tensor& parameter =
              members.parameters[static_cast<std::size_t>(entry.parameter)].second;
          const Piece piece = piece_of(flat, entry, parameter.numel(), rank);
          here.gradients += piece.count * size;
          const auto number = numbers.find(&parameter.body());
          if (number == numbers.end() || piece.count == 0) continue;
          here.state += optimizer.state_bytes(number->second) / parameter.numel() * piece.count;
        }
      }
    }
  }
  return ranks;
}

std::string describe_memory(const Optimizer& optimizer, int world, std::int64_t activations) {
  std::string text = fmt::format("{:<8} {:>12} {:>12} {:>12} {:>12}\n", "MiB", "parameters",
                                 "gradients", "optimizer", "in all");
  for (const auto& [name, sharded] :
       {std::pair("DDP", Sharded::nothing), std::pair("ZeRO-1", Sharded::state),
        std::pair("ZeRO-2", Sharded::gradients)}) {
    text += line_of(name, estimate_memory(optimizer, sharded, world));
  }
  return text + line_of_activations(activations);
}

std::string describe_memory(const Optimizer& optimizer, const Module& model, const WrapPolicy& wrap,
                            int world, std::int64_t activations) {
  const std::vector<MemoryEstimate> ranks = estimate_memory(optimizer, model, wrap, world);
  return describe_memory(optimizer, world) + line_of("FSDP", ranks) +
         fmt::format("FSDP in a step: {:.2f} more\n",
                     static_cast<double>(ranks.front().in_step) / mebibyte) +
         line_of_activations(activations);
}

}  // namespace peal::nn

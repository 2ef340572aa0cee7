// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/nn/parallel/sharded/shard_plan.h>

#include <algorithm>
#include <set>

namespace peal::nn {
namespace {

// The innermost of these paths that encloses the module; "" where none does.
std::string_view enclosing(std::string_view module, const std::set<std::string>& paths) {
  std::string_view best;
  for (const std::string& path : paths) {
    if (is_below(module, path) && path.size() > best.size()) best = path;
  }
  return best;
}

// The innermost unit of all modules that use the parameter.
std::string_view unit_of(const ModelOutline& outline, const ParameterSpec& parameter,
                         const std::set<std::string>& paths) {
  std::string_view unit = enclosing(module_of(parameter.name), paths);
  for (const auto& [name, first] : outline.tied) {
    if (first != parameter.name) continue;
    while (!is_below(module_of(name), unit)) unit = enclosing(module_of(unit), paths);
  }
  return unit;
}

std::set<std::string> paths_of_units(const ModelOutline& outline, const WrapPolicy& policy) {
  std::set<std::string> paths;
  for (const std::string& path : policy ? policy(outline) : std::vector<std::string>()) {
    PEAL_CHECK(!path.empty(),
               "shard plan: the model itself is a unit always; let the policy give those below");
    const auto part = std::find_if(outline.modules.begin(), outline.modules.end(),
                                   [&](const auto& each) { return each.path == path; });
    PEAL_CHECK(part != outline.modules.end(), "shard plan: the model has no module '", path,
               "', which the policy names");
    PEAL_CHECK(!is_never_called(*part), "shard plan: ", path, " is a ", part->type,
               ", which nobody calls, so that it would never be gathered; wrap its elements");
    PEAL_CHECK(paths.insert(path).second, "shard plan: unit ", path, " comes twice");
  }
  return paths;
}

FlatPlan& flat_for(UnitPlan& unit, const ParameterSpec& parameter) {
  for (FlatPlan& flat : unit.flats) {
    if (flat.dtype == parameter.dtype && flat.trained == parameter.requires_grad) return flat;
  }
  FlatPlan& flat = unit.flats.emplace_back();
  flat.dtype = parameter.dtype;
  flat.trained = parameter.requires_grad;
  return flat;
}

}  // namespace

bool UnitPlan::trained() const {
  return std::any_of(flats.begin(), flats.end(), [](const FlatPlan& flat) { return flat.trained; });
}

bool UnitPlan::frozen() const {
  return std::any_of(flats.begin(), flats.end(),
                     [](const FlatPlan& flat) { return !flat.trained; });
}

Piece piece_of(const FlatPlan& flat, const FlatPlan::Entry& entry, std::int64_t elements,
               int rank) {
  const std::int64_t begin = std::min(rank * flat.chunk, flat.count);
  const std::int64_t end = std::min(begin + flat.chunk, flat.count);
  const std::int64_t from = std::max(entry.at, begin), to = std::min(entry.at + elements, end);
  if (from >= to) return {};
  return {from - entry.at, to - from, from - begin};
}

std::vector<UnitPlan> plan_units(const ModelOutline& outline, const WrapPolicy& policy, int world) {
  PEAL_CHECK(world > 0, "shard plan: expected at least one rank, got ", world);
  const std::set<std::string> paths = paths_of_units(outline, policy);
  std::vector<UnitPlan> units;
  for (const ModelOutline::Part& part : outline.modules) {
    if (part.path.empty() || paths.contains(part.path)) units.push_back({part.path, {}});
  }
  for (std::size_t p = 0; p < outline.parameters.size(); ++p) {
    const ParameterSpec& parameter = outline.parameters[p];
    const std::string_view path = unit_of(outline, parameter, paths);
    const auto unit = std::find_if(units.begin(), units.end(),
                                   [&](const UnitPlan& each) { return each.path == path; });
    FlatPlan& flat = flat_for(*unit, parameter);
    flat.entries.push_back({static_cast<int>(p), flat.count});
    flat.count += parameter.shape.numel();
  }
  for (UnitPlan& unit : units) {
    for (FlatPlan& flat : unit.flats) flat.chunk = (flat.count + world - 1) / world;
  }
  std::erase_if(units,
                [](const UnitPlan& unit) { return unit.flats.empty() && !unit.path.empty(); });
  return units;
}

std::string name_of(const UnitPlan& unit) {
  return unit.path.empty() ? "the model" : "unit " + unit.path;
}

std::string describe(const ModelOutline& outline, std::span<const UnitPlan> units, int world) {
  std::string text;
  for (const UnitPlan& unit : units) {
    text += name_of(unit) + '\n';
    for (const FlatPlan& flat : unit.flats) {
      text += concat("  ", flat.count, " ", flat.dtype, flat.trained ? "" : " (frozen)", " on ",
                     world, world == 1 ? " rank:" : " ranks:");
      for (int rank = 0; rank < world; ++rank) {
        const std::int64_t begin = std::min(rank * flat.chunk, flat.count);
        text += concat(rank == 0 ? " " : ", ", std::min(flat.chunk, flat.count - begin));
      }
      text += '\n';
      for (const auto& entry : flat.entries) {
        const ParameterSpec& parameter =
            outline.parameters[static_cast<std::size_t>(entry.parameter)];
        text += concat("    ", parameter.name, " ", parameter.shape, " at ", entry.at, "\n");
      }
    }
  }
  for (const auto& [name, first] : outline.tied) text += concat("tied ", name, " is ", first, "\n");
  return text;
}

}  // namespace peal::nn

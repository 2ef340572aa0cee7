// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/launch/tools/schedule/commands.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace peal::launch {
namespace {

// Where two straight lines on logarithmic axes cross, between sizes i-1 and i.
double crossing(const Plot& plot, const Curve& before, const Curve& after, std::size_t i) {
  const double b0 = std::log(double(plot.at[i - 1])), b1 = std::log(double(plot.at[i]));
  const double gain0 = std::log(after.values[i - 1] / before.values[i - 1]);
  const double gain1 = std::log(after.values[i] / before.values[i]);
  return std::exp(gain0 == gain1 ? b1 : b0 + (b1 - b0) * gain0 / (gain0 - gain1));
}

std::size_t fastest(const Plot& plot, std::size_t size) {
  const auto best = std::ranges::min_element(
      plot.curves, {}, [&](const Curve& curve) { return curve.values[size]; });
  return static_cast<std::size_t>(best - plot.curves.begin());
}

void print_table(const Plot& plot) {
  fmt::print("\n{}\n{:>10}", plot.title, "bytes");
  for (const Curve& curve : plot.curves) fmt::print(" {:>19}", curve.name);
  fmt::print("\n");
  for (std::size_t i = 0; i < plot.at.size(); ++i) {
    fmt::print("{:>10}", bytes_text(plot.at[i]));
    const std::size_t best = fastest(plot, i);
    for (std::size_t c = 0; c < plot.curves.size(); ++c) {
      fmt::print(" {:>18}{}", seconds_text(plot.curves[c].values[i]), c == best ? '*' : ' ');
    }
    fmt::print("\n");
  }
}

void print_crossovers(const Plot& plot) {
  fmt::print("fastest: {} from {}", plot.curves[fastest(plot, 0)].name, bytes_text(plot.at[0]));
  for (std::size_t i = 1; i < plot.at.size(); ++i) {
    const std::size_t before = fastest(plot, i - 1), after = fastest(plot, i);
    if (before == after) continue;
    fmt::print(", {} from about {:.0f} B", plot.curves[after].name,
               crossing(plot, plot.curves[before], plot.curves[after], i));
  }
  fmt::print("\n");
}

// n* = L (latency + gap) / ((L - 2(p-1)/p) per_byte + (L - (p-1)/p) reduce_per_byte), p = 2^L.
void print_formula(const Plot& plot, int ranks, const comm::Machine& machine) {
  const auto has = [&](std::string_view name) {
    return std::ranges::count(plot.curves, name, &Curve::name) == 1;
  };
  const bool one_level = machine.nodes.node.back() == ranks - 1;
  if (!has("recursive_doubling") || !has("rabenseifner") || !one_level || ranks < 4 ||
      !std::has_single_bit(static_cast<unsigned>(ranks))) {
    return;
  }
  const double levels = std::bit_width(static_cast<unsigned>(ranks)) - 1;
  const double share = (ranks - 1.0) / ranks;
  fmt::print("recursive_doubling meets rabenseifner, by formula: {:.0f} B\n",
             levels * (machine.between.latency + machine.between.gap) /
                 ((levels - 2 * share) * machine.between.rate.per_byte() +
                  (levels - share) * machine.reduce.per_byte()));
}

}  // namespace

int compare(comm::Collective what, const CompareOptions& options) {
  PEAL_CHECK(what != comm::Collective::barrier, "compare: a barrier has no sizes");
  PEAL_CHECK(!options.bytes.empty() && !options.ranks.empty(), "compare: expected sizes and ranks");
  for (const std::string& name : options.algorithms) entry_named(what, name);
  std::vector<Plot> plots;
  for (const int ranks : options.ranks) {
    const comm::Machine machine = options.machine.machine(ranks);
    Plot plot{fmt::format("{}, {} ranks", name(what), ranks), options.bytes, {}};
    for (const comm::Entry& entry : comm::all_algorithms()) {
      const bool chosen =
          options.algorithms.empty() || std::ranges::count(options.algorithms, entry.name) > 0;
      if (entry.what != what || !chosen || !entry.supports(ranks)) continue;
      Curve curve{std::string(entry.name), {}};
      for (const std::int64_t bytes : options.bytes) {
        const World world = make_world(what, ranks, std::max<std::int64_t>(1, bytes / f32),
                                       options.machine.node_size, 0, options.chunk);
        curve.values.push_back(
            simulate(
                ranks, [&](int rank) { return plan(entry, world.problem(rank)); }, f32, machine)
                .seconds);
      }
      plot.curves.push_back(std::move(curve));
    }
    PEAL_CHECK(!plot.curves.empty(), "compare: none of these algorithms has a plan for ", ranks,
               " ranks");
    print_table(plot);
    print_crossovers(plot);
    print_formula(plot, ranks, machine);
    plots.push_back(std::move(plot));
  }
  if (!options.plot.empty()) write_file(options.plot, svg(plots));
  return 0;
}

}  // namespace peal::launch

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/bench/perf/plot.h>
#include <peal/launch/tools/schedule/plot.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>

namespace peal::bench {
namespace {

using launch::Curve;
using launch::Plot;
using Value = std::function<std::optional<double>(const Row&)>;

// A curve a name, with a point where there is a row for the size.
class Panel {
 public:
  Panel(std::string title, Plot::Unit unit, const std::vector<Row>& rows) : rows_(rows) {
    plot_.title = std::move(title);
    plot_.unit = unit;
    for (const Row& row : rows) {
      if (row.bytes > (plot_.at.empty() ? 0 : plot_.at.back())) plot_.at.push_back(row.bytes);
    }
  }

  // Of the rows that `wanted` takes; nothing where none of them has the value.
  void add(const std::string& name, const std::function<bool(const Row&)>& wanted,
           const Value& value) {
    std::map<std::int64_t, double> points;
    for (const Row& row : rows_) {
      const auto at = wanted(row) ? value(row) : std::nullopt;
      if (at && *at > 0 && std::isfinite(*at)) points[row.bytes] = *at;
    }
    if (points.empty()) return;
    Curve curve{name, {}};
    for (const std::int64_t bytes : plot_.at) {
      const auto found = points.find(bytes);
      curve.values.push_back(found == points.end() ? std::nan("") : found->second);
    }
    plot_.curves.push_back(std::move(curve));
  }
  const Plot& plot() const { return plot_; }

 private:
  const std::vector<Row>& rows_;
  Plot plot_;
};

}  // namespace

void save_plot(const std::string& path, const std::string& title, const std::vector<Row>& rows,
               double memory_share) {
  Panel times(concat("Time of ", title), Plot::Unit::seconds, rows);
  Panel rates(concat("Bus bandwidth of ", title), Plot::Unit::bytes_a_second, rows);
  const auto chosen = [](const Row& row) { return row.chosen; };
  const auto add = [&](const std::string& name, const std::function<bool(const Row&)>& wanted,
                       Half Row::*half) {
    times.add(name, wanted, [half](const Row& row) { return (row.*half).result.seconds; });
    rates.add(name, wanted, [half](const Row& row) { return (row.*half).bus_rate * 1e9; });
  };
  add("out of place", chosen, &Row::out_of_place);
  add("in place", chosen, &Row::in_place);
  std::map<std::string, bool> named;
  for (const Row& row : rows) {
    if (row.chosen || named[row.algorithm]) continue;
    named[row.algorithm] = true;
    add(
        row.algorithm,
        [name = row.algorithm](const Row& r) { return !r.chosen && r.algorithm == name; },
        &Row::in_place);
  }
  times.add("model, in place", chosen, [](const Row& row) { return row.model_seconds; });
  rates.add("memory's limit", chosen, [memory_share](const Row& row) {
    return row.memory_rate ? std::optional(*row.memory_rate * memory_share) : std::nullopt;
  });
  std::vector<Plot> plots;
  for (const Panel* panel : {&times, &rates}) {
    if (!panel->plot().curves.empty()) plots.push_back(panel->plot());
  }
  std::ofstream file(path);
  file << launch::svg(plots);
  PEAL_CHECK(file.flush().good(), "--plot: cannot write ", path);
}

}  // namespace peal::bench

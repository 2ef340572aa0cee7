// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/simulate/calibration.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <vector>

namespace peal::comm {
namespace {

using Row = std::array<double, 3>;

Row terms(const Measured& run) { return {run.rounds, run.bytes_sent, run.bytes_reduced}; }

// Least squares over the columns of `chosen` (a bit each), the others being 0: normal equations,
// scaled to a diagonal of ones, by elimination. None if the columns are as good as dependent.
std::optional<Row> fit(const std::vector<Row>& rows, unsigned chosen) {
  std::vector<std::size_t> columns;
  for (std::size_t c = 0; c < 3; ++c) {
    if ((chosen >> c & 1) != 0) columns.push_back(c);
  }
  const std::size_t n = columns.size();
  std::vector<double> scale(n, 0);
  for (std::size_t i = 0; i < n; ++i) {
    for (const Row& row : rows) scale[i] += row[columns[i]] * row[columns[i]];
    if (scale[i] == 0) return std::nullopt;
    scale[i] = 1 / std::sqrt(scale[i]);
  }
  double a[3][4] = {};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < n; ++i) {
      const double left = row[columns[i]] * scale[i];
      for (std::size_t j = 0; j < n; ++j) a[i][j] += left * row[columns[j]] * scale[j];
      a[i][n] += left;  // the right side is 1: errors are relative
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (a[i][i] < 1e-9) return std::nullopt;
    for (std::size_t other = 0; other < n; ++other) {
      if (other == i) continue;
      const double factor = a[other][i] / a[i][i];
      for (std::size_t j = i; j <= n; ++j) a[other][j] -= factor * a[i][j];
    }
  }
  Row found{};
  for (std::size_t i = 0; i < n; ++i) found[columns[i]] = a[i][n] / a[i][i] * scale[i];
  return found;
}

double square_error(const std::vector<Row>& rows, const Row& x) {
  double sum = 0;
  for (const Row& row : rows) {
    const double off = row[0] * x[0] + row[1] * x[1] + row[2] * x[2] - 1;
    sum += off * off;
  }
  return sum;
}

}  // namespace

double model_seconds(const Calibration& machine, const Measured& run) {
  return run.rounds * machine.latency + run.bytes_sent * machine.per_byte +
         run.bytes_reduced * machine.reduce_per_byte;
}

// With three columns, the best non-negative solution is the best of the 7 that leave some out.
Calibration calibrate(std::span<const Measured> points) {
  if (points.empty()) throw std::invalid_argument("calibrate: expected points, got none");
  std::vector<Row> rows;
  for (const Measured& point : points) {
    if (!(point.seconds > 0)) throw std::invalid_argument("calibrate: expected times above 0");
    Row row = terms(point);
    for (double& value : row) value /= point.seconds;
    rows.push_back(row);
  }
  double least = std::numeric_limits<double>::infinity();
  Row best{};
  for (const unsigned chosen : {1u, 2u, 4u, 3u, 5u, 6u, 7u}) {
    const auto found = fit(rows, chosen);
    if (!found || std::ranges::min(*found) < 0) continue;
    const double error = square_error(rows, *found);
    if (error < least * (1 - 1e-9)) {
      least = error;
      best = *found;
    }
  }
  Calibration result{best[0], best[1], best[2], 0, 0};
  std::vector<double> errors;
  for (const Measured& point : points) {
    errors.push_back(std::abs(model_seconds(result, point) - point.seconds) / point.seconds);
  }
  std::ranges::sort(errors);
  result.median_error = errors[errors.size() / 2];
  result.worst_error = errors.back();
  return result;
}

}  // namespace peal::comm

// SPDX-License-Identifier: Apache-2.0
#include <peal/bench/perf/fit.h>

#include <cmath>
#include <cstdio>

namespace peal::bench {
namespace {

double percent(double model, double measured) {
  return std::abs(model - measured) / measured * 100;
}

}  // namespace

void print_fit(const std::vector<FitPoint>& points) {
  std::vector<comm::Measured> terms;
  for (const FitPoint& point : points) terms.push_back(point.terms);
  if (terms.empty()) return;
  const comm::Calibration fit = comm::calibrate(terms);
  std::printf(
      "# Fit, in place: alpha %.3f us a round, beta %.4f ns a byte on the busiest wire; "
      "error: median %.0f %%, worst %.0f %%\n",
      fit.latency * 1e6, fit.per_byte * 1e9, fit.median_error * 100, fit.worst_error * 100);
  std::printf("# %10s  %20s  %11s  %9s  %7s  %9s  %7s\n", "size", "algo", "measured_us", "fit_us",
              "error%", "model_us", "error%");
  for (const FitPoint& point : points) {
    const double measured = point.terms.seconds;
    const double model = comm::model_seconds(fit, point.terms);
    std::printf("# %10lld  %20s  %11.2f  %9.2f  %7.0f", static_cast<long long>(point.row->bytes),
                point.row->algorithm.c_str(), measured * 1e6, model * 1e6,
                percent(model, measured));
    if (point.row->model_seconds) {
      std::printf("  %9.2f  %7.0f\n", *point.row->model_seconds * 1e6,
                  percent(*point.row->model_seconds, measured));
    } else {
      std::printf("  %9s  %7s\n", "N/A", "N/A");
    }
  }
  std::fflush(stdout);
}

}  // namespace peal::bench

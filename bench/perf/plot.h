// SPDX-License-Identifier: Apache-2.0
// Plot: times and bus bandwidths over sizes, measured, modelled and bounded by the memory, as an
// SVG file with logarithmic axes. Thread safety: free functions.
#pragma once

#include <peal/bench/perf/report.h>

#include <string>
#include <vector>

namespace peal::bench {

// Error where the file cannot be written.
void save_plot(const std::string& path, const std::string& title, const std::vector<Row>& rows,
               double memory_share);

}  // namespace peal::bench

// SPDX-License-Identifier: Apache-2.0
// A plot: lines over two axes as a complete SVG file, for what a training has recorded. Points that
// are not finite are left out. Thread safety: pure functions, but for the file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace peal::launch {

struct Line {
  std::string name;  // in the legend, where there are several
  std::vector<double> x, y;
};

struct Plot {
  std::string title, x_title, y_title;
  std::vector<Line> lines = {};
  bool log_x = false;  // a logarithmic axis: ticks at powers of ten; x above 0
  // Points that are marked, in circles.
  Line marked = {};
};

std::string svg(const Plot& plot);
// Side by side, each with axes of its own.
std::string svg(const std::vector<Plot>& plots);
// Error: the file cannot be written.
void save_svg(const std::filesystem::path& path, const std::vector<Plot>& plots);
inline void save_svg(const std::filesystem::path& path, const Plot& plot) {
  save_svg(path, std::vector{plot});
}

}  // namespace peal::launch

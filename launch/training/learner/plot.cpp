// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/draw/axis.h>
#include <peal/comm/draw/escaped.h>
#include <peal/launch/training/learner/plot.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <string_view>

namespace peal::launch {
namespace {

constexpr double plot_width = 640, plot_height = 400, plot_left = 80, plot_right = 20,
                 plot_top = 40, plot_bottom = 56;
constexpr std::array plot_colours{"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e"};

// What an axis shows, and where on the picture.
struct PlotAxis {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  bool log = false;
  double from = 0, to = 0;  // pixels

  double scaled(double value) const { return log ? std::log10(value) : value; }
  bool shows(double value) const { return std::isfinite(scaled(value)); }
  void see(double value) {
    if (!shows(value)) return;
    low = std::min(low, scaled(value));
    high = std::max(high, scaled(value));
  }
  void settle() {
    if (low > high) low = 0, high = 1;
    if (low == high) low -= std::max(std::abs(low) / 10, 1e-12), high = 2 * high - low;
  }
  double at(double value) const {
    return from + (scaled(value) - low) / (high - low) * (to - from);
  }
  // Where ticks are, and their numbers.
  std::vector<std::pair<double, std::string>> ticks() const {
    const double step = log ? std::max(1.0, std::round((high - low) / 8)) : comm::tick(high - low);
    std::vector<std::pair<double, std::string>> all;
    for (double k = std::ceil(low / step - 1e-9); k * step <= high + step * 1e-9; ++k) {
      const double value = log ? std::pow(10, k * step) : k * step;
      all.emplace_back(value, std::abs(value) < step * 1e-9 ? "0" : fmt::format("{:.6g}", value));
    }
    return all;
  }
};

std::string plot_text(double x, double y, const char* look, const std::string& said) {
  return fmt::format("<text x='{:.1f}' y='{:.1f}'{}>{}</text>\n", x, y, look, comm::escaped(said));
}

std::string plot_frame(const Plot& plot, const PlotAxis& x, const PlotAxis& y) {
  std::string all =
      plot_text(plot_width / 2, 24, " text-anchor='middle' font-size='15'", plot.title);
  const auto line = [&](double x1, double y1, double x2, double y2, const char* colour) {
    all += fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='{}'/>\n", x1,
                       y1, x2, y2, colour);
  };
  for (const auto& [value, number] : x.ticks()) {
    line(x.at(value), y.from, x.at(value), y.to, "#e4e4e4");
    all += plot_text(x.at(value), y.from + 16, " text-anchor='middle'", number);
  }
  for (const auto& [value, number] : y.ticks()) {
    line(x.from, y.at(value), x.to, y.at(value), "#e4e4e4");
    all += plot_text(x.from - 6, y.at(value) + 4, " text-anchor='end'", number);
  }
  line(x.from, y.from, x.to, y.from, "#222");
  line(x.from, y.from, x.from, y.to, "#222");
  all += plot_text((x.from + x.to) / 2, plot_height - 12, " text-anchor='middle'", plot.x_title);
  return all + fmt::format(
                   "<text transform='translate(18 {:.1f}) rotate(-90)' "
                   "text-anchor='middle'>{}</text>\n",
                   (y.from + y.to) / 2, comm::escaped(plot.y_title));
}

std::string plot_line(const Line& line, const PlotAxis& x, const PlotAxis& y, const char* colour) {
  std::string path;
  bool down = false;  // the pen
  for (std::size_t i = 0; i < line.x.size(); ++i) {
    if (!x.shows(line.x[i]) || !y.shows(line.y[i])) {
      down = false;
      continue;
    }
    path += fmt::format("{}{:.1f} {:.1f} ", down ? 'L' : 'M', x.at(line.x[i]), y.at(line.y[i]));
    down = true;
  }
  if (path.empty()) return path;
  return fmt::format("<path d='{}' fill='none' stroke='{}' stroke-width='1.6'/>\n", path, colour);
}

}  // namespace

std::string svg(const Plot& plot) {
  PlotAxis x{.log = plot.log_x, .from = plot_left, .to = plot_width - plot_right};
  PlotAxis y{.from = plot_height - plot_bottom, .to = plot_top};
  for (const Line& line : plot.lines) {
    PEAL_CHECK(line.x.size() == line.y.size(), "[launch] plot: line '", line.name, "' has ",
               line.x.size(), " x and ", line.y.size(), " y; it needs as many of both");
    for (std::size_t i = 0; i < line.x.size(); ++i) {
      if (!x.shows(line.x[i]) || !y.shows(line.y[i])) continue;
      x.see(line.x[i]);
      y.see(line.y[i]);
    }
  }
  x.settle();
  y.settle();
  std::string all = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' font-family='sans-serif' "
      "font-size='12'>\n<rect width='100%' height='100%' fill='white'/>\n",
      plot_width, plot_height);
  all += plot_frame(plot, x, y);
  for (std::size_t i = 0; i < plot.lines.size(); ++i) {
    const char* const colour = plot_colours[i % plot_colours.size()];
    all += plot_line(plot.lines[i], x, y, colour);
    if (plot.lines.size() < 2) continue;
    const double height = plot_top + 16 * static_cast<double>(i + 1);
    all += fmt::format(
        "<line x1='{0}' y1='{2}' x2='{1}' y2='{2}' stroke='{3}' "
        "stroke-width='1.6'/>\n",
        plot_width - 140, plot_width - 120, height - 4, colour);
    all += plot_text(plot_width - 114, height, "", plot.lines[i].name);
  }
  for (std::size_t i = 0; i < plot.marked.x.size(); ++i) {
    const double value = plot.marked.x[i], height = plot.marked.y.at(i);
    if (!x.shows(value) || !y.shows(height)) continue;
    all += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='5' fill='{}'/>\n", x.at(value),
                       y.at(height), plot_colours[4]);
    all += plot_text(x.at(value) + 8, y.at(height) - 8, "",
                     fmt::format("{} {:.3g}", plot.marked.name, value));
  }
  return all + "</svg>\n";
}

std::string svg(const std::vector<Plot>& plots) {
  if (plots.size() == 1) return svg(plots.front());
  const auto count = static_cast<double>(plots.size());
  std::string all = fmt::format("<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {} {}'>\n",
                                plot_width * count, plot_height);
  for (std::size_t k = 0; k < plots.size(); ++k) {
    const std::string one = svg(plots[k]);
    all += fmt::format("<svg x='{}' y='0' width='{}' height='{}'",
                       plot_width * static_cast<double>(k), plot_width, plot_height);
    all += one.substr(std::string_view("<svg").size());
  }
  return all + "</svg>\n";
}

void save_svg(const std::filesystem::path& path, const std::vector<Plot>& plots) {
  std::ofstream file(path);
  file << svg(plots);
  PEAL_CHECK(file.flush(), path.string(), ": cannot be written");
}

}  // namespace peal::launch

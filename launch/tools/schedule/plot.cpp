// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <peal/launch/tools/schedule/plot.h>
#include <peal/launch/tools/schedule/world.h>

#include <algorithm>
#include <cmath>

namespace peal::launch {
namespace {

constexpr int left = 80, top = 50, width = 620, height = 380, legend = 190, below = 60;
constexpr const char* inks[] = {"#3b75af", "#d07a2d", "#519d5b", "#b8403f", "#8a69b0",
                                "#7a564c", "#d57dbd", "#777777", "#b0b236", "#4fb3c4"};

std::string text_at(const Plot& plot, double value) {
  switch (plot.unit) {
    case Plot::Unit::seconds:
      return seconds_text(value);
    case Plot::Unit::bytes_a_second:
      return rate_text(value);
    case Plot::Unit::share:
      return fmt::format("{:.0f} %", value * 100);
    case Plot::Unit::times:
      return fmt::format("{:g}", value);
  }
  return {};
}

// The lines across, from the lowest to the highest.
std::vector<double> lines_of(const Plot& plot, double least, double most) {
  if (plot.unit == Plot::Unit::share) {
    std::vector<double> lines{0};
    while (lines.back() < 1 || lines.back() < most - 1e-9) {
      lines.push_back(0.2 * static_cast<double>(lines.size()));
    }
    return lines;
  }
  const bool doubles = plot.unit == Plot::Unit::times;
  const double base = doubles ? 2 : 10;
  const double low = std::floor(doubles ? std::log2(least) : std::log10(least));
  const double high =
      doubles ? std::max(low + 1, std::ceil(std::log2(most))) : std::ceil(std::log10(most) + 1e-9);
  std::vector<double> lines;
  for (double power = low; power <= high; ++power) lines.push_back(std::pow(base, power));
  return lines;
}

std::string one_plot(const Plot& plot, int y0) {
  double least = 1e300, most = 0;
  for (const Curve& curve : plot.curves) {
    for (const double value : curve.values) {
      if (std::isnan(value)) continue;
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  const std::vector<double> lines = lines_of(plot, least, most);
  const bool linear = plot.unit == Plot::Unit::share;
  const auto place = [&](double value) { return linear ? value : std::log10(value); };
  const double low = place(lines.front()), high = place(lines.back());
  const double first = std::log2(double(plot.at.front()));
  const double last = std::max(std::log2(double(plot.at.back())), first + 1);
  const auto x = [&](std::int64_t where) {
    return left + width * (std::log2(double(where)) - first) / (last - first);
  };
  const auto y = [&](double value) {
    return y0 + top + height * (1 - (place(value) - low) / (high - low));
  };
  std::string all =
      fmt::format("<text x='{}' y='{}' font-size='15'>{}</text>\n", left, y0 + 26, plot.title);
  for (const double line : lines) {
    const double at = y(line);
    all += fmt::format(
        "<path d='M{} {:.1f}h{}' stroke='#ddd'/>\n<text x='{}' y='{:.1f}' "
        "text-anchor='end'>{}</text>\n",
        left, at, width, left - 8, at + 4, text_at(plot, line));
  }
  const std::size_t every = plot.at.size() / 9 + 1;
  for (std::size_t i = 0; i < plot.at.size(); i += every) {
    all += fmt::format(
        "<path d='M{0:.1f} {1}v{2}' stroke='#eee'/>\n<text x='{0:.1f}' y='{3}' "
        "text-anchor='middle'>{4}</text>\n",
        x(plot.at[i]), y0 + top, height, y0 + top + height + 20,
        plot.over == Plot::Over::ranks ? std::to_string(plot.at[i]) : bytes_text(plot.at[i]));
  }
  for (std::size_t c = 0; c < plot.curves.size(); ++c) {
    const Curve& curve = plot.curves[c];
    const char* ink = inks[c % std::size(inks)];
    // What lies below shows, and so does which of two has an ink that comes again.
    const bool full = c % 2 == c / std::size(inks) % 2;
    const char* dashes = full ? "" : " stroke-dasharray='9 5'";
    std::string points, dots;
    for (std::size_t i = 0; i < plot.at.size(); ++i) {
      if (std::isnan(curve.values[i])) continue;
      points += fmt::format("{:.1f},{:.1f} ", x(plot.at[i]), y(curve.values[i]));
      if (plot.over == Plot::Over::bytes) continue;
      dots += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3.5' fill='{}'/>\n", x(plot.at[i]),
                          y(curve.values[i]), ink);
    }
    all += dots;
    const int at = y0 + top + 14 + 20 * static_cast<int>(c);
    all += fmt::format(
        "<polyline points='{0}' fill='none' stroke='{1}' stroke-width='2'{7}/>\n"
        "<path d='M{2} {3}h22' stroke='{1}' stroke-width='3'{7}/><text x='{4}' "
        "y='{5}'>{6}</text>\n",
        points, ink, left + width + 14, at, left + width + 42, at + 4, curve.name, dashes);
  }
  return all;
}

}  // namespace

std::string svg(const std::vector<Plot>& plots) {
  const int each = top + height + below;
  std::string all = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {} {}' font-family='sans-serif' "
      "font-size='12' fill='#222'>\n<rect width='100%' height='100%' fill='white'/>\n",
      left + width + legend, each * static_cast<int>(plots.size()));
  for (std::size_t i = 0; i < plots.size(); ++i)
    all += one_plot(plots[i], each * static_cast<int>(i));
  return all + "</svg>\n";
}

}  // namespace peal::launch

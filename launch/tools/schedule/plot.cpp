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

std::string one_plot(const Plot& plot, int y0) {
  double least = 1e300, most = 0;
  for (const Curve& curve : plot.curves) {
    for (const double value : curve.values) {
      if (std::isnan(value)) continue;
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  const double low = std::floor(std::log10(least)), high = std::ceil(std::log10(most) + 1e-9);
  const double first = std::log2(double(plot.bytes.front()));
  const double last = std::max(std::log2(double(plot.bytes.back())), first + 1);
  const auto x = [&](std::int64_t bytes) {
    return left + width * (std::log2(double(bytes)) - first) / (last - first);
  };
  const auto y = [&](double value) {
    return y0 + top + height * (1 - (std::log10(value) - low) / (high - low));
  };
  const auto text = plot.unit == Plot::Unit::seconds ? seconds_text : rate_text;
  std::string all =
      fmt::format("<text x='{}' y='{}' font-size='15'>{}</text>\n", left, y0 + 26, plot.title);
  for (int power = static_cast<int>(low); power <= static_cast<int>(high); ++power) {
    const double at = y(std::pow(10.0, power));
    all += fmt::format(
        "<path d='M{} {:.1f}h{}' stroke='#ddd'/>\n<text x='{}' y='{:.1f}' "
        "text-anchor='end'>{}</text>\n",
        left, at, width, left - 8, at + 4, text(std::pow(10.0, power)));
  }
  const std::size_t every = plot.bytes.size() / 9 + 1;
  for (std::size_t i = 0; i < plot.bytes.size(); i += every) {
    all += fmt::format(
        "<path d='M{0:.1f} {1}v{2}' stroke='#eee'/>\n<text x='{0:.1f}' y='{3}' "
        "text-anchor='middle'>{4}</text>\n",
        x(plot.bytes[i]), y0 + top, height, y0 + top + height + 20, bytes_text(plot.bytes[i]));
  }
  for (std::size_t c = 0; c < plot.curves.size(); ++c) {
    const Curve& curve = plot.curves[c];
    const char* ink = inks[c % std::size(inks)];
    // What lies below shows, and so does which of two has an ink that comes again.
    const bool full = c % 2 == c / std::size(inks) % 2;
    const char* dashes = full ? "" : " stroke-dasharray='9 5'";
    std::string points;
    for (std::size_t i = 0; i < plot.bytes.size(); ++i) {
      if (std::isnan(curve.values[i])) continue;
      points += fmt::format("{:.1f},{:.1f} ", x(plot.bytes[i]), y(curve.values[i]));
    }
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

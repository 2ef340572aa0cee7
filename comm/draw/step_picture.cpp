// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/draw/axis.h>
#include <peal/comm/draw/escaped.h>
#include <peal/comm/draw/step_picture.h>

#include <algorithm>
#include <set>
#include <utility>

namespace peal::comm {
namespace {

constexpr int left = 100, across = 1000, right = 250, top = 64;
constexpr int heading = 26, ops_height = 30, row = 18, gap = 14;

const char* colour(StepPart part) {
  switch (part) {
    case StepPart::forward:
      return "#b9cbe0";
    case StepPart::backward:
      return "#3b75af";
    case StepPart::exposed:
      return "#d0342c";
    case StepPart::queue:
      return "#cccccc";
    case StepPart::copy_in:
    case StepPart::copy_out:
      return "#8a69b0";
    case StepPart::slowest:
      return "#e8b53f";
    case StepPart::wire:
      return "#519d5b";
  }
  return "black";
}

constexpr std::pair<StepPart, const char*> legend_entries[] = {
    {StepPart::forward, "forward"},
    {StepPart::backward, "backward"},
    {StepPart::exposed, "exposed: nothing but waiting"},
    {StepPart::queue, "queue"},
    {StepPart::copy_in, "copies"},
    {StepPart::slowest, "waits for the slowest rank"},
    {StepPart::wire, "wire"}};

class Drawing {
 public:
  explicit Drawing(const StepPicture& picture) : picture_(picture) {
    for (const StepPanel& panel : picture.panels) {
      for (const StepLane& lane : panel.lanes) {
        for (const StepBar& bar : lane.bars) last_ = std::max(last_, bar.end);
      }
    }
  }

  std::string drawn(std::string_view title) {
    std::string panels;
    int y = top;
    for (const StepPanel& panel : picture_.panels) panels += drawn(panel, y);
    return "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 " +
           std::to_string(left + across + right) + " " + std::to_string(y + 40) +
           "' font-family='sans-serif' font-size='12' fill='#222'>\n"
           "<rect width='100%' height='100%' fill='white'/>\n" +
           text(20, 24, escaped(title), "font-size='14'") + axis(y) + panels + legend(y + 12) +
           "</svg>\n";
  }

 private:
  double x(double seconds) const { return left + (last_ > 0 ? seconds / last_ : 0) * across; }
  static std::string text(double at, int y, const std::string& said, const std::string& look = "") {
    return "<text x='" + number(at, 1) + "' y='" + std::to_string(y) + "' " + look + ">" + said +
           "</text>\n";
  }

  std::string axis(int bottom) const {
    std::string all;
    const double step = last_ > 0 ? tick(last_) : 1;
    for (int i = 0; last_ > 0 && i * step <= last_; ++i) {
      all += "<path d='M" + number(x(i * step), 2) + " " + std::to_string(top - 8) + "V" +
             std::to_string(bottom) + "' stroke='#e0e0e0'/>\n" +
             text(x(i * step), top - 14, i == 0 ? "0" : duration(i * step),
                  "text-anchor='middle' fill='#666'");
    }
    return all;
  }

  std::string drawn(const StepBar& bar, int y, int height) {
    seen_.insert(bar.part == StepPart::copy_out ? StepPart::copy_in : bar.part);
    const double width = std::max(0.4, x(bar.end) - x(bar.begin));
    const std::string said = escaped(bar.text.empty() ? name(bar.part) : bar.text);
    std::string all = "<rect x='" + number(x(bar.begin), 2) + "' y='" + std::to_string(y) +
                      "' width='" + number(width, 2) + "' height='" + std::to_string(height) +
                      "' fill='" + colour(bar.part) +
                      (width > 3 ? "' stroke='white' stroke-width='0.6" : "") + "'><title>" + said +
                      ", " + duration(bar.end - bar.begin) + "</title></rect>\n";
    if (!bar.text.empty() && width > 7.0 * static_cast<double>(bar.text.size()) + 6) {
      const bool dark = bar.part == StepPart::backward || bar.part == StepPart::exposed;
      all +=
          text(x(bar.begin) + width / 2, y + height / 2 + 4, said,
               std::string("text-anchor='middle' font-size='11'") + (dark ? " fill='white'" : ""));
    }
    return all;
  }

  // Moves y to below it.
  std::string drawn(const StepPanel& panel, int& y) {
    std::string all = "<rect x='20' y='" + std::to_string(y) + "' width='" +
                      std::to_string(left + across + right - 40) +
                      "' height='18' fill='#eef1f6'/>\n" +
                      text(28, y + 13, escaped(panel.name), "font-weight='bold'");
    y += heading;
    for (const StepLane& lane : panel.lanes) {
      const int height = &lane == &panel.lanes.front() ? ops_height : row - 4;
      all += text(left - 10, y + height / 2 + 4, escaped(lane.name), "text-anchor='end'");
      for (const StepBar& bar : lane.bars) all += drawn(bar, y, height);
      all += text(left + across + 12, y + height / 2 + 4, escaped(lane.note),
                  "fill='#555' font-size='11'");
      y += height + 4;
    }
    y += gap;
    return all;
  }

  std::string legend(int y) const {
    std::string all;
    int at = left;
    for (const auto& [part, said] : legend_entries) {
      if (!seen_.contains(part)) continue;
      all += "<rect x='" + std::to_string(at) + "' y='" + std::to_string(y) +
             "' width='12' height='12' fill='" + colour(part) + "'/>\n" +
             text(at + 18, y + 11, said);
      at += 44 + 7 * static_cast<int>(std::string_view(said).size());
    }
    return all;
  }

  const StepPicture& picture_;
  double last_ = 0;
  std::set<StepPart> seen_;
};

}  // namespace

std::string_view name(StepPart part) {
  constexpr std::string_view names[] = {"forward", "backward", "exposed",
                                        "queue",   "copy-in",  "waits for the slowest rank",
                                        "wire",    "copy-out"};
  return names[static_cast<std::size_t>(part)];
}

std::string svg(const StepPicture& picture, std::string_view title) {
  return Drawing(picture).drawn(title);
}

}  // namespace peal::comm

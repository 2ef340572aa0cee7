// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <peal/launch/tools/estimate_memory/draw.h>

#include <algorithm>
#include <cstdint>

namespace peal::launch {
namespace {

constexpr int left = 170, top = 76, width = 520, line = 34, bar = 22;

struct Share {
  const char *name, *ink;
  std::int64_t nn::MemoryEstimate::*bytes;
};
constexpr Share shares[] = {{"parameters", "#3b75af", &nn::MemoryEstimate::parameters},
                            {"gradients", "#d07a2d", &nn::MemoryEstimate::gradients},
                            {"AdamW", "#519d5b", &nn::MemoryEstimate::state},
                            {"within a step", "#c8c8c8", &nn::MemoryEstimate::in_step},
                            {"activations", "#a05aa0", &nn::MemoryEstimate::activations}};

std::string text(int x, int y, const char* anchor, const std::string& words) {
  return fmt::format("<text x='{}' y='{}' text-anchor='{}' fill='#222'>{}</text>\n", x, y, anchor,
                     words);
}

std::string box(int x, int y, int wide, int high, const char* ink) {
  return fmt::format("<rect x='{}' y='{}' width='{}' height='{}' fill='{}'/>\n", x, y, wide, high,
                     ink);
}

std::string legend(const std::vector<MemoryBar>& bars) {
  std::string all;
  int x = left;
  for (const Share& share : shares) {
    const bool drawn =
        share.bytes != &nn::MemoryEstimate::activations ||
        std::ranges::any_of(bars, [&](const MemoryBar& one) { return one.memory.activations > 0; });
    if (!drawn) continue;
    all += box(x, top - 30, 12, 12, share.ink) + text(x + 17, top - 20, "start", share.name);
    x += 125;
  }
  return all;
}

}  // namespace

std::string svg(const std::vector<MemoryBar>& bars, const std::string& title) {
  std::int64_t most = 1;
  for (const MemoryBar& one : bars) most = std::max(most, one.memory.peak());
  const int height = top + line * static_cast<int>(bars.size()) + 12;
  std::string all = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {} {}' font-family='sans-serif' "
      "font-size='12'>\n<rect width='100%' height='100%' fill='white'/>\n",
      left + width + 110, height);
  all += text(left, 24, "start", title) + legend(bars);
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const int y = top + line * static_cast<int>(i);
    all += text(left - 10, y + 16, "end", bars[i].label);
    std::int64_t so_far = 0;
    int x = left;
    for (const Share& share : shares) {
      so_far += bars[i].memory.*share.bytes;
      const int end = left + static_cast<int>(so_far * width / most);
      if (end > x) all += box(x, y, end - x, bar, share.ink);
      x = std::max(x, end);
    }
    all += text(x + 8, y + 16, "start",
                fmt::format("{:.1f} MB", static_cast<double>(so_far) / (1 << 20)));
  }
  return all + "</svg>\n";
}

}  // namespace peal::launch

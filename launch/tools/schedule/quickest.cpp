// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/tools/schedule/quickest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace peal::launch {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double price = 0.05;  // of a change: so much of one call's time

// Bytes up to which the one below has them, from a's losses there and b's: each wins at its end.
std::int64_t crossing(const TimesAt& below, const TimesAt& above, std::size_t a, std::size_t b) {
  const double ahead = losses(below)[b] - losses(below)[a];
  const double behind = losses(above)[a] - losses(above)[b];
  double share = 0.5;
  if (std::isfinite(ahead + behind) && ahead + behind > 0) {
    share = std::clamp(ahead / (ahead + behind), 0.0, 1.0);
  }
  const double ratio = static_cast<double>(above.bytes) / static_cast<double>(below.bytes);
  const double at = static_cast<double>(below.bytes) * std::pow(ratio, share);
  return std::clamp(static_cast<std::int64_t>(at), below.bytes, above.bytes - 1);
}

}  // namespace

std::vector<double> losses(const TimesAt& times) {
  std::vector<double> lost(times.seconds.at(0).size(), 0);
  for (const std::vector<double>& kind : times.seconds) {
    const double least = std::ranges::min(kind);
    for (std::size_t i = 0; i < lost.size(); ++i) {
      lost[i] += std::isfinite(kind[i]) ? std::log(kind[i] / least) : infinite;
    }
  }
  for (double& each : lost) each /= static_cast<double>(times.seconds.size());
  return lost;
}

std::vector<std::size_t> quickest(const std::vector<TimesAt>& sizes, double price_of_change) {
  struct Way {
    double lost;         // up to here
    std::size_t before;  // the algorithm of the size before
  };
  std::vector<std::vector<Way>> ways;
  for (const TimesAt& size : sizes) {
    std::vector<Way> here;
    const std::vector<double> lost = losses(size);
    for (std::size_t i = 0; i < lost.size(); ++i) {
      Way best{0, i};
      if (!ways.empty()) {
        best.lost = ways.back()[i].lost;
        for (std::size_t j = 0; j < lost.size(); ++j) {
          const double changed = ways.back()[j].lost + price_of_change;
          if (changed < best.lost) best = {changed, j};
        }
      }
      here.push_back({best.lost + lost[i], best.before});
    }
    ways.push_back(std::move(here));
  }
  std::vector<std::size_t> chosen(sizes.size());
  for (std::size_t s = sizes.size(); s-- > 0;) {
    if (s + 1 == sizes.size()) {
      chosen[s] = static_cast<std::size_t>(std::ranges::min_element(ways[s], {}, &Way::lost) -
                                           ways[s].begin());
    } else {
      chosen[s] = ways[s + 1][chosen[s + 1]].before;
    }
  }
  return chosen;
}

std::vector<comm::Rules::Rule> quickest_rules(comm::Collective what,
                                              const std::vector<std::string>& algorithms,
                                              const std::vector<TimesAt>& sizes) {
  const std::vector<std::size_t> chosen = quickest(sizes, price);
  std::vector<comm::Rules::Rule> rules;
  std::int64_t first = 0;
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    const bool last = s + 1 == sizes.size();
    if (!last && chosen[s] == chosen[s + 1]) continue;
    const auto named = comm::parse_algorithm(what, algorithms[chosen[s]], "calibrate");
    const std::int64_t end = last ? std::numeric_limits<std::int64_t>::max()
                                  : crossing(sizes[s], sizes[s + 1], chosen[s], chosen[s + 1]);
    rules.push_back({what, std::string(named.name), named.chunk, first, end});
    first = last ? 0 : end + 1;
  }
  return rules;
}

}  // namespace peal::launch

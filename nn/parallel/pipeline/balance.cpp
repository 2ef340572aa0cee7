// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/nn/parallel/pipeline/balance.h>

#include <algorithm>
#include <numeric>

namespace peal::nn {
namespace {

void check_layers(std::size_t layers, int parts) {
  PEAL_CHECK(parts >= 1 && layers >= static_cast<std::size_t>(parts),
             "pipe: expected a layer for each of ", parts, " parts at least, got ", layers,
             "; take fewer ranks or chunks");
}

// Parts filled up to `most` from the left, each leaving a layer for those behind it; empty where
// that takes more of them.
std::vector<int> filled(std::span<const std::int64_t> weights, int parts, std::int64_t most) {
  std::vector<int> cut;
  std::size_t next = 0;
  for (int left = parts; left > 0; --left) {
    std::int64_t sum = 0;
    int layers = 0;
    const std::size_t end = weights.size() - static_cast<std::size_t>(left - 1);
    while (next < end && (layers == 0 || sum + weights[next] <= most)) {
      sum += weights[next++];
      ++layers;
    }
    if (sum > most) return {};
    cut.push_back(layers);
  }
  return next == weights.size() ? cut : std::vector<int>{};
}

}  // namespace

std::vector<int> balance_by_count(int layers, int parts) {
  check_layers(static_cast<std::size_t>(std::max(0, layers)), parts);
  std::vector<int> cut(static_cast<std::size_t>(parts), layers / parts);
  for (int i = 0; i < layers % parts; ++i) ++cut[static_cast<std::size_t>(i)];
  return cut;
}

std::vector<int> balance_by_size(std::span<const std::int64_t> weights, int parts) {
  check_layers(weights.size(), parts);
  for (const std::int64_t weight : weights) {
    PEAL_CHECK(weight >= 0, "pipe: expected layers that weigh 0 or more, got ", weight);
  }
  std::int64_t low = *std::ranges::max_element(weights);
  std::int64_t high = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (filled(weights, parts, middle).empty()) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return filled(weights, parts, low);
}

}  // namespace peal::nn

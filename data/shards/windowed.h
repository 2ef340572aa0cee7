// SPDX-License-Identifier: Apache-2.0
// Samples of a stream's part, shuffled in blocks of a window: a block is read, put into an order of
// chance that belongs to it alone, and given. So a part is taken up after any number of samples:
// what lies in blocks before is passed over, unread where that is possible. Thread safety: a reader
// belongs to one thread.
#pragma once

#include <peal/data/draw.h>

#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace peal::data {

// Numbers of a stream's samples, for draws: parts have 2^40 each.
inline std::int64_t number_in_stream(std::int64_t part, std::int64_t sample) {
  return part << 40 | sample;
}

// `next` gives the next of the part, or nothing at its end; `wanted` says whether it will be used.
// What comes out is `from`, `from` + 1, ... of the shuffled part, each with its number as it lies.
// REQUIRES: window >= 1.
template <class T>
std::function<std::optional<std::pair<T, std::int64_t>>()> windowed(
    std::function<std::optional<T>(bool wanted)> next, std::int64_t part, std::int64_t from,
    std::int64_t window, const Draws& draws) {
  struct State {
    std::function<std::optional<T>(bool)> next;
    std::int64_t begin;         // of the block
    std::size_t at;             // of its order
    std::int64_t left_out = 0;  // before it
    std::vector<T> block = {};
    std::vector<std::size_t> order = {};
  };
  State first{std::move(next), from / window * window, static_cast<std::size_t>(from % window)};
  return [=, state = std::move(first)]() mutable -> std::optional<std::pair<T, std::int64_t>> {
    for (; state.left_out < state.begin && state.block.empty(); ++state.left_out) {
      if (!state.next(false)) return std::nullopt;
    }
    if (state.block.empty() || state.at == state.order.size()) {
      if (!state.block.empty()) {
        state.begin += window;
        state.at = 0;
        state.block.clear();
      }
      while (std::ssize(state.block) < window) {
        std::optional<T> one = state.next(true);
        if (!one) break;
        state.block.push_back(std::move(*one));
      }
      state.order.resize(state.block.size());
      std::iota(state.order.begin(), state.order.end(), std::size_t{0});
      Draw draw = draws.of(-1 - number_in_stream(part, state.begin));
      for (std::size_t k = state.order.size(); k > 1; --k) {
        std::swap(state.order[k - 1], state.order[draw.below(static_cast<std::uint32_t>(k))]);
      }
    }
    if (state.at >= state.order.size()) return std::nullopt;
    const std::size_t which = state.order[state.at++];
    return std::pair(std::move(state.block[which]), state.begin + static_cast<std::int64_t>(which));
  };
}

}  // namespace peal::data

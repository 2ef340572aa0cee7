// SPDX-License-Identifier: Apache-2.0
// Warnings that were told already (log deduplication, rate limiting): log_warning() prints the same
// words once, and counts how often they were said, and by which ranks; at the end the count follows
// in a line, "... (x8: ranks 0-7)". Alike are words that differ in the rank's own number alone.
//
// The table is of atomics only, and all-zero bytes are an empty one, so that it can lie in memory
// that processes share: ranks of a node have one on their board (comm/control/board.h), and of what
// all of them say one line is printed on the node (told_here.h). A rank that dies at any moment
// leaves it readable. Thread safety: any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace peal {

class ToldWarnings {
 public:
  // Says these words (their hash) for a rank; below 0: for none. True for who says them first, and
  // for everyone where there is no place left: then nothing is counted.
  bool say(std::uint64_t words, int rank);
  struct Times {
    std::size_t times = 0;
    std::vector<int> ranks{};  // ascending
  };
  Times times(std::uint64_t words) const;

 private:
  static constexpr std::size_t places = 128;
  static constexpr int most_ranks = 256, bits = 64;  // of whom it is known which
  struct Place {
    std::atomic<std::uint64_t> words;  // 0: none yet
    std::atomic<std::uint64_t> times;
    std::atomic<std::uint64_t> ranks[most_ranks / bits];
    std::atomic<std::uint64_t> beyond;  // 1: one of most_ranks or above has said it
  };
  Place place_[places];
};

// " (x8: ranks 0-7)", or " (x8)" where no rank is known; nothing for what was said once.
std::string in_brackets(const ToldWarnings::Times& said);

// The words without the first mention of this rank's number: "rank 3 is slow", "rank  is slow".
std::string without_rank(std::string_view text, int rank);

}  // namespace peal

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/training/accelerator/strategy.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <numeric>

namespace peal::launch {
namespace {

const std::vector<std::string_view> strategy_words{"none", "ddp", "zero1", "zero2", "fsdp"};
const std::vector<std::string_view> precision_words{"no", "f32", "bf16", "fp16", "f16"};

// How many letters are to be changed, added or left out (Levenshtein).
std::size_t letters_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

std::size_t number_among(const std::vector<std::string_view>& words, const std::string& word,
                         std::string_view what) {
  const auto found = std::find(words.begin(), words.end(), word);
  PEAL_CHECK(found != words.end(), "[accelerator] there is no ", what, " '", word,
             "'; did you mean '", nearest_word(word, words), "'? There are ",
             fmt::format("{}", fmt::join(words, ", ")));
  return static_cast<std::size_t>(found - words.begin());
}

}  // namespace

std::string_view nearest_word(std::string_view word, const std::vector<std::string_view>& words) {
  std::string_view best;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const std::string_view each : words) {
    const std::size_t letters = letters_between(word, each);
    if (letters < least) best = each;
    least = std::min(least, letters);
  }
  return best;
}

Strategy strategy_of(const std::string& word, int world) {
  const auto strategy = static_cast<Strategy>(number_among(strategy_words, word, "strategy"));
  PEAL_CHECK(strategy != Strategy::none || world == 1,
             "[accelerator] the strategy 'none' is for "
             "one rank, and there are ",
             world,
             ", which would each train a model of their own; "
             "take 'ddp'");
  return strategy;
}

std::string_view word_of(Strategy strategy) {
  return strategy_words.at(static_cast<std::size_t>(strategy));
}

std::optional<DType> precision_of(const std::string& word) {
  const std::size_t number = number_among(precision_words, word, "mixed_precision");
  if (number < 2) return std::nullopt;
  return number == 2 ? DType::bf16 : DType::f16;
}

}  // namespace peal::launch

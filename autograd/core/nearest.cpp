// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/nearest.h>

#include <algorithm>
#include <cstddef>

namespace peal {

int edits(std::string_view typed, std::string_view word) {
  const std::size_t rows = typed.size() + 1, columns = word.size() + 1;
  std::vector<std::vector<int>> least(rows, std::vector<int>(columns));
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      int& here = least[i][j];
      if (i == 0 || j == 0) {
        here = static_cast<int>(i + j);
        continue;
      }
      here = std::min({least[i - 1][j] + 1, least[i][j - 1] + 1,
                       least[i - 1][j - 1] + (typed[i - 1] == word[j - 1] ? 0 : 1)});
      const bool swapped =
          i > 1 && j > 1 && typed[i - 1] == word[j - 2] && typed[i - 2] == word[j - 1];
      if (swapped) here = std::min(here, least[i - 2][j - 2] + 1);
    }
  }
  return least.back().back();
}

std::string did_you_mean(std::string_view typed, const std::vector<std::string>& words) {
  if (words.empty()) return "";
  const auto nearest = std::ranges::min_element(
      words, {}, [&](const std::string& word) { return edits(typed, word); });
  const bool near = 2 * edits(typed, *nearest) <= static_cast<int>(typed.size());
  return near ? "; did you mean '" + *nearest + "'?" : "";
}

}  // namespace peal

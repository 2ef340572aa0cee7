// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/nn/parallel/missing.h>

#include <algorithm>
#include <cstddef>

namespace peal::nn {
namespace {

constexpr std::size_t most_names = 20, most_columns = 32;

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

}  // namespace

std::string first_names(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < most_names; ++i) {
    text += concat(i == 0 ? "" : ", ", names[i]);
  }
  if (names.size() > most_names) text += concat(" and ", names.size() - most_names, " others");
  return text;
}

std::string describe_missing(const std::vector<std::string>& names,
                             const std::vector<std::vector<bool>>& missing,
                             const std::vector<int>& numbers) {
  const std::size_t world = missing.size();
  std::string text;
  std::size_t told = 0, unheard = 0;
  for (std::size_t r = 0; r < world; ++r) {
    std::vector<std::string> mine;
    for (std::size_t p = 0; p < names.size(); ++p) {
      if (missing[r][p]) mine.push_back(names[p]);
    }
    if (mine.empty()) continue;
    if (++told > most_names) {
      ++unheard;
      continue;
    }
    text += concat(text.empty() ? "" : "; ", "rank ", numbers[r], ": no gradient came for ",
                   first_names(mine));
  }
  if (unheard > 0) text += concat("; and so on ", unheard, " other ranks");
  if (world > most_columns) return text;

  std::vector<std::size_t> rows;
  std::size_t width = 4;  // "rank"
  for (std::size_t p = 0; p < names.size(); ++p) {
    const auto here = [&](const auto& list) { return list[p]; };
    if (!std::any_of(missing.begin(), missing.end(), here)) continue;
    width = std::max(width, names[p].size());
    rows.push_back(p);
  }
  const std::size_t column =
      std::to_string(*std::max_element(numbers.begin(), numbers.end())).size();
  std::string matrix = padded("rank", width);
  const auto cell = [&](const std::string& word) {
    return std::string(1 + column - word.size(), ' ') + word;
  };
  for (const int number : numbers) matrix += cell(std::to_string(number));
  const std::size_t shown = std::min(rows.size(), most_names);
  for (std::size_t row = 0; row < shown; ++row) {
    matrix += '\n' + padded(names[rows[row]], width);
    for (std::size_t r = 0; r < world; ++r) matrix += cell(missing[r][rows[row]] ? "x" : ".");
  }
  if (rows.size() > shown) matrix += concat("\nand ", rows.size() - shown, " others");
  return text + '\n' + matrix;
}

void compare_missing(const comm::ProcessGroup& group, const NamedTensors& parameters,
                     const std::vector<bool>& missing, std::string_view step,
                     std::string_view advice) {
  std::string mine;
  bool any = false;
  for (const bool bit : missing) mine += bit ? 'x' : '.';
  std::vector<std::vector<bool>> all;
  std::vector<int> numbers;
  for (const std::string& row : group.all_gather_object(mine)) {
    auto& bits = all.emplace_back();
    for (const char c : row) bits.push_back(c == 'x');
    any = any || std::find(bits.begin(), bits.end(), true) != bits.end();
    numbers.push_back(group.global_rank(static_cast<int>(numbers.size())));
  }
  if (!any) return;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : parameters) names.push_back(name);
  const std::string text = describe_missing(names, all, numbers);
  const std::size_t end = std::min(text.find('\n'), text.size());
  fail(concat("[ddp] ", step, ": ", text.substr(0, end), ". ", advice, text.substr(end)));
}

}  // namespace peal::nn

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/shards/shard_paths.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace peal::data {
namespace {

constexpr std::size_t most_shards = 1'000'000;

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = code == std::errc{} && stop == text.data() + text.size() && number >= 0;
  return whole ? std::optional(number) : std::nullopt;
}

// What stands between two braces.
std::vector<std::string> choices(std::string_view inside, const std::string& pattern) {
  std::vector<std::string> all;
  if (const std::size_t dots = inside.find(".."); dots != std::string_view::npos) {
    const std::string_view from = inside.substr(0, dots), to = inside.substr(dots + 2);
    const auto first = whole_number(from), last = whole_number(to);
    PEAL_CHECK(first && last && *first <= *last, "[data] shards '", pattern,
               "': expected a range of numbers as {000..146}, got {", inside, "}");
    PEAL_CHECK(static_cast<std::uint64_t>(*last - *first) < most_shards, "[data] shards '", pattern,
               "': expected at most ", most_shards, " names, got {", inside, "}");
    for (std::int64_t more = 0; more <= *last - *first; ++more) {
      std::string digits = std::to_string(*first + more);
      if (digits.size() < from.size()) digits.insert(0, from.size() - digits.size(), '0');
      all.push_back(digits);
    }
    return all;
  }
  PEAL_CHECK(!inside.empty(), "[data] shards '", pattern, "': expected something in {}");
  // As a shell has it: {print} of a program stays what it is.
  if (inside.find(',') == std::string_view::npos) return {concat("{", inside, "}")};
  while (true) {
    const std::size_t comma = inside.find(',');
    all.emplace_back(inside.substr(0, comma));
    if (comma == std::string_view::npos) return all;
    inside.remove_prefix(comma + 1);
  }
}

}  // namespace

std::vector<std::string> shard_paths(const std::string& pattern) {
  std::vector<std::string> names{""};
  std::string_view rest = pattern;
  while (true) {
    const std::size_t open = rest.find('{');
    for (std::string& name : names) name += rest.substr(0, open);
    if (open == std::string_view::npos) return names;
    const std::size_t close = rest.find('}', open);
    PEAL_CHECK(close != std::string_view::npos, "[data] shards '", pattern,
               "': a brace is left open");
    std::vector<std::string> longer;
    const auto inside = choices(rest.substr(open + 1, close - open - 1), pattern);
    PEAL_CHECK(inside.size() <= most_shards / names.size(), "[data] shards '", pattern,
               "': expected at most ", most_shards, " names");
    for (const std::string& name : names) {
      for (const std::string& choice : inside) longer.push_back(name + choice);
    }
    names = std::move(longer);
    rest.remove_prefix(close + 1);
  }
}

}  // namespace peal::data

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/group/selection.h>

#include <charconv>
#include <limits>
#include <optional>

namespace peal::comm {
namespace {

// Bytes: below, latency counts, above, bandwidth. In shared memory, and of an all_reduce by
// messages.
constexpr std::int64_t small_shared = 8192, small_all_reduce = 8192;

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::int64_t number(std::string_view text, std::string_view whole) {
  if (text == "max") return std::numeric_limits<std::int64_t>::max();
  std::int64_t value = -1;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  PEAL_CHECK(problem == std::errc{} && end == text.data() + text.size() && value >= 0,
             "PEAL_ALGO: '", text, "' in '", whole,
             "' is no number of bytes (0-8192, or 8193-max)");
  return value;
}

std::optional<Collective> collective(std::string_view text) {
  for (const Collective what : all_collectives) {
    if (name(what) == text) return what;
  }
  return std::nullopt;
}

std::string names_for(Collective what) {
  std::string names = "native";
  for (const Entry& entry : all_algorithms()) {
    if (entry.what == what) names += concat(", ", entry.name);
  }
  return names;
}

}  // namespace

Selection::Selection(std::string_view text) {
  if (text.empty()) return;
  for (const std::string_view clause : split(text, ',')) {
    const auto equals = clause.find('=');
    PEAL_CHECK(equals != std::string_view::npos,
               "PEAL_ALGO: expected collective=algorithm[:first-last], got '", clause, "'");
    const auto what = collective(clause.substr(0, equals));
    PEAL_CHECK(what, "PEAL_ALGO: there is no collective '", clause.substr(0, equals), "'");
    for (const std::string_view choice : split(clause.substr(equals + 1), ';')) {
      const auto parts = split(choice, ':');
      PEAL_CHECK(parts[0] == "native" || find(*what, parts[0]) != nullptr,
                 "PEAL_ALGO: ", name(*what), " has no algorithm '", parts[0], "'; there are ",
                 names_for(*what));
      Rule rule{*what, std::string(parts[0]), 0, std::numeric_limits<std::int64_t>::max()};
      if (parts.size() > 1) {
        const auto range = split(parts[1], '-');
        PEAL_CHECK(parts.size() == 2 && range.size() == 2,
                   "PEAL_ALGO: expected algorithm:first-last, got '", choice, "'");
        rule.first = number(range[0], choice);
        rule.last = number(range[1], choice);
      }
      rules_.push_back(std::move(rule));
    }
  }
}

const Selection::Rule* Selection::find_rule(Collective what, std::int64_t bytes) const {
  for (const Rule& rule : rules_) {
    if (rule.what == what && bytes >= rule.first && bytes <= rule.last) return &rule;
  }
  return nullptr;
}

std::string_view Selection::choose(Collective what, std::int64_t bytes, int world,
                                   bool shared) const {
  const auto serves = [&](std::string_view name) {
    const Entry* const entry = find(what, name);
    return entry != nullptr && entry->supports(world) && (shared || !entry->one_sided);
  };
  if (const Rule* rule = find_rule(what, bytes)) {
    const Entry* const entry = find(what, rule->algorithm);
    if (entry == nullptr || shared || !entry->one_sided) return rule->algorithm;
  }
  const std::string_view in_memory = what == Collective::barrier ? "signals"
                                     : bytes <= small_shared     ? "slots"
                                                                 : "direct_slices";
  if (serves(in_memory)) return in_memory;
  if (what == Collective::all_reduce) {
    const std::string_view wanted = bytes <= small_all_reduce ? "recursive_doubling" : "circulant";
    if (serves(wanted)) return wanted;
  }
  for (const Entry& entry : algorithms()) {
    if (entry.what == what && entry.supports(world)) return entry.name;
  }
  fail(concat("selection: no algorithm for ", name(what), " of ", world, " ranks"));
}

}  // namespace peal::comm

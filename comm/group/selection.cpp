// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/group/defaults.h>
#include <peal/comm/group/selection.h>

#include <charconv>
#include <limits>
#include <optional>
#include <utility>

namespace peal::comm {
namespace {

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::int64_t number(std::string_view text, std::string_view whole, std::string_view who) {
  if (text == "max") return no_limit;
  std::int64_t value = -1;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  PEAL_CHECK(problem == std::errc{} && end == text.data() + text.size() && value >= 0, who, ": '",
             text, "' in '", whole, "' is no number of bytes (0-8192, or 8193-max)");
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

NamedAlgorithm parse_algorithm(Collective what, std::string_view text, std::string_view who) {
  const auto parts = split(text, '/');
  const Entry* const entry = find(what, parts[0]);
  PEAL_CHECK(parts[0] == "native" || entry != nullptr, who, ": ", name(what), " has no algorithm '",
             parts[0], "'; there are ", names_for(what));
  if (parts.size() == 1) return {parts[0]};
  const bool in_chunks = entry != nullptr && (entry->pipelined || !entry->otherwise.empty());
  PEAL_CHECK(in_chunks, who, ": ", name(what), " by ", parts[0], " knows no chunks, got '", text,
             "'");
  const std::int64_t chunk = number(parts[1], text, who);
  PEAL_CHECK(parts.size() == 2 && chunk > 0 && chunk < no_limit, who,
             ": expected algorithm/bytes of a chunk, got '", text, "'");
  return {parts[0], chunk};
}

Rules::Rules(std::string_view text, std::string_view who) {
  if (text.empty()) return;
  for (const std::string_view clause : split(text, ',')) {
    const auto equals = clause.find('=');
    PEAL_CHECK(equals != std::string_view::npos, who,
               ": expected collective=algorithm[:first-last], got '", clause, "'");
    const auto what = collective(clause.substr(0, equals));
    PEAL_CHECK(what, who, ": there is no collective '", clause.substr(0, equals), "'");
    for (const std::string_view choice : split(clause.substr(equals + 1), ';')) {
      const auto parts = split(choice, ':');
      const NamedAlgorithm named = parse_algorithm(*what, parts[0], who);
      Rule rule{*what, std::string(named.name), named.chunk, 0, no_limit};
      if (parts.size() > 1) {
        const auto range = split(parts[1], '-');
        PEAL_CHECK(parts.size() == 2 && range.size() == 2, who,
                   ": expected algorithm:first-last, got '", choice, "'");
        rule.first = number(range[0], choice, who);
        rule.last = number(range[1], choice, who);
      }
      rules_.push_back(std::move(rule));
    }
  }
}

std::string Rules::Rule::name() const {
  return chunk == 0 ? algorithm : concat(algorithm, "/", chunk);
}

std::string Rules::text() const {
  std::string text;
  const Rule* before = nullptr;
  for (const Rule& rule : rules_) {
    if (before == nullptr || before->what != rule.what) {
      text += concat(before == nullptr ? "" : ",", comm::name(rule.what), "=");
    } else {
      text += ";";
    }
    text += rule.name();
    if (rule.first != 0 || rule.last != no_limit) {
      text += concat(":", rule.first, "-");
      text += rule.last == no_limit ? "max" : concat(rule.last);
    }
    before = &rule;
  }
  return text;
}

Selection::Selection(std::string_view user, int world, int nodes, Measured measured, bool crowded,
                     bool deterministic)
    : world_(world),
      deterministic_(deterministic),
      user_(user, "PEAL_ALGO"),
      measured_(std::move(measured)),
      shared_(default_rules(world, nodes, true, crowded)),
      messages_(default_rules(world, nodes, false, crowded)) {
  for (const Rules::Rule& rule : user_.all())
    check_admitted(rule.what, rule.algorithm, "PEAL_ALGO");
}

bool Selection::admits(const Entry& entry) const {
  return !deterministic_ || !is_reduction(entry.what) || entry.at_once;
}

void Selection::check_admitted(Collective what, std::string_view algorithm,
                               std::string_view who) const {
  const Entry* const entry = find(what, algorithm);
  if (entry != nullptr ? admits(*entry) : !deterministic_ || !is_reduction(what)) return;
  std::string others;
  for (const Entry& other : all_algorithms()) {
    if (other.what == what && admits(other)) {
      others += concat(others.empty() ? "" : ", ", other.name);
    }
  }
  fail(concat(who, ": ", name(what), " by ", algorithm,
              ": in deterministic mode (PEAL_DETERMINISTIC=1) every sum is made from rank 0 to the "
              "last, whatever the size of the message and the place in it, ",
              entry != nullptr ? "and this algorithm adds in other orders"
                               : "and of a library's own collectives nobody knows it",
              "; choose one of ", others, ", or none"));
}

bool Selection::serves(const Rules::Rule& rule, const Means& means) const {
  if (rule.algorithm == "native") return means.native;
  const Entry* const entry = find(rule.what, rule.algorithm);
  return entry->supports(world_) && (means.shared || !entry->one_sided) && admits(*entry);
}

Choice Selection::choose(Collective what, std::int64_t bytes, const Means& means) const {
  const auto chosen = [](const Rules::Rule& rule, std::string_view why, bool asked_for = false) {
    return Choice{rule.algorithm, rule.chunk, asked_for, why};
  };
  const auto fits = [&](const Rules::Rule& rule) { return serves(rule, means); };
  // One that does not serve so many ranks is the user's mistake, and is said to be.
  if (const auto* rule = user_.find(what, bytes, [](const Rules::Rule&) { return true; })) {
    const Entry* const entry = find(what, rule->algorithm);
    const bool can = entry == nullptr ? means.native : means.shared || !entry->one_sided;
    if (can) return chosen(*rule, "PEAL_ALGO", true);
  }
  if (means.on_device && means.native) return {"native", 0, false, "the device's own"};
  if (!means.on_device) {
    const Rules& table = means.shared ? measured_.shared : measured_.messages;
    if (const auto* rule = table.find(what, bytes, fits)) return chosen(*rule, measured_.origin);
  }
  const Rules& table = means.shared ? shared_ : messages_;
  if (const auto* rule = table.find(what, bytes, fits)) return chosen(*rule, "built in");
  for (const Entry& entry : algorithms()) {
    if (entry.what == what && entry.supports(world_) && admits(entry)) {
      return {entry.name, 0, false, "built in"};
    }
  }
  fail(concat("selection: no algorithm for ", name(what), " of ", world_, " ranks"));
}

}  // namespace peal::comm

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <peal/autograd/core/error.h>
#include <peal/launch/tools/schedule/world.h>

#include <charconv>
#include <utility>

namespace peal::launch {

using comm::Collective;
using comm::Entry;

World make_world(Collective what, int ranks, std::int64_t n, int node_size, int root,
                 std::int64_t chunk) {
  return {.what = what,
          .ranks = ranks,
          .root = root,
          .counts = comm::even_counts(what, ranks, n),
          .nodes = comm::nodes_of(ranks, node_size > 0 ? node_size : ranks),
          .chunk = chunk};
}

Collective collective_named(std::string_view wanted) {
  std::string all;
  for (const Collective what : comm::all_collectives) {
    if (name(what) == wanted) return what;
    all += fmt::format(" {}", name(what));
  }
  fail(fmt::format("there is no collective '{}'; there are:{}", wanted, all));
}

Entry entry_named(Collective what, std::string_view wanted) {
  std::string all;
  for (const Entry& entry : comm::all_algorithms()) {
    if (entry.what != what) continue;
    if (entry.name == wanted) return entry;
    all += fmt::format(" {}", entry.name);
  }
  fail(fmt::format("{} has no algorithm '{}'; it has:{}", name(what), wanted, all));
}

void check_supports(const Entry& entry, int ranks) {
  PEAL_CHECK(ranks >= 1, "expected at least one rank, got ", ranks);
  PEAL_CHECK(entry.supports(ranks), name(entry.what), " by ", entry.name, " has no plan for ",
             ranks, " ranks: it needs a power of two");
}

namespace {

std::int64_t parse_size(std::string_view text, std::string_view whole) {
  std::int64_t value = -1;
  const char* end = text.data() + text.size();
  auto [at, problem] = std::from_chars(text.data(), end, value);
  for (const auto& [letter, shift] : {std::pair('K', 10), {'M', 20}, {'G', 30}}) {
    if (problem == std::errc{} && at + 1 == end && *at == letter) {
      value <<= shift;
      ++at;
    }
  }
  PEAL_CHECK(problem == std::errc{} && at == end && value >= 0, "expected a number, got '", text,
             "' in '", whole, "'");
  return value;
}

// Calls with both ends of each range, apart by commas.
template <class Range>
void for_ranges(std::string_view text, Range range) {
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    const auto dash = part.find('-');
    const std::int64_t first = parse_size(part.substr(0, dash), text);
    range(first, dash == std::string_view::npos ? first : parse_size(part.substr(dash + 1), text));
  }
}

}  // namespace

std::vector<int> parse_ranks(std::string_view text) {
  std::vector<int> ranks;
  for_ranges(text, [&](std::int64_t first, std::int64_t last) {
    PEAL_CHECK(first >= 1 && last <= 1 << 20, "expected 1 to 1048576 ranks, got '", text, "'");
    for (std::int64_t r = first; r <= last; ++r) ranks.push_back(static_cast<int>(r));
  });
  return ranks;
}

std::vector<std::int64_t> parse_sizes(std::string_view text) {
  std::vector<std::int64_t> sizes;
  for_ranges(text, [&](std::int64_t first, std::int64_t last) {
    PEAL_CHECK(first >= 1, "expected sizes of at least 1, got '", text, "'");
    for (std::int64_t size = first; size <= last; size *= 2) sizes.push_back(size);
  });
  return sizes;
}

std::string bytes_text(std::int64_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.2f} us", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.3f} ms", seconds * 1e3) : fmt::format("{:.3f} s", seconds);
}

std::string rate_text(double bytes_a_second) {
  if (bytes_a_second < 1e6) return fmt::format("{:g} kB/s", bytes_a_second / 1e3);
  if (bytes_a_second < 1e9) return fmt::format("{:g} MB/s", bytes_a_second / 1e6);
  return fmt::format("{:g} GB/s", bytes_a_second / 1e9);
}

}  // namespace peal::launch

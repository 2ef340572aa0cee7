// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/group/tuning.h>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <utility>

namespace peal::comm {
namespace {

constexpr std::string_view version = "peal tuning 1", last_word = "digest ";

std::string digest_of(std::string_view text) { return fmt::format("{:016x}", digest(text)[0]); }

std::string_view take_line(std::string_view& rest) {
  const auto end = std::min(rest.find('\n'), rest.size());
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(rest.size(), end + 1));
  return line;
}

// Of a file that may be anything: what a person can read of it.
std::string shown(std::string_view text) {
  std::string start(text.substr(0, 60));
  std::ranges::replace_if(
      start, [](unsigned char letter) { return letter < ' ' || letter > '~'; }, '?');
  return start + (text.size() > start.size() ? ".." : "");
}

// What follows the word, if the line begins with it.
std::optional<std::string_view> after(std::string_view word, std::string_view line) {
  if (!line.starts_with(word)) return std::nullopt;
  return line.substr(word.size());
}

constexpr std::string_view few_cores = ", fewer cores";

// Takes "WORD, 2 ranks, 1 nodes", and what says that these were too many.
Tuning::Group parse_group(std::string_view text) {
  Tuning::Group group;
  std::string_view rest = text;
  const auto comma = rest.find(", ");
  const auto number = [&](std::string_view unit) {
    int value = 0;
    const auto [end, problem] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    PEAL_CHECK(problem == std::errc{} && value > 0 && rest.starts_with(unit),
               "expected a group as 'mpi, 2 ranks, 1 nodes', got '", text, "'");
    rest.remove_prefix(unit.size());
    return value;
  };
  group.transport = rest.substr(0, comma);
  rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 2);
  group.ranks = number(" ranks, ");
  group.nodes = number(" nodes");
  group.crowded = rest == few_cores;
  PEAL_CHECK(rest.empty() || group.crowded, "expected a group to end with its nodes, or with '",
             few_cores, "', got '", text, "'");
  return group;
}

// Of a collective the rules cover all sizes, in order: a size that is missing, or there twice, was
// not written by anybody who had measured it.
Rules parse_rules(std::string_view text) {
  Rules rules(text, "rules");
  std::map<Collective, std::int64_t> next;  // the size that its next rule has to begin at
  for (const Rules::Rule& rule : rules.all()) {
    const auto [at, fresh] = next.try_emplace(rule.what, 0);
    PEAL_CHECK(rule.first == at->second && rule.last >= rule.first, name(rule.what),
               ": expected a rule for ", at->second, " bytes on, got ", rule.name(), ":",
               rule.first, "-", rule.last);
    at->second = rule.last == std::numeric_limits<std::int64_t>::max() ? -1 : rule.last + 1;
  }
  for (const auto& [what, size] : next) {
    PEAL_CHECK(size == -1, name(what), ": no rule for ", size, " bytes and more");
  }
  return rules;
}

// An own line of /proc/cpuinfo, the first of them.
std::string of_cpu(std::string_view key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

}  // namespace

Tuning Tuning::parse(std::string_view text) {
  std::string_view rest = text;
  const std::string_view first = take_line(rest);
  PEAL_CHECK(first == version, "expected '", version, "' in the first line, got '", shown(first),
             "'");
  const auto end = text.rfind(last_word);
  PEAL_CHECK(end != std::string_view::npos && text.ends_with("\n"),
             "its end is missing: it was cut off");
  std::string_view last = text.substr(end + last_word.size());
  PEAL_CHECK(take_line(last) == digest_of(text.substr(0, end)) && last.empty(),
             "its digest is not that of its lines: it was changed by hand, or is damaged");
  Tuning tuning;
  rest = rest.substr(0, rest.rfind(last_word));
  while (!rest.empty()) {
    const std::string_view line = take_line(rest);
    if (line.empty() || line.starts_with("#")) continue;
    if (const auto machine = after("machine ", line)) {
      tuning.machine = *machine;
    } else if (const auto group = after("group ", line)) {
      tuning.groups.push_back(parse_group(*group));
    } else {
      const auto shared = after("shared ", line), messages = after("messages ", line);
      PEAL_CHECK((shared || messages) && !tuning.groups.empty(), "a line is not known: '", line,
                 "'");
      if (shared) tuning.groups.back().shared = parse_rules(*shared);
      if (messages) tuning.groups.back().messages = parse_rules(*messages);
    }
  }
  return tuning;
}

std::string Tuning::text() const {
  std::string text = concat(
      version, "\n# By `peal-schedule calibrate`. Remove it to go back to what is built in.\n",
      "machine ", machine, "\n");
  for (const Group& group : groups) {
    text += concat("group ", group.transport, ", ", group.ranks, " ranks, ", group.nodes, " nodes",
                   group.crowded ? few_cores : "", "\n");
    if (!group.shared.all().empty()) text += concat("shared ", group.shared.text(), "\n");
    if (!group.messages.all().empty()) text += concat("messages ", group.messages.text(), "\n");
  }
  return concat(text, last_word, digest_of(text), "\n");
}

void Tuning::put(Group group) {
  const auto same = std::ranges::find_if(groups, [&](const Group& other) {
    return other.transport == group.transport && other.ranks == group.ranks &&
           other.nodes == group.nodes && other.crowded == group.crowded;
  });
  if (same == groups.end()) {
    groups.push_back(std::move(group));
    return;
  }
  if (!group.shared.all().empty()) same->shared = std::move(group.shared);
  if (!group.messages.all().empty()) same->messages = std::move(group.messages);
}

const Tuning::Group* Tuning::nearest(std::string_view transport, int ranks, int nodes,
                                     bool crowded) const {
  const auto ratio = [](int a, int b) {
    return static_cast<double>(std::max(a, b)) / static_cast<double>(std::min(a, b));
  };
  const Group* best = nullptr;
  double least = 2;
  for (const Group& group : groups) {
    if (group.transport != transport || (group.nodes == 1) != (nodes == 1)) continue;
    if (group.crowded != crowded) continue;
    const double off = std::max(ratio(group.ranks, ranks), ratio(group.nodes, nodes));
    if (off > least || (off == least && best != nullptr)) continue;
    least = off;
    best = &group;
  }
  return best;
}

// Machines that name no model (ARM's) have numbers.
std::string this_machine() {
  std::string model = of_cpu("model name");
  if (model.empty()) model = concat(of_cpu("CPU implementer"), " ", of_cpu("CPU part"));
  return concat(sysconf(_SC_NPROCESSORS_ONLN), " cores, ", model);
}

TuningPath tuning_path() {
  if (const char* said = std::getenv("PEAL_TUNING")) {
    const std::string_view text = said;
    if (text == "0" || text == "off" || text.empty()) return {};
    return {said, true};
  }
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  std::filesystem::path folder;
  if (cache != nullptr && *cache == '/') {
    folder = cache;
  } else if (home != nullptr && *home != 0) {
    folder = std::filesystem::path(home) / ".cache";
  } else {
    return {};
  }
  // Machines may have the folder in common.
  return {folder / "peal" / concat("tuning-", digest_of(this_machine())), false};
}

std::string read_tuning(const std::string& path) {
  if (path.empty()) return {};
  try {
    constexpr std::uintmax_t most_bytes = 1 << 20;
    PEAL_CHECK(std::filesystem::is_regular_file(path), "there is no such file");
    PEAL_CHECK(std::filesystem::file_size(path) <= most_bytes, "it is too large");
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    PEAL_CHECK(file.good() || file.eof(), "it cannot be read");
    const Tuning tuning = Tuning::parse(text);
    PEAL_CHECK(tuning.machine == this_machine(), "it is for another machine, '", tuning.machine,
               "'; this one is '", this_machine(), "'");
    return concat(path, "\n", text);
  } catch (const std::exception& error) {
    log_warning("[comm] the tuning file ", path, " is not used: ", error.what(),
                "; the built-in choices are. `peal-schedule calibrate` makes a new one, "
                "PEAL_TUNING=0 does without");
    return {};
  }
}

Selection::Measured measured_for(std::string_view read, std::string_view transport, int ranks,
                                 int nodes, bool crowded) {
  if (read.empty()) return {};
  const std::string_view path = take_line(read);
  const Tuning tuning = Tuning::parse(read);
  const Tuning::Group* const found = tuning.nearest(transport, ranks, nodes, crowded);
  if (found == nullptr) return {};
  return {concat("measured on ", found->ranks, " ranks, ", path), found->shared, found->messages};
}

void save_tuning(const std::string& path, const Tuning& tuning) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code problem;
  if (!folder.empty()) std::filesystem::create_directories(folder, problem);
  PEAL_CHECK(!problem, "cannot make the folder ", folder.string(), ": ", problem.message());
  const std::string text = tuning.text();
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace peal::comm

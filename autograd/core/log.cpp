// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/fork.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/told_warnings.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace peal {
namespace {

LogLevel least_level() {
  const char* value = std::getenv("PEAL_LOG");
  const std::string_view text = value ? value : "info";
  if (text == "debug") return LogLevel::debug;
  if (text == "warning") return LogLevel::warning;
  if (text == "error") return LogLevel::error;
  if (text == "silent") return LogLevel::silent;
  return LogLevel::info;
}

void write_log_line(std::string line) {
  line += '\n';
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

// FNV-1a, which is the same in all processes.
std::uint64_t hash_of_words(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  }
  return hash;
}

// Of a thread's tag; -1: it is no rank's.
int rank_in_tag(std::string_view tag) {
  constexpr std::string_view begin = "rank ";
  int rank = -1;
  if (tag.starts_with(begin)) {
    std::from_chars(tag.data() + begin.size(), tag.data() + tag.size(), rank);
  }
  return rank;
}

// What this process has told, and where it is counted. Of tables that it shares the last counts.
struct ToldHere {
  struct Line {
    std::string text;
    std::uint64_t words;
    std::shared_ptr<ToldWarnings> table;
    std::size_t times = 1;  // that people know of

    void tell_if_repeated() {
      const ToldWarnings::Times said = table->times(words);
      if (said.times > times) write_log_line(text + in_brackets(said));
      times = std::max(times, said.times);
    }
  };
  static constexpr std::size_t most_lines = 1000;
  ForkMark mark;
  std::mutex mutex;
  std::vector<std::shared_ptr<ToldWarnings>> tables{std::make_shared<ToldWarnings>()};
  std::vector<Line> lines;

  // True for the first of all who say so.
  bool add(const std::string& line, std::string_view text, int rank) {
    const std::uint64_t words =
        hash_of_words(rank < 0 ? std::string(text) : without_rank(text, rank));
    const std::lock_guard lock(mutex);
    if (!tables.back()->say(words, rank)) return false;
    if (lines.size() < most_lines) lines.push_back({line, words, tables.back()});
    return true;
  }
};

// A child by fork begins anew: of what its parent has, some thread may hold the lock for ever.
std::atomic<ToldHere*> told_by_process{nullptr};

ToldHere& told_here() {
  ToldHere* now = told_by_process.load();
  while (now == nullptr || now->mark.inherited()) {
    auto fresh = std::make_unique<ToldHere>();
    if (now == nullptr) std::atexit(tell_repeated_warnings);
    if (told_by_process.compare_exchange_strong(now, fresh.get())) return *fresh.release();
  }
  return *now;
}

}  // namespace

void share_told_warnings(const std::shared_ptr<ToldWarnings>& with) {
  ToldHere& here = told_here();
  const std::lock_guard lock(here.mutex);
  here.tables.push_back(with);
}

void part_told_warnings(const std::shared_ptr<ToldWarnings>& with) {
  ToldHere& here = told_here();
  const std::lock_guard lock(here.mutex);
  std::erase_if(here.lines, [&](ToldHere::Line& line) {  // whose memory goes with it
    if (line.table != with) return false;
    line.tell_if_repeated();
    return true;
  });
  std::erase(here.tables, with);
}

void tell_repeated_warnings() {
  ToldHere& here = told_here();
  const std::lock_guard lock(here.mutex);
  for (ToldHere::Line& line : here.lines) line.tell_if_repeated();
}

void forget_told_warnings() {
  ToldHere& here = told_here();
  const std::lock_guard lock(here.mutex);
  here.lines.clear();
  here.tables.assign(1, std::make_shared<ToldWarnings>());
}

void log_line(LogLevel level, std::string_view text) {
  static const LogLevel least = least_level();
  if (level < least) return;
  const std::string& tag = context().log_tag;
  std::string line;
  if (!tag.empty()) line = concat("[", tag, "] ");
  if (level == LogLevel::warning) line += "warning: ";
  if (level == LogLevel::error) line += "error: ";
  line += text;
  if (level == LogLevel::warning && !told_here().add(line, text, rank_in_tag(tag))) return;
  write_log_line(std::move(line));
}

}  // namespace peal

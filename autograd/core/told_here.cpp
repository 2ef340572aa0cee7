// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/fork.h>
#include <peal/autograd/core/told_here.h>
#include <peal/autograd/core/write_line.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

namespace peal {
namespace {

// FNV-1a, which is the same in all processes.
std::uint64_t hash_of_words(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  }
  return hash;
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
      if (said.times > times) write_line(text + in_brackets(said));
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

bool tell_first(const std::string& line, std::string_view text, int rank) {
  return told_here().add(line, text, rank);
}

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

}  // namespace peal

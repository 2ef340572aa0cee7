// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/told_here.h>
#include <peal/autograd/core/write_line.h>

#include <charconv>
#include <cstdlib>
#include <string>
#include <utility>

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

// Of a thread's tag; -1: it is no rank's.
int rank_in_tag(std::string_view tag) {
  constexpr std::string_view begin = "rank ";
  int rank = -1;
  if (tag.starts_with(begin)) {
    std::from_chars(tag.data() + begin.size(), tag.data() + tag.size(), rank);
  }
  return rank;
}

}  // namespace

void log_line(LogLevel level, std::string_view text) {
  static const LogLevel least = least_level();
  if (level < least) return;
  const std::string& tag = context().log_tag;
  std::string line;
  if (!tag.empty()) line = concat("[", tag, "] ");
  if (level == LogLevel::warning) line += "warning: ";
  if (level == LogLevel::error) line += "error: ";
  line += text;
  if (level == LogLevel::warning && !tell_first(line, text, rank_in_tag(tag))) return;
  write_line(std::move(line));
}

}  // namespace peal

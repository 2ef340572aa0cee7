// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/log.h>

#include <unistd.h>

#include <cstdlib>
#include <string>

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

}  // namespace

void log_line(LogLevel level, std::string_view text) {
  static const LogLevel least = least_level();
  if (level < least) return;
  std::string line;
  if (!context().log_tag.empty()) line = concat("[", context().log_tag, "] ");
  if (level == LogLevel::warning) line += "warning: ";
  if (level == LogLevel::error) line += "error: ";
  line += text;
  line += '\n';
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace peal

// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/progress_bar.h>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <string_view>

namespace peal::launch {

using Clock = std::chrono::steady_clock;

namespace {

// mpirun puts a pipe between the ranks and the terminal; peal-mpirun, which sees the terminal, says
// so.
bool is_live(const ProgressOutput& to) {
  if (to.live) return *to.live;
  const char* said = std::getenv("PEAL_PROGRESS");
  if (said != nullptr) return std::string_view(said) == "live";
  return to.stream == nullptr && isatty(STDERR_FILENO) != 0;
}

bool is_wanted() {
  const char* said = std::getenv("PEAL_PROGRESS");
  return said == nullptr || std::string_view(said) != "none";
}

}  // namespace

ProgressBar::ProgressBar(std::string title, std::int64_t total, bool shown,
                         const ProgressOutput& to)
    : title_(std::move(title)),
      total_(std::max<std::int64_t>(total, 1)),
      stream_(to.stream),
      shown_(shown && is_wanted()),
      live_(is_live(to)),
      start_(Clock::now()) {}

void ProgressBar::update(std::int64_t done, const std::string& note) {
  if (!shown_) return;
  const auto now = Clock::now();
  if (live_) {
    if (now - drawn_ < std::chrono::milliseconds(100)) return;
    drawn_ = now;
    draw(done, note, false);
  } else if (done < total_ && done * 10 / total_ > tenth_) {
    tenth_ = done * 10 / total_;
    draw(done, note, false);
  }
}

void ProgressBar::leave(std::int64_t done, const std::string& note) {
  if (shown_) draw(done, note, true);
}

void ProgressBar::draw(std::int64_t done, const std::string& note, bool last) {
  constexpr int width = 24;
  const double part = static_cast<double>(std::min(done, total_)) / static_cast<double>(total_);
  const double spent = std::chrono::duration<double>(Clock::now() - start_).count();
  const double left = part > 0 ? spent / part - spent : 0;
  std::string bar;
  for (int i = 0; i < width; ++i) bar += i < static_cast<int>(part * width) ? "█" : "░";
  std::string line =
      fmt::format("{} {} {:3.0f} %  {}/{}  {:.0f} s{}  {}", title_, bar, part * 100, done, total_,
                  spent, last ? "" : fmt::format(", {:.0f} s left", left), note);
  line = live_ ? "\r\033[K" + line + (last ? "\n" : "") : line + "\n";
  if (stream_ != nullptr) {
    *stream_ << line << std::flush;
    return;
  }
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace peal::launch

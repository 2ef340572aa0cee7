// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/run/output.h>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace peal::launch {

void Output::add(std::string_view text) {
  if (!broken_) text_ += text;
}

// Of a pipe with room that many bytes go at once; others may have the stream too, which therefore
// stays as it is, and is not made one that never waits.
void Output::write_some() {
  const ssize_t written =
      write(fd_, text_.data(), std::min(text_.size(), static_cast<std::size_t>(PIPE_BUF)));
  if (written > 0) {
    text_.erase(0, static_cast<std::size_t>(written));
  } else if (errno != EINTR && errno != EAGAIN) {
    broken_ = true;
    text_.clear();
  }
}

void Output::flush(int wakes, const std::function<bool()>& hurries) {
  while (waits()) {
    pollfd files[]{{.fd = fd_, .events = POLLOUT, .revents = 0},
                   {.fd = wakes, .events = POLLIN, .revents = 0}};
    const int ready = poll(files, 2, hurries() ? 0 : -1);
    if (ready == 0) return;
    if (ready > 0 && files[0].revents != 0) write_some();
  }
}

Lines::Lines(OpenFile pipe, std::string tag, Output& to)
    : pipe_(std::move(pipe)), tag_(std::move(tag)), to_(&to) {
  fcntl(pipe_.fd(), F_SETFL, fcntl(pipe_.fd(), F_GETFL) | O_NONBLOCK);
}

void Lines::put(std::string_view line) {
  if (record_ && line.starts_with(record_mark)) return record_(line.substr(1));
  if (record_ && line.starts_with(print_mark)) line.remove_prefix(1);
  to_->add(tag_);
  to_->add(line);
  to_->add("\n");
}

void Lines::take(std::string_view text) {
  for (std::size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1)) {
    if (begun_.empty()) {
      put(text.substr(0, end));
    } else {
      put(begun_ += text.substr(0, end));
      begun_.clear();
    }
  }
  begun_ += text;
  if (begun_.size() > (record_ ? 2 * longest : longest)) put(std::exchange(begun_, {}));
}

bool Lines::read_some() {
  if (fd() < 0) return false;
  char room[1 << 14];
  const ssize_t got = read(fd(), room, sizeof room);
  if (got > 0) take({room, static_cast<std::size_t>(got)});
  if (got == 0) end();
  return got > 0;
}

void Lines::end() {
  if (!begun_.empty()) put(std::exchange(begun_, {}));
  pipe_.close();
}

}  // namespace peal::launch

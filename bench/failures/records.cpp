// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/bench/failures/records.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace peal::failures {

Records::Records(const std::string& folder, int rank) {
  const std::string path = concat(folder, "/rank.", rank);
  file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  PEAL_CHECK(file_ >= 0, path, ": cannot be written: ", std::strerror(errno));
}

Records::~Records() { close(file_); }

void Records::write(const char* word, std::string text) const {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  std::replace(text.begin(), text.end(), '\n', ' ');
  const std::string line =
      concat(word, " ", std::chrono::nanoseconds(now).count(), " ", text, "\n");
  const auto written = ::write(file_, line.data(), line.size());
  PEAL_CHECK(written == static_cast<ssize_t>(line.size()), "a record was not written");
}

}  // namespace peal::failures

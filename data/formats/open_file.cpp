// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/formats/open_file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace peal::data {

OpenFile::OpenFile(const std::filesystem::path& path) : name_(path.string()) {
  file_ = ::open(name_.c_str(), O_RDONLY | O_CLOEXEC);
  PEAL_CHECK(file_ >= 0 || errno != ENOENT, "[data] ", name_, ": no such file");
  PEAL_CHECK(file_ >= 0, "[data] ", name_, ": cannot open: ", std::strerror(errno));
  struct stat status {};
  if (::fstat(file_, &status) == 0 && S_ISREG(status.st_mode)) return;
  ::close(file_);
  fail(concat("[data] ", name_, ": expected a file, got ",
              S_ISDIR(status.st_mode) ? "a folder" : "something else"));
}

OpenFile::~OpenFile() { ::close(file_); }

OpenFile::Stamp OpenFile::stamp() const {
  struct stat status {};
  PEAL_CHECK(::fstat(file_, &status) == 0, "[data] ", name_,
             ": cannot be looked at: ", std::strerror(errno));
  return {static_cast<std::uint64_t>(status.st_size),
          std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

std::size_t OpenFile::read(std::uint64_t at, std::span<std::uint8_t> to) const {
  std::size_t got = 0;
  while (got < to.size()) {
    const ssize_t now =
        ::pread(file_, to.data() + got, to.size() - got, static_cast<off_t>(at + got));
    if (now < 0 && errno == EINTR) continue;
    PEAL_CHECK(now >= 0, "[data] ", name_, ": cannot read: ", std::strerror(errno));
    if (now == 0) break;
    got += static_cast<std::size_t>(now);
  }
  return got;
}

}  // namespace peal::data

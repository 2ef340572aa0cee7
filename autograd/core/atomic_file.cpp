// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

namespace peal {

void AtomicFile::fail_at(const char* action) const {
  const std::string reason = std::generic_category().message(errno);
  fail(concat("save ", path_.string(), ": ", action, " failed after ", written_, " bytes: ", reason,
              "; what was at that path before is untouched"));
}

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    PEAL_CHECK(std::filesystem::is_regular_file(path), "save ", path.string(),
               ": something that is not a regular file stands there; name another path");
    path_ = std::filesystem::canonical(path);
  }
  for (int i = 0; file_ < 0; ++i) {
    temporary_ = path_;
    temporary_ += concat(".", ::getpid(), ".", i, ".tmp");
    file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0 && errno != EEXIST) fail_at("opening a temporary file beside it");
  }
}

AtomicFile::~AtomicFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(file_, next, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_at("writing");
    next += n;
    bytes -= static_cast<std::size_t>(n);
    written_ += static_cast<std::uint64_t>(n);
  }
}

void AtomicFile::commit() {
  if (::fsync(file_) != 0) fail_at("flushing to the disk");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_at("renaming");
  ::close(file_);
  file_ = -1;
  // Some file systems cannot flush a folder; the rename then lasts as soon as they get to it.
  std::filesystem::path folder = path_.parent_path();
  if (folder.empty()) folder = ".";
  const int handle = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle >= 0) {
    ::fsync(handle);
    ::close(handle);
  }
}

}  // namespace peal

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/launch/training/folder_lock.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

namespace peal::launch {
namespace {

// What its owner has written there.
std::string owner_in(int file) {
  char text[512];
  const ssize_t got = pread(file, text, sizeof text, 0);
  const std::string owner(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  return owner.empty() ? "it does not say who" : owner;
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder) {
  const auto path = folder / ".lock";
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  struct flock whole {};
  whole.l_type = F_WRLCK;
  if (file_ >= 0 && fcntl(file_, F_SETLK, &whole) == 0) {
    char host[HOST_NAME_MAX + 1] = {};
    gethostname(host, HOST_NAME_MAX);
    const std::string owner = concat("host ", host, ", process ", getpid());
    [[maybe_unused]] const bool said =
        ftruncate(file_, 0) == 0 && pwrite(file_, owner.data(), owner.size(), 0) > 0;
    return;
  }
  const int error = errno;
  bool is_held = file_ >= 0 && (error == EACCES || error == EAGAIN);
  if (file_ < 0 &&
      error == EACCES) {  // another user's, whom this one may ask, and not take it from
    file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    is_held = file_ >= 0 && fcntl(file_, F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
  }
  const std::string owner = is_held ? owner_in(file_) : "";
  if (file_ >= 0) close(file_);
  file_ = -1;
  PEAL_CHECK(!is_held, "save ", folder.string(), ": another run saves there (", owner,
             "); end it, or save elsewhere");
  log_warning("save ", folder.string(), ": no lock for ", path.string(), ": ", std::strerror(error),
              "; see to it yourself that no other run saves there");
}

FolderLock::~FolderLock() {
  if (file_ >= 0) close(file_);
}

}  // namespace peal::launch

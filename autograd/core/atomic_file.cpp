// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace peal {

namespace {

// This host, as a part of a file's name.
std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "host";
  std::replace(name, name + std::strlen(name), '/', '_');
  return name;
}

// Of target.HOST.PID.N.tmp, as create() calls a temporary file, target.HOST; nothing of others.
std::string_view target_and_host(std::string_view name) {
  const auto ends = [&](std::string_view end) {
    const bool right = name.ends_with(end);
    name.remove_suffix(right ? end.size() : name.size());
    return right;
  };
  const auto ends_with_number = [&] {
    const std::size_t last = name.find_last_not_of("0123456789");
    const bool right = last != std::string_view::npos && last + 1 < name.size();
    name.remove_suffix(right ? name.size() - last - 1 : name.size());
    return right;
  };
  const bool is_one =
      ends(".tmp") && ends_with_number() && ends(".") && ends_with_number() && ends(".");
  return is_one ? name : std::string_view();
}

// Other hosts' are theirs: where locks stay within a host, as on some network file systems, a file
// at work there looks like one that was left. A host's name may have dots, as a target's may.
bool is_temporary_of(const std::function<bool(std::string_view target)>& is_target,
                     std::string_view name, bool of_all_hosts) {
  const std::string_view both = target_and_host(name);
  const std::string here = "." + host_name();
  if (!of_all_hosts) {
    return both.size() > here.size() && both.ends_with(here) &&
           is_target(both.substr(0, both.size() - here.size()));
  }
  for (std::size_t dot = both.find('.', 1); dot < both.size(); dot = both.find('.', dot + 1))
    if (dot + 1 < both.size() && is_target(both.substr(0, dot))) return true;
  return false;
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

void AtomicFile::fail_at(const char* action) const {
  const int number = errno;
  const bool full = number == ENOSPC || number == EDQUOT;
  fail(concat("save ", path_.string(), ": ", action, " failed after ", written_,
              " bytes: ", std::generic_category().message(number),
              full ? "; make room there or save elsewhere" : "",
              "; what was at that path before is untouched"));
}

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    PEAL_CHECK(std::filesystem::is_regular_file(path), "save ", path.string(),
               ": something that is not a regular file stands there; name another path");
    path_ = std::filesystem::canonical(path);
  }
  remove_stale_temporaries(folder_of(path_),
                           [own = path_.filename().string()](auto name) { return name == own; });
  for (int i = 0; !create(i); ++i) {
  }
  struct stat old;
  if (::stat(path_.c_str(), &old) == 0) {
    // The owner first: changing it takes permissions away. Only root may give a file to another,
    // and others only to groups they are in; what the old group may do is not for the writer's.
    mode_t mode = old.st_mode & 0777;
    if (::fchown(file_, old.st_uid, old.st_gid) != 0 &&
        ::fchown(file_, static_cast<uid_t>(-1), old.st_gid) != 0) {
      mode &= ~static_cast<mode_t>(S_IRWXG);
    }
    ::fchmod(file_, mode);
  }
}

// False where the name is taken, or was while another process held it for stale.
bool AtomicFile::create(int number) {
  temporary_ = path_;
  temporary_ += concat(".", host_name(), ".", ::getpid(), ".", number, ".tmp");
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file_ < 0 && errno == EEXIST) return false;
  if (file_ < 0) fail_at("opening a temporary file beside it");
  ::flock(file_, LOCK_EX);  // where there are no locks, nobody can hold it for stale either
  struct stat here;
  if (::fstat(file_, &here) == 0 && here.st_nlink > 0) return true;
  ::close(std::exchange(file_, -1));
  return false;
}

void remove_stale_temporaries(const std::filesystem::path& folder,
                              const std::function<bool(std::string_view target)>& is_target,
                              bool of_all_hosts) {
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error), end;
  for (; !error && entries != end; entries.increment(error)) {
    const std::filesystem::path& entry = entries->path();
    if (!is_temporary_of(is_target, entry.filename().string(), of_all_hosts)) continue;
    // To write, which an exclusive lock on NFS takes.
    constexpr int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    int file = ::open(entry.c_str(), O_RDWR | flags);
    if (file < 0) file = ::open(entry.c_str(), O_RDONLY | flags);
    if (file < 0) continue;
    // The lock is its writer's as long as that lives. Between open and flock the file may have been
    // renamed to its target; then the name is no longer this file's.
    struct stat locked, named;
    if (::flock(file, LOCK_EX | LOCK_NB) == 0 && ::fstat(file, &locked) == 0 &&
        ::lstat(entry.c_str(), &named) == 0 && same_file(locked, named)) {
      ::unlink(entry.c_str());
    }
    ::close(file);
  }
}

AtomicFile::~AtomicFile() {
  if (file_ < 0) return;
  ::unlink(temporary_.c_str());
  ::close(file_);  // last, with the lock: nobody takes the name in between
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

void AtomicFile::overwrite(std::uint64_t at, const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(file_, next, bytes, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_at("writing");
    next += n;
    at += static_cast<std::uint64_t>(n);
    bytes -= static_cast<std::size_t>(n);
  }
}

void AtomicFile::commit(Flush flush) {
  if (flush == Flush::yes && ::fsync(file_) != 0) fail_at("flushing to the disk");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_at("renaming");
  ::close(file_);
  file_ = -1;
  if (flush == Flush::no) return;
  flush_folder(folder_of(path_));
}

// Where it cannot be, what was renamed there lasts as soon as the file system gets to it.
void flush_folder(const std::filesystem::path& folder) {
  const int handle = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) return;
  ::fsync(handle);
  ::close(handle);
}

}  // namespace peal

// SPDX-License-Identifier: Apache-2.0
// Files without a name (O_TMPFILE) in /dev/shm, and file systems that have none: a program that
// includes this, once, has the system's open() but where a test refuses them.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdarg>
#include <string_view>

namespace peal::testing {

inline int nameless_refusal = 0;  // what making one ends with (EOPNOTSUPP, EACCES); 0: it is made

}  // namespace peal::testing

extern "C" int open(const char* path, int flags, ...) {
  const bool nameless = (flags & O_TMPFILE) == O_TMPFILE;
  mode_t mode = 0;
  if (nameless || (flags & O_CREAT) != 0) {
    std::va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  if (nameless && peal::testing::nameless_refusal != 0 && std::string_view(path) == "/dev/shm") {
    errno = peal::testing::nameless_refusal;
    return -1;
  }
  using Open = int(const char*, int, ...);
  static auto* const system = reinterpret_cast<Open*>(dlsym(RTLD_NEXT, "open"));
  return system(path, flags, mode);
}

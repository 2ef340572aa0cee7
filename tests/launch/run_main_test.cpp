// SPDX-License-Identifier: Apache-2.0
// How run_main() ends a program: with a line and a status, whatever escapes it.
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/launch/job.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

using namespace peal;
using testing::check_has;
using testing::stderr_of;

namespace {

struct End {
  int status;        // -1: not by exit
  std::string said;  // on standard error
};

End end_of(const std::function<void(launch::Job&)>& f) {
  End end{-1, ""};
  end.said = stderr_of([&] {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      try {
        ::_exit(launch::run_main(f));
      } catch (...) {
        ::_exit(99);
      }
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    if (WIFEXITED(status)) end.status = WEXITSTATUS(status);
  });
  return end;
}

}  // namespace

TEST_CASE(
    "whatever escapes a program is told in a line, and ends it with 1; what it repeated is "
    "counted") {
  const End good =
      end_of([](launch::Job& job) { PEAL_CHECK(job.world() == 1, "world ", job.world()); });
  CHECK(good.status == 0);
  const End repeated = end_of([](launch::Job&) {
    for (int i = 0; i < 3; ++i) log_warning("it is slow");
  });
  CHECK(repeated.status == 0);
  check_has(repeated.said, "warning: it is slow\n");
  check_has(repeated.said, "warning: it is slow (x3)\n");
  const End error = end_of([](launch::Job&) { fail("no such file"); });
  CHECK(error.status == 1);
  check_has(error.said, "no such file");
  const End number = end_of([](launch::Job&) { throw 42; });
  CHECK(number.status == 1);
  check_has(number.said, "an exception that is no std::exception");
}

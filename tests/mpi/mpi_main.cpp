// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT
#include "mpi_main.h"

#include <doctest/doctest.h>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace {

std::unique_ptr<peal::launch::Job> the_job;

}  // namespace

namespace peal::testing {

launch::Job& job() { return *the_job; }

}  // namespace peal::testing

int main(int argc, char** argv) {
  the_job = std::make_unique<peal::launch::Job>();
  doctest::Context context(argc, argv);
  if (!the_job->is_main()) context.setOption("no-version", true);
  const int status = context.run();
  if (status != 0) {  // the others may wait for this rank: tell them, and wait for nobody
    the_job->group().poison(peal::concat("[test] a check failed on rank ", the_job->rank()));
    std::fflush(nullptr);
    std::_Exit(status);
  }
  the_job.reset();
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Handles that outlive their job, as static ones do: what is called on them after MPI's end is an
// error in peal's words, and their own end is quiet. 0 where all is so.
#include <peal/autograd/core/error.h>
#include <peal/launch/job.h>

#include <cstdio>
#include <functional>
#include <string>

using namespace peal;

namespace {

int wrong = 0;

void expect_end(const char* what, const std::function<void()>& f) {
  std::string said = "nothing";
  try {
    f();
  } catch (const Error& error) {
    said = error.what();
  }
  if (said.find("MPI has come to its end") != std::string::npos) return;
  ++wrong;
  std::printf("%s: expected an error of MPI's end, got: %s\n", what, said.c_str());
}

}  // namespace

int main() {
  static comm::ProcessGroup world, part;
  static comm::Work work;
  static Tensor data;
  const int status = launch::run_main([](launch::Job& job) {
    world = job.group();
    part = world.split(0);
    data = Tensor::zeros({4});
    work = part.recv(data, (job.rank() + 1) % job.world(), 5);  // never sent
  });
  expect_end("barrier", [] { world.barrier().wait(); });
  expect_end("all_reduce", [] { part.all_reduce(Tensor::zeros({4})).wait(); });
  expect_end("split", [] { (void)world.split(0); });
  expect_end("test", [] { (void)work.test(); });
  expect_end("wait", [] { work.wait(); });
  std::fflush(nullptr);
  return status + wrong;
}

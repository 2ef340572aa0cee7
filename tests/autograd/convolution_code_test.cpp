// SPDX-License-Identifier: Apache-2.0
// Which of oneDNN's kernels convolutions run by, as it says itself (ONEDNN_VERBOSE): never by its
// reference loops, which are right and a thousand times as slow as the others.
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/tests/folder.h>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

using namespace peal;
using namespace peal::testing;

namespace {

// What f prints, of C's stdout as well.
template <class F>
std::string stdout_of(F&& f) {
  const Folder folder;
  const auto path = folder.path / "stdout";
  std::fflush(stdout);
  const int file = ::open(path.c_str(), O_CREAT | O_WRONLY, 0600), kept = ::dup(1);
  REQUIRE((file >= 0 && kept >= 0 && ::dup2(file, 1) == 1));
  f();
  std::fflush(stdout);
  ::dup2(kept, 1);
  ::close(kept);
  ::close(file);
  return content_of(path);
}

struct Case {
  std::int64_t batch, in, out, size;
  int kernel, stride;
};

}  // namespace

TEST_CASE("no convolution of a small residual network runs by reference loops") {
  // ResNet-18's for images of 16, 32 and 64 pixels: from 16 pixels on the last ones have 2 and 1.
  std::vector<Case> cases;
  for (const std::int64_t batch : {1, 12, 32}) {
    for (const std::int64_t size : {16, 32, 64}) {
      cases.push_back({batch, 3, 64, size, 7, 2});
      std::int64_t here = size / 4, channels = 64;
      for (int stage = 0; stage < 4; ++stage, here = (here + 1) / 2, channels *= 2) {
        cases.push_back({batch, channels, channels, here, 3, 1});
        if (stage == 3) break;
        cases.push_back({batch, channels, 2 * channels, here, 3, 2});
        cases.push_back({batch, channels, 2 * channels, here, 1, 2});
      }
    }
  }
  int ran = 0;
  for (const Case& c : cases) {
    const std::string said = stdout_of([&] {
      Tensor x = Tensor::zeros({c.batch, c.in, c.size, c.size});
      Tensor weight = Tensor::zeros({c.out, c.in, c.kernel, c.kernel});
      x.set_requires_grad();
      weight.set_requires_grad();
      sum(conv2d(x, weight, {},
                 {.stride = {c.stride, c.stride}, .padding = {c.kernel / 2, c.kernel / 2}}))
          .backward();
    });
    std::istringstream lines(said);
    for (std::string line; std::getline(lines, line);) {
      if (line.find("exec,cpu,convolution,") == line.npos) continue;
      ++ran;
      CHECK_MESSAGE(line.find("convolution,ref") == line.npos, line);
    }
  }
  MESSAGE(ran, " convolutions, forward and backward");
  CHECK(ran >= 2 * static_cast<int>(cases.size()));
}

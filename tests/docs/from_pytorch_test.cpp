// SPDX-License-Identifier: Apache-2.0
// docs/from-pytorch.md: each line of its tables runs, and how many are of which kind is printed.
#include <peal/autograd/anomaly.h>
#include <peal/autograd/autocast.h>
#include <peal/autograd/checkpoint.h>
#include <peal/autograd/functional.h>
#include <peal/autograd/grad.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/comm/group/coalescing.h>
#include <peal/comm/group/device_mesh.h>
#include <peal/data/data.h>
#include <peal/launch/job.h>
#include <peal/launch/spawn.h>
#include <peal/launch/training/learner/callbacks.h>
#include <peal/launch/training/learner/exported.h>
#include <peal/launch/training/learner/image_data_loaders.h>
#include <peal/launch/training/learner/interpretation.h>
#include <peal/launch/training/learner/mixup.h>
#include <peal/launch/training/learner/progress.h>
#include <peal/launch/training/learner/tabular_data_loaders.h>
#include <peal/launch/training/learner/text.h>
#include <peal/launch/training/learner/text_data_loaders.h>
#include <peal/launch/training/trainer/get_scheduler.h>
#include <peal/launch/training/trainer/trainer.h>
#include <peal/nn/nn.h>
#include <peal/tests/folder.h>

#include <doctest/doctest.h>

#include <chrono>
#include <exception>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace {

using namespace peal;
using namespace peal::autograd;

nn::Sequential net_of() { return nn::Sequential(nn::Linear(3, 4), nn::ReLU(), nn::Linear(4, 2)); }

// What the lines of the tables have.
struct Given {
  Given(const comm::ProcessGroup& one, std::string file) : group(one), path(std::move(file)) {}
  Tensor x = randn({2, 3}), y = randn({2, 3}), v = randn({3}), a = randn({2, 2}), b = randn({2, 2});
  Tensor n = Tensor::from<std::int64_t>({0, 1, 1, 0, 1, 1}, {2, 3});
  Tensor i = Tensor::from<std::int64_t>({1, 0}, {2});
  Tensor mask = x > 0, w = randn({3}).requires_grad_(), image = randn({2, 3, 8, 8});
  Tensor target = Tensor::from<std::int64_t>({0, 2}, {2});
  nn::Sequential net = net_of();
  nn::AdamW optimizer{net.named_parameters(), {.lr = 0.1}};
  const comm::ProcessGroup& group;
  std::string path;
};

#define UNPACK_GIVEN                                                                          \
  [[maybe_unused]] auto& [x, y, v, a, b, n, i, mask, w, image, target, net, optimizer, group, \
                          path] = given;

struct Line {
  int number;
  char kind;
  void (*run)(Given given);
};

#include "from_pytorch_lines.inc"

}  // namespace

TEST_CASE("what a PyTorch program writes has its line, and each line runs") {
  launch::Job job;
  const testing::Folder folder;
  const std::string path = (folder.path / "model.safetensors").string();
  std::map<char, int> kinds;
  for (const Line& line : lines) {
    ++kinds[line.kind];
    if (line.run == nullptr) continue;
    CAPTURE(line.number);
    manual_seed(1);
    CHECK_NOTHROW(line.run(Given(job.group(), path)));
  }
  MESSAGE(kinds['='], " under PyTorch's name, ", kinds['~'], " by another, ", kinds['-'],
          " missing, ", kinds['x'], " out of scope");
  CHECK(kinds['='] > kinds['-']);
}

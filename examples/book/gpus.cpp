// SPDX-License-Identifier: Apache-2.0
// Streams, events and a captured step, on the first device. The tests build it against simulated
// devices (tests/cuda_host), whose queues run as late as their order allows, so that a wait that is
// missing shows. docs/book/15-gpus.md
#include <fmt/ranges.h>
#include <peal/autograd/core/graph.h>
#include <peal/autograd/core/stream.h>
#include <peal/autograd/ops/ops.h>
#include <peal/nn/nn.h>

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace peal;

constexpr Device gpu{DeviceType::cuda, 0};

std::vector<float> values(const Tensor& tensor) { return tensor.to(Device{}).to_vector<float>(); }

const char* yes_or_no(bool yes) { return yes ? "yes" : "no"; }

// The host queues ten ops and is far ahead of them.
void queue() {
  Tensor x = full({4}, 1.0, DType::f32, gpu);
  for (int i = 0; i < 10; ++i) x = x * 2.0;
  Event behind;
  behind.record(current_stream(gpu));
  fmt::print("ten ops are called, and done: {}\n", yes_or_no(behind.query()));
  const float result = values(x)[0];  // waits
  fmt::print("their result is {}, which the host waited for; done: {}\n", result,
             yes_or_no(behind.query()));
}

// One stream writes sevens, another doubles them.
std::vector<float> doubled(bool waits) {
  const Stream writes = Stream::create(gpu), doubles = Stream::create(gpu);
  const Tensor x = zeros({4}, DType::f32, gpu);
  synchronize(gpu);
  Event written;
  {
    const StreamGuard guard(writes);
    fill_(x, 7.0);
    written.record(writes);
  }
  const StreamGuard guard(doubles);
  if (waits) doubles.wait(written);
  const Tensor y = x * 2.0;
  const std::vector<float> seen = values(y);
  synchronize(gpu);  // x goes when both are done
  return seen;
}

void two_streams() {
  fmt::print("without an event: {}\n", fmt::join(doubled(false), " "));
  fmt::print("with an event:    {}\n", fmt::join(doubled(true), " "));
}

// Steps of a small training; in a graph or by calls. How often the host ran the step is counted.
std::vector<float> trained(bool captured, int* calls) {
  manual_seed(1);
  nn::Sequential net = nn::mlp({8, 16, 1});
  net.to(gpu);
  nn::SGD optimizer(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  const Tensor x = zeros({4, 8}, DType::f32, gpu);
  Tensor loss;
  const auto step = [&] {
    ++*calls;
    optimizer.zero_grad();
    loss = mean(square(net(x)));
    loss.backward();
    optimizer.step();
  };
  Graph graph(gpu);
  std::vector<float> losses;
  for (int i = 0; i < 8; ++i) {
    manual_seed(100 + static_cast<std::uint64_t>(i));
    x.copy_(randn({4, 8}));  // in its place
    if (captured) {
      graph.run(step);
    } else {
      step();
    }
    losses.push_back(values(loss)[0]);
  }
  return losses;
}

void captured_step() {
  int calls = 0, by_graph = 0;
  const std::vector<float> expected = trained(false, &calls), seen = trained(true, &by_graph);
  fmt::print("by calls: the step was called {} times\n", calls);
  fmt::print("by a graph: {} times, the last of them to capture it; losses of the same bits: {}\n",
             by_graph, yes_or_no(seen == expected));
}

// What the host may not do while a step is captured.
void not_captured() {
  const Tensor x = full({1}, 3.0, DType::f32, gpu);
  try {
    Graph graph(gpu, 1);
    for (int i = 0; i < 2; ++i) {
      graph.run([&] {
        if (sum(x).item<float>() > 2) mul_(x, 2.0);
      });
    }
  } catch (const std::exception& error) {
    fmt::print("a step that looks at a value:\n{}\n", error.what());
  }
}

// The same choice, made by the device: x is doubled while it is at most 20.
void choice_in_a_graph() {
  const Tensor x = full({1}, 3.0, DType::f32, gpu);
  Graph graph(gpu, 1);
  for (int i = 0; i < 6; ++i) {
    graph.run([&] { x.copy_(where(x <= 20.0, x * 2.0, x)); });
    fmt::print(" {}", values(x)[0]);
  }
  fmt::print("\n");
}

}  // namespace

int main(int argc, char** argv) {
  struct Section {
    const char* name;
    void (*run)();
  };
  const Section sections[] = {{"queue", queue},
                              {"two_streams", two_streams},
                              {"captured_step", captured_step},
                              {"not_captured", not_captured},
                              {"choice_in_a_graph", choice_in_a_graph}};
  for (const Section& section : sections) {
    if (argc != 2 || std::string_view(argv[1]) != section.name) continue;
    section.run();
    return 0;
  }
  std::fprintf(stderr,
               "usage: gpus queue | two_streams | captured_step | not_captured | "
               "choice_in_a_graph\n");
  return 2;
}

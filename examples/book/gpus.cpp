// SPDX-License-Identifier: Apache-2.0
// Streams, events and a captured step, on the first device. The tests build it against simulated
// devices (tests/cuda_host), whose queues run as late as their order allows, so that a wait that is
// missing shows. docs/book/15-gpus.md
#include <fmt/ranges.h>
#include <peal/autograd/core/graph.h>
#include <peal/autograd/core/stream.h>
#include <peal/autograd/ops/ops.h>
#include <peal/nn/nn.h>

#include <algorithm>
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

// Who waits for the sevens before they are doubled.
enum class Waits { nobody, stream, host };

// One stream writes sevens, another doubles them.
std::vector<float> doubled(Waits waits) {
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
  if (waits == Waits::stream) doubles.wait(written);
  if (waits == Waits::host) {
    written.synchronize();
    fmt::print("the host goes on; written: {}\n", yes_or_no(written.query()));
  }
  const Tensor y = x * 2.0;
  const std::vector<float> seen = values(y);
  synchronize(gpu);  // x goes when both are done
  return seen;
}

void two_streams() {
  fmt::print("without an event: {}\n", fmt::join(doubled(Waits::nobody), " "));
  fmt::print("with an event:    {}\n", fmt::join(doubled(Waits::stream), " "));
}

// Exercise 1: the host waits, in the stream's place.
void host_waits() { fmt::print("doubled: {}\n", fmt::join(doubled(Waits::host), " ")); }

// Steps of a small training; in a graph or by calls, whose batches change until `last`. How often
// the host ran the step is counted.
struct Training {
  bool captured = false, new_inputs = false;
  int last = 8;
};
std::vector<float> trained(Training how, int* calls) {
  manual_seed(1);
  nn::Sequential net = nn::mlp({8, 16, 1});
  net.to(gpu);
  nn::SGD optimizer(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  Tensor x = zeros({4, 8}, DType::f32, gpu);
  std::vector<Tensor> inputs;  // all stay, so that no other comes to lie in an old one's place
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
    manual_seed(100 + static_cast<std::uint64_t>(std::min(i, how.last)));
    if (how.new_inputs) {
      x = randn({4, 8}).to(gpu);
      inputs.push_back(x);
    } else {
      x.copy_(randn({4, 8}));  // in its place
    }
    if (how.captured) {
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
  const std::vector<float> expected = trained({}, &calls),
                           seen = trained({.captured = true}, &by_graph);
  fmt::print("by calls: the step was called {} times\n", calls);
  fmt::print("by a graph: {} times, the last of them to capture it; losses of the same bits: {}\n",
             by_graph, yes_or_no(seen == expected));
}

// Exercise 3: batches that lie elsewhere each time, and the losses of a training that has been
// given the third batch ever since.
void new_inputs() {
  int calls = 0;
  const std::vector<float> seen = trained({.captured = true, .new_inputs = true}, &calls),
                           all = trained({}, &calls), third = trained({.last = 2}, &calls);
  fmt::print("replays see the batch of their step: {}; always that of the capture: {}\n",
             yes_or_no(seen == all), yes_or_no(seen == third));
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
                              {"host_waits", host_waits},
                              {"captured_step", captured_step},
                              {"new_inputs", new_inputs},
                              {"not_captured", not_captured},
                              {"choice_in_a_graph", choice_in_a_graph}};
  for (const Section& section : sections) {
    if (argc != 2 || std::string_view(argv[1]) != section.name) continue;
    section.run();
    return 0;
  }
  std::fprintf(stderr,
               "usage: gpus queue | two_streams | host_waits | captured_step | new_inputs | "
               "not_captured | choice_in_a_graph\n");
  return 2;
}

// SPDX-License-Identifier: Apache-2.0
// step_time: the time of one training step (zero_grad, forward, backward, AdamW) of a model on
// random data. Prints the median over --reps groups of --steps steps, so that a group outlasts the
// clock's noise; --json writes {"model", "batch", "threads", "step_ms"}; --profile prints the time
// by op as well, measured in a run of its own, and --trace draws one. With --on-demand it times one
// group for each line on its standard input and prints the milliseconds of a step, of wall and of
// processor time, so that bench/peers/ratios.py can alternate it with another program; --memory is
// for bench/peers/memory.py. With --device cuda all is on that device; --graph captures the whole
// step there and replays it.
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/graph.h>
#include <peal/autograd/profile.h>
#include <peal/launch/command_line.h>
#include <peal/nn/models/basic_net.h>
#include <peal/nn/models/gpt.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/models/resnet18.h>
#include <peal/nn/nn.h>

#include <peal/bench/clock.h>

#include <fmt/core.h>
#include <omp.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using peal::Tensor;
using peal::bench::Clock;
using peal::bench::Seconds;

Tensor classes(std::int64_t count, std::int64_t n, peal::Device device) {
  std::vector<std::int64_t> target(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < target.size(); ++i) {
    target[i] = static_cast<std::int64_t>(i) * 7 % count;
  }
  return Tensor::from(target, {n}, device);
}

// Drawn on the CPU, so that every device has the same.
Tensor on(peal::Device device, const peal::Shape& shape) { return peal::randn(shape).to(device); }

// What is trained, and what one pass of a batch through it loses.
struct Job {
  std::vector<Tensor> parameters;
  std::function<Tensor()> loss;
};

// A model called M, with its input and a loss of what it gives.
template <class M, class LossOf>
Job job(M made, const Tensor& x, LossOf loss_of) {
  const auto model = std::make_shared<M>(std::move(made));
  model->to(x.device());
  return {model->parameters(), [=] { return loss_of(model->forward(x)); }};
}

Job gpt(const peal::nn::GptSettings& settings, std::int64_t n, peal::Device device) {
  const std::int64_t words = settings.vocabulary, length = settings.positions;
  const Tensor tokens = peal::reshape(classes(words, n * length, device), {n, length});
  return job(peal::nn::GPT(settings), tokens,
             [words, y = classes(words, n * length, device)](const Tensor& out) {
               return peal::cross_entropy(peal::reshape(out, {-1, words}), y);
             });
}

struct Model {
  std::int64_t batch;  // of the measurement in shared use
  int steps;           // in a group
  std::function<Job(std::int64_t batch, peal::Device device)> make;
};

const std::map<std::string, Model>& models() {
  static const std::map<std::string, Model> all{
      {"basicnet",
       {64, 10,
        [](std::int64_t n, peal::Device device) {
          return job(
              peal::nn::BasicNet(), on(device, {n, 1, 28, 28}),
              [y = classes(10, n, device)](const Tensor& out) { return peal::nll_loss(out, y); });
        }}},
      {"mlp",
       {128, 50,
        [](std::int64_t n, peal::Device device) {
          return job(peal::nn::mlp({784, 512, 512, 10}), on(device, {n, 784}),
                     [y = classes(10, n, device)](const Tensor& out) {
                       return peal::cross_entropy(out, y);
                     });
        }}},
      // Both with a head of their own, as their counterparts in bench/peers/torch_step.py.
      {"gpt",
       {8, 3,
        [](std::int64_t n, peal::Device device) {
          return gpt({.gelu = peal::GeluApproximation::none, .tie_word_embeddings = false}, n,
                     device);
        }}},
      {"gpt2",
       {8, 1,
        [](std::int64_t n, peal::Device device) {
          return gpt({.vocabulary = 50257,
                      .width = 768,
                      .heads = 12,
                      .layers = 12,
                      .positions = 1024,
                      .tie_word_embeddings = false},
                     n, device);
        }}},
      {"resnet18",
       {32, 1,
        [](std::int64_t n, peal::Device device) {
          return job(peal::nn::ResNet18({.num_classes = 10, .small_images = true}),
                     on(device, {n, 3, 32, 32}), [y = classes(10, n, device)](const Tensor& out) {
                       return peal::cross_entropy(out, y);
                     });
        }}},
  };
  return all;
}

}  // namespace

int main(int argc, char** argv) try {
  std::string name = "basicnet", device_name = "cpu", precision = "f32", json, trace_file;
  std::int64_t batch = 0;
  int threads = 1, reps = 15, steps = 0;
  bool profile = false, on_demand = false, memory = false, captures = false;
  peal::launch::CommandLine line("Time of one training step");
  line.option("--model", &name).one_of({"basicnet", "mlp", "gpt", "resnet18", "gpt2"});
  line.option("--batch", &batch, "default: 64, 128, 8 (of 128 tokens), 32, 8 (of 1024)").positive();
  line.option("--device", &device_name, "cpu, cuda or cuda:N");
  line.option("--precision", &precision,
              "f32, bf16 (autocast), or tf32 (products of f32, on a device that has it)")
      .one_of({"f32", "tf32", "bf16"});
  line.flag("--graph", &captures, "capture the whole step, and replay it (cuda)");
  line.option("--threads", &threads).positive();
  line.option("--reps", &reps, "groups, of which the median counts").positive();
  line.option("--steps", &steps, "steps in a group; default: 10, 50, 3, 1").positive();
  line.option("--json", &json, "file to write");
  line.flag("--profile", &profile, "print time, rates and memory by op");
  line.option("--trace", &trace_file, "file for a picture of a group (ui.perfetto.dev)");
  line.flag("--memory", &memory,
            "print the most bytes resident, before the model and after steps (cuda: of tensors)");
  line.flag("--on-demand", &on_demand, "time a group for each line of standard input");
  if (const auto status = line.parse(argc, argv)) return *status;

  const Model& model = models().at(name);
  if (batch == 0) batch = model.batch;
  if (steps == 0) steps = model.steps;
  const peal::Device device = peal::parse_device(device_name);
  const std::size_t at_start = peal::memory_marks().resident;
  omp_set_num_threads(threads);
  peal::manual_seed(0);
  peal::context().allow_tf32 = precision == "tf32";
  peal::context().cudnn_benchmark = true;
  const Job work = model.make(batch, device);
  peal::nn::AdamW optimizer(work.parameters, {.lr = 1e-3});
  peal::Graph graph(captures ? device : peal::Device{});
  const auto step = [&] {
    graph.run([&] {
      optimizer.zero_grad();
      const auto loss = [&] {
        const peal::Autocast guard(peal::DType::bf16, precision == "bf16");
        return work.loss();
      }();
      loss.backward();
      optimizer.step();
    });
  };
  if (memory) {
    for (int i = 0; i < steps; ++i) step();
    // Without what the first steps try. A graph keeps what it computes in memory of its own, which
    // only its capture counts.
    if (device.type != peal::DeviceType::cpu && !captures) {
      peal::memory_space(device).reset_peak(device);
      for (int i = 0; i < steps; ++i) step();
      peal::synchronize(device);
    }
    if (device.type == peal::DeviceType::cpu) {
      fmt::print("{} {}\n", at_start, peal::memory_marks().resident);
    } else {
      fmt::print("0 {}\n", peal::memory_space(device).statistics(device).peak);
    }
    return 0;
  }
  for (int i = 0; i < 3; ++i) step();

  const auto group = [&] {
    peal::synchronize(device);
    const Clock clock;
    for (int i = 0; i < steps; ++i) step();
    peal::synchronize(device);
    const Seconds spent = clock.since_start();
    return Seconds{spent.wall / steps * 1e3, spent.processor / steps * 1e3};
  };
  if (on_demand) {
    for (std::string line; std::getline(std::cin, line);) {
      const Seconds ms = group();
      fmt::print("{:.4f} {:.4f}\n", ms.wall, ms.processor);
      std::fflush(stdout);
    }
    return 0;
  }
  std::vector<double> ms;
  for (int rep = 0; rep < reps; ++rep) ms.push_back(group().wall);
  std::sort(ms.begin(), ms.end());
  const double median = ms[ms.size() / 2];
  fmt::print(
      "{} batch {} {} {} threads {}: {:.3f} ms a step (median of {}; least {:.3f}, most {:.3f}), "
      "{:.0f} "
      "items/s\n",
      name, batch, device_name, precision, threads, median, reps, ms.front(), ms.back(),
      static_cast<double>(batch) / median * 1e3);
  if (!json.empty()) {
    std::ofstream file(json);
    file << nlohmann::json{{"model", name},          {"batch", batch},     {"device", device_name},
                           {"precision", precision}, {"threads", threads}, {"step_ms", median}}
         << "\n";
    PEAL_CHECK(file.flush().good(), "step_time: cannot write ", json);
  }
  if (profile) {
    peal::context().trace = std::make_shared<peal::Trace>(0, device);
    const int count = reps * steps;
    for (int i = 0; i < count; ++i) step();
    const auto trace = std::exchange(peal::context().trace, nullptr);
    fmt::print("{}", peal::profile_report(*trace, count));
  }
  if (!trace_file.empty()) {
    peal::context().trace = std::make_shared<peal::Trace>(peal::Trace::picture_events, device);
    for (int i = 0; i < steps; ++i) step();
    peal::save_trace(trace_file, *peal::context().trace);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "step_time: %s\n", error.what());
  return 1;
}

// SPDX-License-Identifier: Apache-2.0
// loader: how fast the data loader makes batches, beside a plain memcpy of the same batches, and
// for what share of its time training waits for it. Images of --data in shuffled batches of
// --batch; the medians of --reps passes, all of which take turns. Bytes are those that a batch has
// in the end: a set that keeps bytes and gives floats reads a quarter of them. Training is one
// thread's: a perceptron (784-128-10), which makes the loader busy, and BasicNet. --json writes
// {"memcpy": batches a second, "loader": {workers: ...}, "waits": {model: {workers: share}}}.
#include <peal/autograd/intra_op.h>
#include <peal/data/loader.h>
#include <peal/data/mnist.h>
#include <peal/data/synthetic_digits.h>
#include <peal/launch/command_line.h>
#include <peal/nn/models/basic_net.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/nn.h>

#include <peal/bench/clock.h>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace {

using namespace peal;
using bench::Clock;

constexpr int most_workers = 2;

data::DatasetRef open_data(const std::string& name) {
  if (name == "fashion") return data::fashion_mnist(true);
  if (name == "synthetic") return data::synthetic_digits(20'000, 1);
  return data::mnist(name, true);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Batches as the loader hands them out, copied from memory that has them all in this order.
class Copies {
 public:
  Copies(const data::Dataset& dataset, std::int64_t batch) : batch_(batch) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(dataset.size() / batch * batch));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
    whole_ = dataset.get(all);
  }
  std::int64_t bytes() const {
    return (static_cast<std::int64_t>(whole_.x.view().bytes() + whole_.y.view().bytes())) /
           (whole_.size() / batch_);
  }
  // Batches a second.
  double rate() const {
    const Clock clock;
    const std::int64_t batches = whole_.size() / batch_;
    for (std::int64_t i = 0; i < batches; ++i) {
      copy(whole_.x, i);
      copy(whole_.y, i);
    }
    return static_cast<double>(batches) / clock.since_start().wall;
  }

 private:
  void copy(const Tensor& from, std::int64_t i) const {
    const Tensor part = from.rows(i * batch_, (i + 1) * batch_);
    const Tensor to = Tensor::empty(part.shape(), part.dtype(), Device{});
    std::memcpy(to.raw(), part.raw(), part.view().bytes());
  }

  std::int64_t batch_;
  data::Batch whole_;
};

data::LoaderOptions options(std::int64_t batch, int workers) {
  return {.batch_size = batch, .shuffle = true, .seed = 1, .workers = workers, .drop_last = true};
}

double loader_rate(const data::DatasetRef& dataset, std::int64_t batch, int workers) {
  data::DataLoader loader(dataset, options(batch, workers));
  const Clock clock;
  std::int64_t batches = 0;
  while (loader.next()) ++batches;
  return static_cast<double>(batches) / clock.since_start().wall;
}

// The share of a training loop's time that it waits for batches, the epoch's beginning included.
double waiting(const data::DatasetRef& dataset, std::int64_t batch, int workers, nn::Module model,
               std::int64_t steps) {
  data::DataLoader loader(dataset, options(batch, workers));
  nn::SGD optimizer(model.parameters(), {.lr = 0.01});
  double waited = 0;
  const Clock whole;
  for (std::int64_t step = 0; step < steps; ++step) {
    const Clock clock;
    const auto next = loader.next();
    waited += clock.since_start().wall;
    if (!next) continue;
    const auto& [x, y] = *next;
    optimizer.zero_grad();
    nll_loss(log_softmax(model(x)), y).backward();
    optimizer.step();
  }
  return waited / whole.since_start().wall;
}

}  // namespace

int main(int argc, char** argv) try {
  std::string data_name = "synthetic", json;
  std::int64_t batch = 64;
  int reps = 5;
  launch::CommandLine line(
      "What the data loader costs, beside memcpy, and what training waits for");
  line.option("--data", &data_name, "fashion, synthetic, or a folder with MNIST's IDX files");
  line.option("--batch", &batch, "samples in a batch").positive();
  line.option("--reps", &reps, "of which the median counts").positive();
  line.option("--json", &json, "file to write");
  if (const auto status = line.parse(argc, argv)) return *status;

  set_num_threads(1);
  const data::DatasetRef dataset = open_data(data_name);
  PEAL_CHECK(dataset->size() >= batch, "loader: ", dataset->size(), " samples are no batch of ",
             batch);
  const Copies copies(*dataset, batch);
  nlohmann::json result;
  std::vector<double> copied;
  std::vector<std::vector<double>> loaded(most_workers + 1);
  for (int rep = 0; rep < reps; ++rep) {
    copied.push_back(copies.rate());
    for (int workers = 0; workers <= most_workers; ++workers) {
      loaded[static_cast<std::size_t>(workers)].push_back(loader_rate(dataset, batch, workers));
    }
  }
  const double memcpy_rate = median(copied);
  const auto gigabytes = [&](double rate) {
    return rate * static_cast<double>(copies.bytes()) * 1e-9;
  };
  fmt::print("{} samples, batches of {} ({} bytes); one thread trains; medians of {} passes\n",
             dataset->size(), batch, copies.bytes(), reps);
  fmt::print("{:<20}{:>14}{:>10}{:>16}\n", "", "batches/s", "GB/s", "loader/memcpy");
  fmt::print("{:<20}{:>14.0f}{:>10.2f}\n", "memcpy", memcpy_rate, gigabytes(memcpy_rate));
  result["memcpy"] = memcpy_rate;
  for (int workers = 0; workers <= most_workers; ++workers) {
    const double rate = median(loaded[static_cast<std::size_t>(workers)]);
    fmt::print("{:<20}{:>14.0f}{:>10.2f}{:>16.3f}\n", fmt::format("loader, {} workers", workers),
               rate, gigabytes(rate), rate / memcpy_rate);
    result["loader"][std::to_string(workers)] = rate;
  }

  const std::vector<std::pair<std::string, std::function<nn::Module()>>> models{
      {"perceptron",
       [] {
         return nn::Module(nn::Sequential(nn::Flatten(), nn::mlp({784, 128, 10})));
       }},
      {"BasicNet", [] { return nn::Module(nn::BasicNet()); }}};
  std::vector<std::vector<std::vector<double>>> waits(
      models.size(), std::vector<std::vector<double>>(most_workers + 1));
  for (int rep = 0; rep < reps; ++rep) {
    for (std::size_t m = 0; m < models.size(); ++m) {
      const std::int64_t steps =
          std::min<std::int64_t>(models[m].first == "BasicNet" ? 40 : 400, dataset->size() / batch);
      for (int workers = 0; workers <= most_workers; ++workers) {
        manual_seed(1);
        waits[m][static_cast<std::size_t>(workers)].push_back(
            waiting(dataset, batch, workers, models[m].second(), steps));
      }
    }
  }
  fmt::print("\ntraining waits for data, of its time\n{:<20}", "");
  for (int workers = 0; workers <= most_workers; ++workers) {
    fmt::print("{:>14}", fmt::format("{} workers", workers));
  }
  for (std::size_t m = 0; m < models.size(); ++m) {
    fmt::print("\n{:<20}", models[m].first);
    for (int workers = 0; workers <= most_workers; ++workers) {
      const double share = median(waits[m][static_cast<std::size_t>(workers)]);
      fmt::print("{:>12.2f} %", 100 * share);
      result["waits"][models[m].first][std::to_string(workers)] = share;
    }
  }
  fmt::print("\n");
  if (!json.empty()) {
    std::ofstream file(json);
    file << result << "\n";
    PEAL_CHECK(file.flush().good(), "loader: cannot write ", json);
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}

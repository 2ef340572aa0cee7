// SPDX-License-Identifier: Apache-2.0
// The main job: BasicNet on MNIST-like images, on as many ranks as the launcher starts.
//
//   launch/tools/peal-run -n 2 build/release/examples/05_train_mnist --data fashion --epochs 1
//
// Each rank trains on its own shard with DistributedDataParallel and evaluates its own part of the
// test set; rank 0 reports. A checkpoint (--save) is written after each epoch, and --resume goes on
// from it. With --precision bf16 or f16 the parameters stay f32 and the model computes in that
// type.
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/intra_op.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/profile.h>
#include <peal/data/loader.h>
#include <peal/data/mnist.h>
#include <peal/data/synthetic_digits.h>
#include <peal/launch/job.h>
#include <peal/launch/progress_bar.h>
#include <peal/nn/amp/grad_scaler.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/models/basic_net.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/parallel/ddp.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

using namespace peal;
using Clock = std::chrono::steady_clock;

namespace {

const Clock::time_point program_start = Clock::now();

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Options {
  std::string data = "fashion", device = "cpu", precision = "f32", save, resume, json, trace;
  int epochs = 1;
  std::int64_t batch_size = 32, train_samples = 0;
  double lr = 1e-3;
  std::uint64_t seed = 0;
  bool profile = false;
};

struct Epoch {
  double loss = 0, seconds = 0, images_per_second = 0, exposed = 0, accuracy = 0;
};

std::pair<data::DatasetRef, data::DatasetRef> open_data(const Options& options) {
  if (options.data == "fashion") return {data::fashion_mnist(true), data::fashion_mnist(false)};
  if (options.data == "synthetic") {
    const std::int64_t count = options.train_samples > 0 ? options.train_samples : 12000;
    return {data::synthetic_digits(count, 1),
            data::synthetic_digits(std::min<std::int64_t>(2000, count), 2)};
  }
  return {data::mnist(options.data, true), data::mnist(options.data, false)};
}

// Parameters are drawn where the model is made.
nn::BasicNet seeded_net(std::uint64_t seed) {
  manual_seed(seed);
  return {};
}

class Training {
 public:
  Training(launch::Job& job, const Options& options)
      : job_(job), options_(options), device_(job.device(options.device)) {
    std::tie(train_, test_) = open_data(options);
    net_.to(device_);
    ddp_ = std::make_unique<nn::DistributedDataParallel>(net_, job.group_ref());
    optimizer_ =
        std::make_unique<nn::AdamW>(ddp_->named_parameters(), nn::AdamWOptions{.lr = options.lr});
    scaler_ = std::make_unique<nn::GradScaler>(
        nn::GradScalerOptions{.enabled = options.precision == "f16"}, job.group_ref());
    // Ranks drop out different units: a stream of its own for each.
    manual_seed(options.seed * 1000003 + static_cast<std::uint64_t>(job.rank()) + 1);
    if (!options.resume.empty()) resume();
    // Where nothing can be saved, it shall not take an epoch to find out.
    if (!options.save.empty() && job.is_main()) AtomicFile(options.save);
    if (job.is_main() && (options.profile || !options.trace.empty())) {
      context().trace =
          std::make_shared<Trace>(options.trace.empty() ? 0 : Trace::picture_events, device_);
    }
  }

  void run() {
    data::ShardOptions shard{.shuffle = true, .seed = options_.seed};
    const auto sampler = std::make_shared<data::DistributedSampler>(train_->size(), job_.world(),
                                                                    job_.rank(), shard);
    data::DataLoader loader(train_, sampler, {.batch_size = options_.batch_size});
    if (job_.is_main()) {
      fmt::print("{} training and {} test images; {} rank(s) of batch {}, {} thread(s) each\n",
                 train_->size(), test_->size(), job_.world(), options_.batch_size, num_threads());
      std::fflush(stdout);
    }
    for (int epoch = first_epoch_; epoch < options_.epochs; ++epoch) {
      sampler->set_epoch(epoch);
      epochs_.push_back(train_epoch(loader, epoch));
      const auto trace = std::exchange(context().trace, nullptr);  // of training steps alone
      epochs_.back().accuracy = evaluate();
      context().trace = trace;
      if (job_.is_main()) report(epoch, epochs_.back());
      if (!options_.save.empty()) save(epoch + 1);
    }
    if (const auto trace = std::exchange(context().trace, nullptr)) {
      if (options_.profile) fmt::print("\na step, rank 0:\n{}", profile_report(*trace, steps_));
      if (!options_.trace.empty()) save_trace(options_.trace, *trace);
    }
    if (job_.is_main() && !options_.json.empty()) write_json();
  }

 private:
  Epoch train_epoch(data::DataLoader& loader, int epoch) {
    launch::ProgressBar bar(concat("epoch ", epoch + 1), loader.size(), job_.is_main());
    ddp_->train();
    ddp_->reducer().reset_times();
    const auto start = Clock::now();
    double loss_sum = 0;
    std::int64_t step = 0;
    for (const data::Batch& batch : loader) {
      optimizer_->zero_grad();
      const Tensor loss = [&] {
        const Autocast guard = autocast();
        return nll_loss((*ddp_)(batch.x.to(device_)), batch.y.to(device_));
      }();
      scaler_->scale(loss).backward();
      scaler_->step(*optimizer_);
      scaler_->update();
      loss_sum += loss.item<double>();
      ++step;
      if (++steps_ == 1 && job_.is_main()) {
        fmt::print("first training step done {:.2f} s after the program's start\n",
                   seconds_since(program_start));
        std::fflush(stdout);
      }
      bar.update(step, fmt::format("loss {:.4f}", loss_sum / static_cast<double>(step)));
    }
    Epoch result;
    const Tensor totals =
        Tensor::from(std::vector<double>{loss_sum, static_cast<double>(step)}, {2});
    job_.group().all_reduce(totals).wait();
    result.loss = totals.data<double>()[0] / totals.data<double>()[1];
    result.seconds = seconds_since(start);
    result.images_per_second = static_cast<double>(train_->size()) / result.seconds;
    result.exposed = ddp_->reducer().exposed_seconds() / result.seconds;
    bar.finish(fmt::format("loss {:.4f}", result.loss));
    return result;
  }

  Autocast autocast() const {
    return Autocast(options_.precision == "f16" ? DType::f16 : DType::bf16,
                    options_.precision != "f32");
  }

  // Every test image once: ranks take turns, and the counts are summed.
  double evaluate() {
    const NoGrad guard;
    const Autocast precision = autocast();
    ddp_->eval();
    const auto sampler = std::make_shared<data::DistributedSampler>(
        test_->size(), job_.world(), job_.rank(),
        data::ShardOptions{.shuffle = false, .exact = true});
    data::DataLoader loader(test_, sampler, {.batch_size = 250});
    std::int64_t correct = 0;
    for (const data::Batch& batch : loader) {
      const auto guesses = argmax((*ddp_)(batch.x.to(device_)), 1).to_vector<std::int64_t>();
      const auto classes = batch.y.to_vector<std::int64_t>();
      for (std::size_t i = 0; i < classes.size(); ++i) correct += guesses[i] == classes[i];
    }
    const Tensor total = Tensor::scalar(correct);
    job_.group().all_reduce(total).wait();
    return static_cast<double>(total.item<std::int64_t>()) / static_cast<double>(test_->size());
  }

  void report(int epoch, const Epoch& result) const {
    fmt::print(
        "epoch {}: loss {:.4f}, test accuracy {:.2f} %, {:.1f} s, {:.0f} images/s, communication "
        "exposed {:.1f} %\n",
        epoch + 1, result.loss, result.accuracy * 100, result.seconds, result.images_per_second,
        result.exposed * 100);
    std::fflush(stdout);
  }

  // What a run must share with the one it goes on from, to be that run.
  Metadata settings() const {
    return {{"data", options_.data},
            {"seed", std::to_string(options_.seed)},
            {"world", std::to_string(job_.world())},
            {"batch_size", std::to_string(options_.batch_size)},
            {"precision", options_.precision}};
  }

  std::vector<nn::Part> parts() {
    return {{"model", *ddp_},
            {"optimizer", *optimizer_},
            {"scaler", *scaler_},
            {"random", RandomState{.keep_seed = true}}};
  }

  void save(int next_epoch) {
    if (job_.is_main()) {
      Metadata metadata = settings();
      metadata["epoch"] = std::to_string(next_epoch);
      nn::save(options_.save, parts(), metadata);
    }
    job_.group().barrier().wait();
  }

  void resume() {
    const nn::Checkpoint checkpoint = nn::load(options_.resume, parts());
    const auto saved = [&](const std::string& name) {
      const auto found = checkpoint.metadata.find(name);
      PEAL_CHECK(found != checkpoint.metadata.end(), options_.resume, ": it does not say its ",
                 name, "; is it a checkpoint of this program?");
      return found->second;
    };
    for (const auto& [name, here] : settings()) {
      PEAL_CHECK(saved(name) == here, options_.resume, ": it was saved with ", name, " ",
                 saved(name), ", and this run has ", here, "; go on with the same");
    }
    const std::string text = saved("epoch");
    const auto [end, problem] =
        std::from_chars(text.data(), text.data() + text.size(), first_epoch_);
    PEAL_CHECK(problem == std::errc{} && end == text.data() + text.size() && first_epoch_ >= 0,
               options_.resume, ": its epoch is '", text,
               "', which is no such number; the file is damaged");
    PEAL_CHECK(first_epoch_ < options_.epochs, options_.resume, ": its run has ", first_epoch_,
               " epochs behind it; ask for more with --epochs (now ", options_.epochs,
               ", counted from the start)");
    optimizer_->set_lr(options_.lr);
    if (job_.is_main()) log_info("going on after epoch ", first_epoch_, " of ", options_.resume);
  }

  void write_json() const {
    nlohmann::json out;
    out["world"] = job_.world();
    out["batch_size"] = options_.batch_size;
    out["seed"] = options_.seed;
    out["precision"] = options_.precision;
    out["data"] = options_.data;
    for (const Epoch& epoch : epochs_) {
      out["epochs"].push_back({{"loss", epoch.loss},
                               {"test_accuracy", epoch.accuracy},
                               {"seconds", epoch.seconds},
                               {"images_per_second", epoch.images_per_second},
                               {"exposed", epoch.exposed}});
    }
    std::ofstream file(options_.json);
    file << out.dump(2) << '\n';
    PEAL_CHECK(file.flush(), options_.json, ": cannot be written");
  }

  launch::Job& job_;
  Options options_;
  Device device_;
  data::DatasetRef train_, test_;
  std::unique_ptr<nn::GradScaler> scaler_;
  nn::BasicNet net_ = seeded_net(options_.seed);
  std::unique_ptr<nn::DistributedDataParallel> ddp_;
  std::unique_ptr<nn::AdamW> optimizer_;
  std::vector<Epoch> epochs_;
  int first_epoch_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Trains BasicNet on MNIST-like images; start it with peal-run or mpirun for several ranks.");
  app.add_option("--data", options.data, "fashion, synthetic, or a folder with MNIST's IDX files")
      ->capture_default_str();
  app.add_option("--epochs", options.epochs, "how often the training set is gone through")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "images a rank and step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--lr", options.lr, "AdamW's learning rate")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--device", options.device, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--precision", options.precision, "what the model computes in: f32, bf16 or f16")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
  app.add_option("--save", options.save, "checkpoint to write after each epoch (safetensors)");
  app.add_option("--resume", options.resume, "checkpoint to go on from")->check(CLI::ExistingFile);
  app.add_option("--seed", options.seed, "of parameters, order and dropout")->capture_default_str();
  app.add_option(
      "--train-samples", options.train_samples,
      "how many synthetic digits to draw (0: 12000), and as many, up to 2000, to test on");
  app.add_option("--json", options.json, "file for the figures");
  app.add_flag("--profile", options.profile, "print time, rates and memory by op, of rank 0");
  app.add_option("--trace", options.trace, "file for rank 0's ops as a picture (ui.perfetto.dev)");
  CLI11_PARSE(app, argc, argv);
  return launch::run_main([&](launch::Job& job) { Training(job, options).run(); });
}

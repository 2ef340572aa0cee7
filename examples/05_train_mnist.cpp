// SPDX-License-Identifier: Apache-2.0
// The main job: BasicNet on MNIST-like images, on as many ranks as the launcher starts.
//
//   launch/tools/peal-mpirun -n 2 build/release/examples/05_train_mnist --data fashion --epochs 1
//
// Each rank trains on its own shard with DistributedDataParallel and evaluates its own part of the
// test set; rank 0 reports. The loop, its checkpoints (--save run/ --resume auto: the run goes on
// where it was stopped), mixed precision and profile are the EpochTrainer's:
// launch/training/epoch_trainer.h.
#include <peal/autograd/ops/ops.h>
#include <peal/data/loader.h>
#include <peal/data/mnist.h>
#include <peal/data/synthetic_digits.h>
#include <peal/launch/job.h>
#include <peal/launch/training/epoch_trainer.h>
#include <peal/nn/models/basic_net.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/parallel/ddp.h>

#include <algorithm>
#include <cstdio>
#include <string>

using namespace peal;

namespace {

// To train on, or to test on.
data::DatasetRef open_data(const std::string& name, std::int64_t samples, bool train) {
  if (name == "fashion") return data::fashion_mnist(train);
  if (name == "synthetic") {
    const std::int64_t count = samples > 0 ? samples : 12000;
    return train ? data::synthetic_digits(count, 1)
                 : data::synthetic_digits(std::min<std::int64_t>(2000, count), 2);
  }
  return data::mnist(name, train);
}

void print(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);  // at once, where it goes to a file
}

}  // namespace

int main(int argc, char** argv) {
  launch::RunArguments arguments;
  std::string data_name = "fashion";
  std::int64_t samples = 0;
  launch::CommandLine line(
      "Trains BasicNet on MNIST-like images; start it with peal-run or mpirun for several ranks.");
  line.option("--data", &data_name, "fashion, synthetic, or a folder with MNIST's IDX files");
  line.option("--train-samples", &samples,
              "how many synthetic digits to draw (0: 12000), and as many, up to 2000, to test on");
  launch::add_training_options(line, arguments);
  if (const auto status = line.parse(argc, argv)) return *status;

  return launch::run_main([&](launch::Job& job) {
    launch::find_resume(job, arguments);
    const Device device = job.device(arguments.device);
    const bool only_judges = !arguments.evaluate.empty();
    const auto test = open_data(only_judges ? arguments.evaluate : data_name, samples, false);
    data::DataLoader testing(
        test, {.batch_size = 250, .shard = job.place(), .exact = true, .device = device});

    manual_seed(arguments.seed);  // parameters are drawn where the model is made
    nn::BasicNet net;
    net.to(device);
    nn::DistributedDataParallel model(net, job.group());
    if (only_judges) {
      nn::load_model(launch::checkpoint_to_evaluate(arguments), model);
      const Autocast precision = launch::autocast(arguments);
      const double share = launch::accuracy(model, testing, job.group());
      if (job.is_main()) {
        print(concat(arguments.evaluate, ": ", test->size(), " samples, ",
                     launch::in_words({{"accuracy", share}})));
      }
      return;
    }
    const auto train = open_data(data_name, samples, true);
    data::DataLoader training(train, {.batch_size = arguments.batch_size,
                                      .shuffle = true,
                                      .shard = job.place(),
                                      .seed = arguments.seed,
                                      .device = device});
    nn::AdamW optimizer(model.named_parameters(), {.lr = arguments.lr.value_or(1e-3)});

    launch::EpochTrainer trainer(
        job, arguments, model, optimizer,
        {.settings = {{"data", data_name}, {"train_samples", std::to_string(train->size())}},
         .tell = print});
    trainer.fit(training, testing,
                [](const Tensor& output, const Tensor& y) { return nll_loss(output, y); });
  });
}

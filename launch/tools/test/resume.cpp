// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/ops.h>
#include <peal/data/tensor_dataset.h>
#include <peal/launch/tools/test/checks.h>
#include <peal/launch/training/trainer/trainer.h>
#include <peal/nn/layers/layers.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>

namespace peal::launch {
namespace {

namespace fs = std::filesystem;

constexpr int epochs = 3, steps = 6;  // of an epoch

// Of this rank 0's, which all ranks use, and removed with it.
class SharedFolder {
 public:
  explicit SharedFolder(const Job& job) : is_mine_(job.is_main()) {
    std::string name = fs::temp_directory_path() / "peal-test-XXXXXX";
    if (is_mine_ && mkdtemp(name.data()) == nullptr) name.clear();
    path_ = job.group().broadcast_object(name);
    PEAL_CHECK(!path_.empty(), "no folder can be made in ", fs::temp_directory_path().string());
  }
  ~SharedFolder() {
    std::error_code none;
    if (is_mine_) fs::remove_all(path_, none);
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  bool is_mine_;
  fs::path path_;
};

data::DatasetRef points(std::int64_t count) {
  manual_seed(5);
  const Tensor x = randn({count, 8});
  Tensor y = Tensor::zeros({count}, DType::i64);
  for (std::int64_t i = 0; i < count; ++i) y.data<std::int64_t>()[i] = i % 3;
  return std::make_shared<data::TensorDataset>(x, y);
}

// Ends the training after that step.
struct Interrupt : TrainerCallback {
  explicit Interrupt(int step) : after(step) {}
  void on_step_end(Trainer& trainer, TrainerControl& control) override {
    if (trainer.state().global_step == after) control.should_training_stop = true;
  }
  int after;
};

struct Run {
  int steps = 0;           // that it took
  std::string model = {};  // after it, as bytes
};

// With `ends_at` the training ends after that step.
Run run(Job& job, const TrainingArguments& arguments, int ends_at = 0) {
  manual_seed(3);
  nn::Sequential net(nn::Linear(8, 16), nn::ReLU(), nn::Dropout(0.2), nn::Linear(16, 3));
  Run result;
  Trainer trainer(job, net, arguments,
                  {.train_dataset = points(4 * steps * job.world()),
                   .loss =
                       [&](const Tensor& output, const Tensor& y) {
                         ++result.steps;
                         return cross_entropy(output, y);
                       },
                   .callbacks = {std::make_shared<Interrupt>(ends_at)}});
  trainer.train();
  for (const auto& [name, tensor] : net.state_dict()) {
    const auto values = tensor.to_vector<float>();
    result.model.append(reinterpret_cast<const char*>(values.data()),
                        values.size() * sizeof(float));
  }
  return result;
}

}  // namespace

std::string check_resume(Job& job) {
  const SharedFolder folder(job);
  TrainingArguments arguments{.per_device_train_batch_size = 4,
                              .learning_rate = 0.01,
                              .num_train_epochs = epochs,
                              .logging_strategy = "no",
                              .save_strategy = "no",
                              .disable_tqdm = true};
  const Run whole = run(job, arguments);
  arguments.output_dir = (folder.path() / "run").string();
  arguments.save_strategy = "steps";
  arguments.save_steps = 2;
  const int saved_at = steps + 2, ends_at = saved_at + 1;  // in the second epoch
  const int done = run(job, arguments, ends_at).steps;
  PEAL_CHECK(done == ends_at, "a run that was to stop after step ", ends_at, " took ", done,
             " on rank ", job.rank());
  job.group().barrier().wait();
  arguments.resume_from_checkpoint = "true";
  const Run resumed = run(job, arguments);
  // All is seeded: one that begins anew ends with the same bits.
  const int left = epochs * steps - saved_at;
  PEAL_CHECK(resumed.steps == left, "a run that was stopped after step ", ends_at,
             " and went on took ", resumed.steps, " steps on rank ", job.rank(), ", expected ",
             left, ", those after the checkpoint of step ", saved_at);
  PEAL_CHECK(resumed.model == whole.model, "a run that was stopped after step ", ends_at,
             " and went on has other parameters on rank ", job.rank(),
             " than one that was not, expected the same bits");
  job.group().barrier().wait();
  return concat("stopped after step ", ends_at, " of ", epochs * steps, ", the same bits");
}

}  // namespace peal::launch

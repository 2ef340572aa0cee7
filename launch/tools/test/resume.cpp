// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/ops.h>
#include <peal/data/loader.h>
#include <peal/data/tensor_dataset.h>
#include <peal/launch/tools/test/checks.h>
#include <peal/launch/training/epoch_trainer.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/adam.h>

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

struct Interrupted {};

struct Run {
  int steps = 0;           // that it took
  std::string model = {};  // after it, as bytes
};

// With `fails_at` the training ends before that step instead, and there is no model.
Run run(Job& job, const RunArguments& arguments, int fails_at = 0) {
  manual_seed(3);
  nn::Sequential net(nn::Linear(8, 16), nn::ReLU(), nn::Dropout(0.2), nn::Linear(16, 3));
  nn::DistributedDataParallel model(net, job.group());
  nn::AdamW optimizer(net.named_parameters(), {.lr = 0.01});
  const data::DatasetRef set = points(4 * steps * job.world());
  data::DataLoader training(set,
                            {.batch_size = 4, .shuffle = true, .shard = job.place(), .seed = 1});
  data::DataLoader test(set, {.batch_size = 12, .shard = job.place(), .exact = true});
  EpochTrainer trainer(job, arguments, model, optimizer);
  Run result;
  try {
    trainer.fit(training, test, [&](const Tensor& output, const Tensor& y) {
      if (result.steps + 1 == fails_at) throw Interrupted();
      ++result.steps;
      return cross_entropy(output, y);
    });
  } catch (const Interrupted&) {
    return result;
  }
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
  RunArguments arguments;
  arguments.epochs = epochs;
  arguments.batch_size = 4;
  const Run whole = run(job, arguments);
  arguments.save = (folder.path() / "run").string() + "/";
  arguments.save_every = 2;
  const int saved_at = steps + 2, fails_at = saved_at + 2;  // in the second epoch
  const int done = run(job, arguments, fails_at).steps;
  PEAL_CHECK(done == fails_at - 1, "a run that was to stop before step ", fails_at, " took ", done,
             " on rank ", job.rank());
  job.group().barrier().wait();
  arguments.resume = arguments.save;
  const Run resumed = run(job, arguments);
  // All is seeded: one that begins anew ends with the same bits.
  const int left = epochs * steps - saved_at;
  PEAL_CHECK(resumed.steps == left, "a run that was stopped before step ", fails_at,
             " and went on took ", resumed.steps, " steps on rank ", job.rank(), ", expected ",
             left, ", those after the checkpoint of step ", saved_at);
  PEAL_CHECK(resumed.model == whole.model, "a run that was stopped before step ", fails_at,
             " and went on has other parameters on rank ", job.rank(),
             " than one that was not, expected the same bits");
  job.group().barrier().wait();
  return concat("stopped before step ", fails_at, " of ", epochs * steps, ", the same bits");
}

}  // namespace peal::launch

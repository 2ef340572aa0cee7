// SPDX-License-Identifier: Apache-2.0
// Checkpoints of all that was prepared.
#include <peal/autograd/core/error.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/group/failure_while.h>
#include <peal/launch/training/accelerator/accelerator.h>
#include <peal/launch/training/checkpoints.h>
#include <peal/nn/model_shards.h>

#include <filesystem>
#include <limits>

namespace peal::launch {
namespace {

std::string numbered(const char* name, std::size_t number) {
  return number == 0 ? std::string(name) : concat(name, "_", number);
}

}  // namespace

// Schedulers after optimizers, whose rates they start from.
std::vector<nn::Part> Accelerator::parts() {
  std::vector<nn::Part> all;
  for (std::size_t i = 0; i < state_->models.size(); ++i) {
    all.push_back(PreparedModel(state_->models[i]).part(numbered("model", i)));
  }
  for (std::size_t i = 0; i < state_->optimizers.size(); ++i) {
    all.push_back(PreparedOptimizer(state_->optimizers[i]).part(numbered("optimizer", i)));
  }
  for (std::size_t i = 0; i < schedulers_.size(); ++i) {
    all.emplace_back(numbered("scheduler", i), schedulers_[i]);
  }
  for (std::size_t i = 0; i < plateaus_.size(); ++i) {
    all.emplace_back(numbered("plateau", i), plateaus_[i]);
  }
  all.emplace_back("scaler", scaler());
  for (std::size_t i = 0; i < loaders_.size(); ++i) {
    all.emplace_back(concat("loader_", i), loaders_[i]);
  }
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    all.emplace_back(concat("stream_", i), streams_[i]);
  }
  all.insert(all.end(), registered_.begin(), registered_.end());
  return all;
}

void Accelerator::save_state(const std::string& to) {
  PEAL_CHECK(!state_->groups.is_open(),
             "[accelerator] save_state: a step is under way, whose gradients no "
             "checkpoint has; save after the batch that ends it");
  const int keep =
      options_.total_limit > 0 ? options_.total_limit : std::numeric_limits<int>::max();
  const std::filesystem::path folder = std::filesystem::path(to).parent_path();
  rank0_first(group(), [&] {
    if (is_main_process() && !folder.empty()) std::filesystem::create_directories(folder);
  });
  Checkpoints checkpoints(job_, parts(), {}, keep);
  checkpoints.save(to.empty() ? project_folder() : to, {.epoch = 0, .step = saves_++});
  checkpoints.wait();
}

void Accelerator::save_model(const PreparedModel& model, const std::string& folder,
                             std::int64_t max_shard_size) const {
  const NamedTensors state = model.state_dict();
  std::string wrong;
  if (is_main_process()) {
    wrong = comm::failure_while(group(), "saves the model", [&] {
      nn::save_model_shards(folder, state, {.max_shard_size = max_shard_size});
    });
  }
  comm::agree_unless(group(), "[accelerator] save_model", concat("'", folder, "'"), wrong,
                     "give all ranks the same");
}

void Accelerator::load_state(const std::string& from) {
  const std::string found = find_resume(job_, from.empty() ? project_folder() : from);
  const Checkpoints checkpoints(job_, parts(), {});
  saves_ = checkpoints.resume(found).step + 1;
  // Saved after an epoch's last batch, and before the loop has ended: the next one comes, on all
  // ranks when none of them has a batch left.
  for (PreparedLoader& each : loaders_) {
    if (each.loader().plan() || each.loader().sampler()) continue;
    const Tensor left = Tensor::scalar(each.left(), Device{});
    group().all_reduce(left, comm::ReduceOp::max, "batches left of a loader").wait();
    if (left.item<std::int64_t>() == 0) each.set_epoch(each.epoch() + 1);
  }
}

}  // namespace peal::launch

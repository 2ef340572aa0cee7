// SPDX-License-Identifier: Apache-2.0
// The learning rate finder (Smith, "Cyclical learning rates", 2015; fastai: Learner.lr_find).
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/launch/training/learner/plot.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace peal::launch {
namespace {

// Losses are of all ranks, so all stop after the same batch.
class LRFinder : public Callback {
 public:
  LRFinder(Phase lr, int num_it, Recorder& recorder)
      : lr_(std::move(lr)), num_it_(num_it), recorder_(recorder) {}
  int order() const override { return 60; }
  void before_batch(Loop& loop) override {
    loop.optimizer->set_lr(lr_(static_cast<double>(loop.train_iter) / num_it_));
  }
  void after_batch(Loop& loop) override {
    if (!loop.loss.defined()) return;  // a batch that was cancelled
    recorder_.catch_up(loop);
    const double loss = recorder_.losses.back();
    best_ = std::min(best_, loss);
    if (loss > 4 * best_ || loop.train_iter >= num_it_) throw CancelFitException();
  }
  void before_validate(Loop&) override { throw CancelValidException(); }

 private:
  Phase lr_;
  int num_it_;
  Recorder& recorder_;
  double best_ = std::numeric_limits<double>::infinity();
};

// All that the search changes, put back at the end.
class Unchanged {
 public:
  explicit Unchanged(Learner& learner)
      : learner_(learner),
        optimizer_(std::exchange(learner.optimizer, nullptr)),
        recorder_(learner.recorder()),
        loader_(learner.training_loader->state_dict()),
        generator_(context().generator),
        values_(learner.values) {
    for (const auto& list : {learner.model.named_parameters(), learner.model.named_buffers()}) {
      for (const auto& [name, tensor] : list) tensors_.emplace_back(tensor, tensor.clone());
    }
    scaler_ = learner.accelerator().scaler().state_dict();
    learner.recorder().silent = learner.trial = true;
  }
  ~Unchanged() {
    const NoGrad guard;
    for (const auto& [tensor, before] : tensors_) {
      if (tensor.storage()->has_bytes()) {
        tensor.copy_(before);
      } else {  // an exception has left a sharded one without
        tensor.rebind(before);
      }
    }
    learner_.accelerator().scaler().load_state_dict(scaler_);
    if (learner_.optimizer) learner_.optimizer->zero_grad();
    learner_.optimizer = optimizer_;
    learner_.recorder() = recorder_;
    learner_.training_loader->load_state_dict(loader_);
    context().generator = generator_;
    learner_.values = values_;
    learner_.trial = false;
  }
  Unchanged(const Unchanged&) = delete;
  Unchanged& operator=(const Unchanged&) = delete;

 private:
  Learner& learner_;
  std::shared_ptr<nn::Optimizer> optimizer_;
  Recorder recorder_;
  NamedTensors loader_, scaler_;
  Generator generator_;
  std::vector<Value> values_;
  std::vector<std::pair<Tensor, Tensor>> tensors_;
};

}  // namespace

std::size_t valley(const std::vector<double>& losses) {
  std::vector<std::ptrdiff_t> longest(losses.size(), 1);
  std::size_t end = 0;  // of the longest fall, the first of equals
  for (std::size_t i = 0; i < losses.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (losses[i] < losses[j]) longest[i] = std::max(longest[i], longest[j] + 1);
    }
    if (longest[i] > longest[end]) end = i;
  }
  PEAL_CHECK(end > 0, "[launch] lr_find: of ", losses.size(),
             " losses none falls, so there is no rate to suggest; look at the plot, and begin "
             "from smaller rates or with more batches");
  const std::ptrdiff_t start = static_cast<std::ptrdiff_t>(end) - longest[end];
  const double third = static_cast<double>(static_cast<std::ptrdiff_t>(end) - start) / 3;
  const std::ptrdiff_t at =
      start + static_cast<std::ptrdiff_t>(third) + static_cast<std::ptrdiff_t>(third / 2);
  return static_cast<std::size_t>(std::max<std::ptrdiff_t>(at, 0));
}

namespace {

// By the logarithm of the rate; the first of equals.
std::size_t steepest(const std::vector<double>& losses, const std::vector<double>& lrs,
                     std::size_t from) {
  std::size_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i + 1 < losses.size(); ++i) {
    const double slope =
        (losses[i + 1] - losses[i]) / (std::log(lrs[from + i + 1]) - std::log(lrs[from + i]));
    if (slope < least) {
      least = slope;
      best = i;
    }
  }
  return from + best;
}

}  // namespace

LearningRates Learner::lr_find(double start_lr, double end_lr, int num_it) {
  PEAL_CHECK(start_lr > 0 && end_lr > start_lr, "[launch] lr_find: from ", start_lr, " to ", end_lr,
             " is no rise from above 0");
  PEAL_CHECK(training_loader != nullptr, "[launch] lr_find: there is no loader to train with");
  num_it = std::max(num_it, 6);
  LearningRates found;
  share_loaders();
  accelerator().draw_apart();  // from here on, and not from within the search
  {
    const Unchanged guard(*this);
    const std::int64_t batches = std::max<std::int64_t>(training_loader->size(), 1);
    fit(static_cast<int>(num_it / batches + 1), {},
        {.cbs = {std::make_shared<LRFinder>(sched_exp(start_lr, end_lr), num_it, *recorder_)}});
    found.lrs = recorder_->lrs;
    found.losses = recorder_->losses;
  }
  const auto from = static_cast<std::size_t>(num_it / 10);
  std::vector<double> looked_at;
  for (std::size_t i = from; i + 5 < found.losses.size(); ++i) {
    if (std::isnan(found.losses[i])) break;
    looked_at.push_back(found.losses[i]);
  }
  const std::size_t at = from + launch::valley(looked_at);
  found.valley = found.lrs[at];
  found.valley_loss = found.losses[at];
  const auto least = std::ranges::min_element(looked_at) - looked_at.begin();
  found.minimum = found.lrs[from + static_cast<std::size_t>(least)] / 10;
  found.steep = found.lrs[steepest(looked_at, found.lrs, from)];
  return found;
}

void LearningRates::plot(const std::filesystem::path& path) const {
  save_svg(path, {.title = "Learning rate finder",
                  .x_title = "learning rate",
                  .y_title = "smooth loss",
                  .lines = {{"loss", lrs, losses}},
                  .log_x = true,
                  .marked = {"valley", {valley}, {valley_loss}}});
}

}  // namespace peal::launch

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/group/agree.h>
#include <peal/launch/training/accelerator/accelerator.h>
#include <peal/launch/training/accelerator/uneven_inputs.h>
#include <peal/launch/training/tensor_words.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

namespace peal::launch {
namespace {

std::vector<nn::DistributedDataParallel> wrappers_of(const std::vector<PreparedModel>& models) {
  std::vector<nn::DistributedDataParallel> all;
  for (const PreparedModel& model : models) all.push_back(*model.ddp());
  return all;
}

// Of all ranks the greatest, element by element.
std::vector<std::int64_t> greatest(const comm::ProcessGroup& group,
                                   const std::vector<std::int64_t>& mine, const char* what) {
  const Tensor all = Tensor::from(mine, {std::ssize(mine)}, Device{});
  group.all_reduce(all, comm::ReduceOp::max, what).wait();
  return all.to_vector<std::int64_t>();
}

}  // namespace

UnevenInputs::UnevenInputs(std::shared_ptr<GradientState> state,
                           const std::vector<PreparedModel>& models, std::vector<nn::Part> others)
    : state_(std::move(state)),
      models_(models),
      others_(std::move(others)),
      join_(wrappers_of(models)),
      depth_(state_->loaders.size()) {}

// A loop that was under way before may be over meanwhile.
void UnevenInputs::begin(const LoaderBody& loader, std::int64_t batches) {
  if (loop_ != nullptr || state_->loaders.size() > depth_) return;
  turns_ = most_ = least_ = 0;
  if (loader.knows_left()) {
    const auto both = greatest(state_->group, {batches, -batches}, "batches of an uneven loop");
    most_ = both[0];
    least_ = -both[1];
  }
  was_uneven_ = had_last_ = false;
  loop_ = &loader;
}

void UnevenInputs::turn(const LoaderBody& loader, bool has_batch) {
  if (loop_ != &loader) return;
  while (join_.next(has_batch, has_batch && loader.knows_left() ? loader.left() : 0)) {
    ++turns_;
    if (!loader.knows_left()) ask_left(loader, has_batch);
    had_last_ = join_.active();
    was_uneven_ = was_uneven_ || join_.active_ranks() < state_->group.world();
    if (has_batch) return;
    follow();
  }
  loop_ = nullptr;
  if (was_uneven_) finish();
}

// Whether any rank has another batch after this turn.
void UnevenInputs::ask_left(const LoaderBody& loader, bool has_batch) {
  const std::int64_t left = has_batch ? loader.left() : 0;
  most_ = turns_ + greatest(state_->group, {left}, "whether there is another batch")[0];
}

// What is not averaged yet, of batches that this rank had, goes into the first backward.
void UnevenInputs::follow() {
  state_->groups.next(most_ - turns_);
  while (join_.follow()) {
    for (PreparedModel& model : models_) model.zero_grad();
  }
}

// Those who had a batch in the last turn have made all steps.
void UnevenInputs::finish() {
  const comm::ProcessGroup& group = state_->group;
  const auto root = static_cast<int>(
      greatest(group, {had_last_ ? group.rank() : -1}, "who had the last batch")[0]);
  std::vector<View> values;
  for (const PreparedModel& model : models_) {
    for (const auto& [name, tensor] : model.state_dict()) values.push_back(tensor.detach());
  }
  group.broadcast_coalesced(values, root, "models after an uneven loop").wait();
  for (const nn::Part& part : others_) {
    const NamedTensors state = broadcast_tensors(group, part.state_dict(), root);
    if (group.rank() != root) part.load_state_dict(state);
  }
}

void UnevenInputs::end(const LoaderBody& loader, bool unwinding) noexcept {
  if (loop_ != &loader) return;
  try {
    if (unwinding) {
      loop_ = nullptr;
    } else if (turns_ < least_) {  // all ranks know that all have another batch
      join_.restart();
      loop_ = nullptr;
      if (was_uneven_) finish();
    } else {
      turn(loader, false);
    }
  } catch (...) {
    loop_ = nullptr;
    log_warning("[accelerator] rank ", state_->group.rank(),
                ": a loop under join_uneven_inputs was left, and then: ", words_of_failure());
  }
}

std::int64_t UnevenInputs::left(const LoaderBody& loader) const {
  return loop_ == &loader ? most_ - turns_ : loader.left();
}

std::unique_ptr<data::DataLoader> with_even_batches(const data::DataLoader& loader, bool even) {
  data::LoaderOptions options = loader.options();
  const bool has_say = !loader.plan() && !loader.sampler() && options.shard && !options.drop_last;
  if (!has_say || options.exact != even) return nullptr;
  options.exact = !even;
  auto other = std::make_unique<data::DataLoader>(loader.dataset_ref(), options);
  other->load_state_dict(loader.state_dict());
  return other;
}

namespace {

void exchange(LoaderBody& body, std::unique_ptr<data::DataLoader> other) {
  body.loader = std::move(other);
  body.in_epoch = data::DataLoader(body.loader->dataset_ref(), body.loader->options()).size();
}

// Until it goes, loops are joined, and loaders have other batches at their ends.
class Joined {
 public:
  Joined(std::shared_ptr<GradientState> state, std::shared_ptr<UnevenInputs> inputs,
         const std::deque<PreparedLoader>& loaders, const std::deque<PreparedStream>& streams)
      : state_(std::move(state)),
        inputs_(std::move(inputs)),
        loaders_(loaders),
        streams_(streams) {}
  Joined(const Joined&) = delete;
  Joined& operator=(const Joined&) = delete;
  ~Joined() {
    // Loops by next() that were left.
    for (const PreparedLoader& loader : loaders_) loader.body()->opened.reset();
    for (const PreparedStream& stream : streams_) stream.body()->opened.reset();
    if (state_->uneven == inputs_.get()) state_->uneven = nullptr;
    try {
      for (const auto& body : changed_) {
        if (auto other = with_even_batches(*body->loader, even_)) {
          exchange(*body, std::move(other));
        }
      }
    } catch (...) {
      log_warning("[accelerator] join_uneven_inputs: a loader stays as it is: ",
                  words_of_failure());
    }
  }
  void join() { state_->uneven = inputs_.get(); }
  // Loaders have these batches meanwhile.
  void set_even(bool even) {
    even_ = !even;
    bool any_stays = false;
    for (const PreparedLoader& loader : loaders_) {
      const auto& body = loader.body();
      const auto& all = state_->loaders;
      PEAL_CHECK(std::find(all.begin(), all.end(), body.get()) == all.end(),
                 "an epoch of a loader is under way, whose batches are dealt already; enter the "
                 "context between epochs, or leave even_batches as it is");
      auto other = with_even_batches(*body->loader, even);
      any_stays = any_stays || body->loader->sampler() || body->loader->plan();
      if (!other) continue;
      exchange(*body, std::move(other));
      changed_.push_back(body);
    }
    any_stays = any_stays || !streams_.empty();
    if (any_stays && state_->group.rank() == 0) {
      log_warning(
          "[accelerator] join_uneven_inputs: even_batches says nothing about loaders by a "
          "sampler or a plan, and of streams, which stay as they are");
    }
  }

 private:
  std::shared_ptr<GradientState> state_;
  std::shared_ptr<UnevenInputs> inputs_;
  const std::deque<PreparedLoader>& loaders_;
  const std::deque<PreparedStream>& streams_;
  std::vector<std::shared_ptr<LoaderBody>> changed_;
  bool even_ = true;  // as it was
};

}  // namespace

std::shared_ptr<void> Accelerator::join_uneven_inputs(const std::vector<PreparedModel>& models,
                                                      std::optional<bool> even_batches) {
  if (job_.world() == 1) return {};
  std::shared_ptr<Joined> joined;
  const std::string wrong = failure_in([&] {
    PEAL_CHECK(!models.empty(), "expected a prepared model, got none");
    PEAL_CHECK(strategy_ == Strategy::ddp, "with the strategy '", word_of(strategy_),
               "' each step has collectives of all ranks, in which one that has no batch takes no "
               "part; take 'ddp', or even_batches");
    PEAL_CHECK(state_->lowered != DType::f16,
               "with mixed_precision 'fp16' all ranks agree in each step whether its gradients are "
               "finite, and one that has no batch takes no part; take 'bf16', or even_batches");
    PEAL_CHECK(state_->uneven == nullptr, "inputs are joined already; leave the other context");
    PEAL_CHECK(!state_->groups.is_open(), "a step is under way; end it before");
    for (const PreparedModel& model : models) {
      PEAL_CHECK(model.body()->apart == 0, "a model is in a LocalSGD; leave that before");
    }
    std::vector<nn::Part> others;
    for (const auto& each : state_->optimizers) {
      others.push_back(PreparedOptimizer(each).part("optimizer"));
    }
    for (PreparedScheduler& each : schedulers_) others.emplace_back("scheduler", each);
    for (PreparedPlateau& each : plateaus_) others.emplace_back("plateau", each);
    joined = std::make_shared<Joined>(
        state_, std::make_shared<UnevenInputs>(state_, models, std::move(others)), loaders_,
        streams_);
    if (even_batches) joined->set_even(*even_batches);
  });
  comm::agree_unless(job_.group(), "[accelerator] join_uneven_inputs",
                     concat(models.size(), " models, even_batches ",
                            even_batches ? (*even_batches ? "true" : "false") : "as it was"),
                     wrong, "give all ranks the same");
  joined->join();
  return joined;
}

}  // namespace peal::launch

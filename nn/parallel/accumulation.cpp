// SPDX-License-Identifier: Apache-2.0
// Accumulation: whose the gradients are that are there when a backward begins. Of a sum over
// samples, of a step that is done, this rank's own; or zero_grad() has given them up.
#include <peal/autograd/core/graph.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/hooks.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/tape.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/reducer.h>

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace peal::nn {
namespace {

bool has_gradient(const std::pair<std::string, Tensor>& parameter) {
  return parameter.second.requires_grad() && parameter.second.grad().defined();
}

// Until what is returned goes, the slot takes what comes divided by that.
std::shared_ptr<void> take_divided(const std::shared_ptr<GradSlot>& slot, double factor) {
  const std::uint64_t id = new_hook_id();
  slot->gradient_hooks().add(id, [factor](const Tensor& grad) { return grad / factor; });
  return {nullptr, [slot, id](void*) { slot->gradient_hooks().remove(id); }};
}

// Until what is returned goes, `came` becomes true where the slot gets a gradient.
std::shared_ptr<void> note_gradient(const std::shared_ptr<GradSlot>& slot, bool& came) {
  const std::uint64_t id = slot->add_hook([&came](const Tensor&) { came = true; });
  return {nullptr, [slot, id](void*) { slot->remove_hook(id); }};
}

constexpr const char* shared_weights =
    "backward(loss, samples): the loss goes through another wrapper, too, whose gradients would be "
    "multiplied as this one's, and averaged as of a loss without samples; give each wrapper a "
    "backward of its own, of a loss that goes through none besides";

}  // namespace

void Reducer::backward(const Tensor& loss, double samples, const std::vector<Tensor>& others) {
  check_whole();
  std::unordered_set<const GradSlot*> own;
  for (const auto& [name, tensor] : parameters_) {
    if (tensor.requires_grad()) own.insert(&tensor.grad_slot());
  }
  for (const Tensor& tensor : watched_) own.insert(&tensor.grad_slot());
  auto leaves = leaves_of({&loss, 1});
  for (const Tensor& tensor : others) leaves.push_back(tensor.body().slot);
  std::erase_if(leaves, [&](const auto& slot) { return !own.insert(slot.get()).second; });
  for (const auto& slot : leaves) {
    if (slot->has_final_hook()) fail_shared_weights();
  }
  const auto left = std::find_if(parameters_.begin(), parameters_.end(), has_gradient);
  const auto weighed = weights_.weigh(samples, loss.dtype(),
                                      left != parameters_.end() ? left->first : "", synchronizing_);
  std::vector<std::shared_ptr<void>> hooks;
  for (const auto& slot : leaves) {
    if (weighed.factor != 0) hooks.push_back(take_divided(slot, weighed.factor));
  }
  bool aside = false;  // an ignored parameter got a gradient
  for (const Tensor& tensor : others) hooks.push_back(note_gradient(tensor.body().slot, aside));
  if (!loss.requires_grad()) fail_without_model();
  const std::uint64_t before = steps_;
  loss.backward(full(loss.shape(), weighed.factor, loss.dtype(), loss.device()));
  if (steps_ != before || backward_ != 0) return;
  if (!aside) fail_without_model();
  weights_.check_unheard();  // no rank waits for it
  // It was no step. Under no_sync() a loss through the model is none either, so there all count.
  if (synchronizing_) weights_.take_back(weighed);
}

// The others are in a step that this rank has not begun.
void Reducer::fail_without_model() const {
  const bool trains = std::any_of(parameters_.begin(), parameters_.end(),
                                  [](const auto& p) { return p.second.requires_grad(); });
  if (!synchronizing_ || !trains || group_.world() == 1) return;
  fail_everywhere(
      group_,
      "backward(loss, samples): the loss goes through no parameter of the wrapper, and "
      "other ranks wait for their gradients; where a rank has no sample let it call the "
      "model with a batch of none, or follow a Join");
}

// The others may be in the step already. Also where the graph has not shown it, as a recomputed
// segment goes through this wrapper alone.
void Reducer::fail_shared_weights() const { fail_everywhere(group_, shared_weights); }

// Of a backward that has got the gradient of `first` and maybe of others: whether zero_grad() came
// before it. Those show it that have got nothing yet; where there are none, `otherwise`.
bool Reducer::given_up(std::size_t first, bool otherwise) const {
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const Tensor& tensor = parameters_[p].second;
    if (!tensor.requires_grad() || p == first || tensor.grad_slot().touched) continue;
    if (tensor.grad_slot().defined()) return false;
    otherwise = true;
  }
  return otherwise;
}

// The first gradient of a backward without samples has come, and samples are counted. In a step the
// others, who may be in it already, hear of it as of numbers of samples that are wrong.
void Reducer::end_weights(std::size_t first) {
  std::string wrong;
  if (!given_up(first, false)) {
    wrong = concat("in step ", steps_ + 1,
                   " backward(loss, samples) and backward(loss) are not for one accumulation; give "
                   "the number of samples each time, and call zero_grad() now");
  }
  weights_.forget();
  if (wrong.empty()) return;
  PEAL_CHECK(synchronizing_ && Graph::capturing() == nullptr, "[ddp] ", wrong);
  weights_.spoil(std::move(wrong));
}

// A gradient of a backward that does not communicate has come.
void Reducer::note_own(std::size_t first) {
  if (!shared_ || added_) return;
  shared_ = !given_up(first, true);
  added_ = shared_;
}

void Reducer::begin_without_batch(bool weighted) {
  if (std::none_of(parameters_.begin(), parameters_.end(), has_gradient)) {
    weights_.forget();
    shared_ = false;
  }
  weights_.follow(weighted);
}

// A rank without a batch has nothing to give where the sum is divided by the number of those that
// have one: what an earlier step left is in their gradients, as often as they are.
void Reducer::leave_out_shared() {
  if (divisor_ == group_.world() || !shared_) return;
  if (added_) {
    fail_everywhere(
        group_,
        concat("this rank follows ", step_,
               " without a batch, and has gradients of its own on top "
               "of those of an earlier step, which Join with divide_by_initial_world_size = false "
               "cannot tell apart; call zero_grad() between"));
  }
  for (std::size_t b = 0; b < buckets_->size(); ++b) {
    if (plan_[b].owner == everyone) (*buckets_)[b].buffer.zero_();
  }
}

}  // namespace peal::nn

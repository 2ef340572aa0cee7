// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/training/accelerator/prepared_loader.h>
#include <peal/launch/training/accelerator/uneven_inputs.h>

#include <algorithm>
#include <exception>

namespace peal::launch {
namespace {

// The loader gave the batch under way: loops that were opened in its own, and left early, are over,
// and it is there again where another's batch took it for such a one.
void be_innermost(GradientState& state, const LoaderBody* loader) {
  auto& all = state.loaders;
  const auto last = std::find(all.rbegin(), all.rend(), loader);
  if (last == all.rend()) {
    all.push_back(loader);
  } else {
    all.erase(last.base(), all.end());
  }
}

}  // namespace

double GradientState::samples() const {
  return loaders.empty() ? 1 : static_cast<double>(loaders.back()->samples);
}

double GradientState::nominal_samples() const {
  return loaders.empty() ? 1 : static_cast<double>(loaders.back()->nominal);
}

std::int64_t GradientState::left() const {
  return uneven != nullptr ? uneven->left(*loaders.back()) : loaders.back()->left();
}

std::shared_ptr<void> begin_loop(const std::shared_ptr<GradientState>& state, LoaderBody* loop,
                                 std::int64_t batches) {
  if (state->uneven != nullptr) state->uneven->begin(*loop, batches);
  state->loaders.push_back(loop);
  const int unwinding = std::uncaught_exceptions();
  // It is not null, so that who has it knows that a loop is under way.
  return {loop, [state, loop, unwinding](void*) {
            if (state->uneven != nullptr) {
              state->uneven->end(*loop, std::uncaught_exceptions() > unwinding);
            }
            auto& all = state->loaders;
            const auto last = std::find(all.rbegin(), all.rend(), loop);
            if (last != all.rend()) all.erase(std::next(last).base());
          }};
}

void take_turn(GradientState& state, LoaderBody& loop, const data::Batch* batch) {
  if (state.uneven != nullptr) state.uneven->turn(loop, batch != nullptr);
  if (batch == nullptr) return;
  be_innermost(state, &loop);
  loop.samples = batch->size();
}

std::optional<data::Batch> PreparedLoader::next() {
  if (!body_->opened) body_->opened = begin_loop(state_, body_.get(), body_->left());
  auto batch = loader().next();
  take_turn(*state_, *body_, batch ? &*batch : nullptr);
  if (!batch) body_->opened.reset();
  return batch;
}

// Who goes on from a checkpoint leaves out what was over, and so has load_state().
void PreparedLoader::skip_first_batches(std::int64_t count) {
  const std::int64_t behind = body_->in_epoch > 0 ? body_->in_epoch - left() : 0;
  PEAL_CHECK(count == 0 || count >= behind,
             "[accelerator] skip_first_batches: the loader stands after ", behind,
             " batches of epoch ", epoch(), ", and the first ", count,
             " of them were to be left out; call it before the epoch, or with all that is over");
  if (count > behind) loader().skip_first_batches(count - behind);
}

void PreparedLoader::set_epoch(std::int64_t epoch) {
  body_->opened.reset();
  loader().set_epoch(epoch);
}

PreparedLoader::Iterator PreparedLoader::begin() {
  body_->opened.reset();
  return Iterator(*this);
}

// The loader first: what it has left before is of an epoch that may have been left.
PreparedLoader::Iterator::Iterator(PreparedLoader& of)
    : body_(of.body_), state_(of.state_), at_(of.loader().begin()) {
  const std::int64_t batches = at_ == std::default_sentinel ? 0 : body_->left() + 1;
  opened_ = begin_loop(state_, body_.get(), batches);
  note();
}

PreparedLoader::Iterator& PreparedLoader::Iterator::operator++() {
  ++at_;
  note();
  return *this;
}

void PreparedLoader::Iterator::note() {
  const bool is_over = at_ == std::default_sentinel;
  take_turn(*state_, *body_, is_over ? nullptr : &*at_);
  if (is_over) opened_.reset();
}

}  // namespace peal::launch

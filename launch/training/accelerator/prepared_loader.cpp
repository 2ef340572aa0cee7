// SPDX-License-Identifier: Apache-2.0
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

// Until what is returned goes, it is the innermost with an epoch under way.
std::shared_ptr<void> PreparedLoader::open() {
  if (state_->uneven != nullptr) state_->uneven->begin(*body_);
  state_->loaders.push_back(body_.get());
  const int unwinding = std::uncaught_exceptions();
  LoaderBody* const loader = body_.get();  // not null, as next() asks whether it is open
  return {loader, [state = state_, loader, unwinding](void*) {
            if (state->uneven != nullptr) {
              state->uneven->end(*loader, std::uncaught_exceptions() > unwinding);
            }
            auto& all = state->loaders;
            const auto last = std::find(all.rbegin(), all.rend(), loader);
            if (last != all.rend()) all.erase(std::next(last).base());
          }};
}

std::optional<data::Batch> PreparedLoader::next() {
  if (!body_->opened) body_->opened = open();
  auto batch = loader().next();
  if (state_->uneven != nullptr) state_->uneven->turn(*body_, batch.has_value());
  if (batch) {
    be_innermost(*state_, body_.get());
    body_->samples = batch->size();
  } else {
    body_->opened.reset();
  }
  return batch;
}

void PreparedLoader::set_epoch(std::int64_t epoch) {
  body_->opened.reset();
  loader().set_epoch(epoch);
}

PreparedLoader::Iterator PreparedLoader::begin() {
  body_->opened.reset();
  return {*this, open()};
}

PreparedLoader::Iterator::Iterator(PreparedLoader& of, std::shared_ptr<void> opened)
    : body_(of.body_), state_(of.state_), opened_(std::move(opened)), at_(of.loader().begin()) {
  note();
}

PreparedLoader::Iterator& PreparedLoader::Iterator::operator++() {
  ++at_;
  note();
  return *this;
}

void PreparedLoader::Iterator::note() {
  if (state_->uneven != nullptr) state_->uneven->turn(*body_, at_ != std::default_sentinel);
  if (at_ == std::default_sentinel) {
    opened_.reset();
  } else {
    be_innermost(*state_, body_.get());
    body_->samples = at_->size();
  }
}

}  // namespace peal::launch

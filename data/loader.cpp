// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/lone_ranks.h>
#include <peal/autograd/core/trace.h>
#include <peal/data/copy_ahead.h>
#include <peal/data/loader.h>
#include <peal/data/prefetch.h>

#include <algorithm>
#include <string>
#include <utility>

namespace peal::data {
namespace {

PlannedBatches after_first(const PlannedBatches& batches, std::int64_t first) {
  PEAL_CHECK(first <= batches.size(), "[data] loader: an epoch of ", batches.size(),
             " batches cannot be taken up after ", first,
             "; does the plan give other batches than when the state was saved?");
  return batches.without_first(first);
}

}  // namespace

DataLoader::DataLoader(DatasetRef dataset, LoaderOptions options)
    : DataLoader(std::move(dataset), nullptr, nullptr, options) {
  const Place here = place();
  PEAL_CHECK(here.world >= 1 && here.rank >= 0 && here.rank < here.world,
             "[data] loader: expected a shard with a rank below its world, got rank ", here.rank,
             " of ", here.world);
  PEAL_CHECK(!options_.exact || options_.shard,
             "[data] loader: exact says how ranks share the samples, but there is no shard; name "
             "one (.shard = job.place())");
  if (options_.way == Way::samples) return;
  PEAL_CHECK(options_.shard,
             "[data] loader: a way says how ranks share the samples, but there is no shard; name "
             "one (.shard = job.place())");
  PEAL_CHECK(!options_.exact || !options_.drop_last,
             "[data] loader: exact sees every sample once, drop_last leaves some out: choose one");
  deal(0, deal_of_options());
}

DataLoader::DataLoader(DatasetRef dataset, std::shared_ptr<Sampler> sampler, LoaderOptions options)
    : DataLoader(std::move(dataset), std::move(sampler), nullptr, options) {
  PEAL_CHECK(sampler_, "[data] loader: expected a data set and a sampler, got none");
  PEAL_CHECK(
      !options_.shuffle && !options_.shard && !options_.exact && options_.way == Way::samples,
      "[data] loader: its sampler has the say about order and shard: leave out shuffle, "
      "shard, way and exact");
}

DataLoader::DataLoader(DatasetRef dataset, BatchPlan plan, LoaderOptions options)
    : DataLoader(std::move(dataset), nullptr, std::move(plan), options) {
  PEAL_CHECK(plan_, "[data] loader: expected a data set and a plan, got none");
  PEAL_CHECK(options_.batch_size == 1 && !options_.drop_last && !options_.shuffle &&
                 !options_.shard && !options_.exact && options_.way == Way::samples,
             "[data] loader: its plan has the say about what is in a batch: leave out batch_size, "
             "drop_last, shuffle, shard, way and exact");
}

DataLoader::DataLoader(DatasetRef dataset, std::shared_ptr<Sampler> sampler, BatchPlan plan,
                       LoaderOptions options)
    : dataset_(std::move(dataset)),
      sampler_(std::move(sampler)),
      plan_(std::move(plan)),
      options_(options) {
  PEAL_CHECK(dataset_, "[data] loader: expected a data set, got none");
  PEAL_CHECK(options_.batch_size >= 1, "[data] loader: expected a batch_size of at least 1, got ",
             options_.batch_size);
  PEAL_CHECK(options_.workers >= 0, "[data] loader: expected workers to be at least 0, got ",
             options_.workers);
  PEAL_CHECK(options_.prefetch >= 1, "[data] loader: expected a prefetch of at least 1, got ",
             options_.prefetch);
  PEAL_CHECK(options_.max_bad_samples >= 0,
             "[data] loader: expected max_bad_samples to be at least 0, got ",
             options_.max_bad_samples);
  PEAL_CHECK(options_.max_bad_samples == 0 || !options_.exact,
             "[data] loader: exact sees every sample once, and with max_bad_samples some are seen "
             "again in the place of others: choose one");
  const bool alone = !options_.shard && !sampler_ && !plan_;
  seed_ = options_.seed.value_or(alone ? context().generator.seed : 0);
  if (options_.device.type != DeviceType::cpu) {
    copies_ = std::make_unique<CopyAhead>(options_.device);
  }
}

DataLoader::~DataLoader() = default;

ShardOptions DataLoader::shard_options(std::int64_t epoch, std::int64_t consumed) const {
  return {.shuffle = options_.shuffle,
          .seed = seed_,
          .epoch = epoch,
          .exact = options_.exact,
          .consumed = consumed};
}

Deal DataLoader::deal_of_options() const {
  const Tail tail = options_.exact ? Tail::uneven : options_.drop_last ? Tail::drop : Tail::fill;
  return {options_.way, options_.batch_size, place(), tail};
}

std::span<const Dealt> DataLoader::dealt_before(std::int64_t epoch) const {
  return epoch == taken_up_ ? dealt_before_ : std::span<const Dealt>();
}

// Of an epoch of a plan or a way, whole.
PlannedBatches DataLoader::planned(std::int64_t epoch) const {
  if (plan_) return plan_(epoch);
  return dealt_batches(epoch_order(dataset_->size(), shard_options(epoch, 0)), deal_of_options(),
                       dealt_before(epoch));
}

// A pass that was left, of an epoch that the sampler still has and was told nothing about: after
// its last batch the next one comes, and before it the whole of the same.
void DataLoader::begin_anew() {
  if (within() && sampler_ && sampler_->epoch() == running_ &&
      sampler_->consumed_after(0) == begun_at_) {
    sampler_->resume(has_next() ? running_ : running_ + 1, 0);
  }
}

void DataLoader::open() {
  warn_of_lone_ranks();
  begin_anew();
  epoch_.reset();
  ahead_.reset();
  failure_ = nullptr;
  taken_ = batches_taken_ = last_taken_ = 0;
  bad_samples_.clear();
  const std::int64_t epoch = coming();
  const auto cut = [&](Order samples) {
    return planned_batches(std::move(samples), options_.batch_size, options_.drop_last);
  };
  PlannedBatches batches = by_batches() ? after_first(planned(epoch), next_consumed_)
                           : sampler_
                               ? cut(sampler_->order())
                               : cut(planned_shard(dataset_->size(), place().world, place().rank,
                                                   shard_options(epoch, next_consumed_)));
  const std::int64_t count = batches.size();
  epoch_ =
      std::make_unique<Prefetch>(*dataset_, std::move(batches), Draws{seed_, epoch},
                                 PrefetchOptions{options_.workers, options_.prefetch,
                                                 copies_ != nullptr, options_.max_bad_samples});
  batches_ = count;  // it is open: what threw before leaves it the one to come
  running_ = epoch;
  begun_at_ = sampler_ ? sampler_->consumed_after(0) : next_consumed_;
  next_consumed_ = 0;
  next_epoch_ = epoch + 1;
}

// What making the next batch comes to.
DataLoader::Step DataLoader::fetch() {
  try {
    std::optional<Prefetch::Made> made = epoch_->next();
    if (!made) return {};
    return {std::move(made->batch), made->samples, nullptr, std::move(made->bad)};
  } catch (...) {
    return {std::nullopt, 0, std::current_exception()};
  }
}

// The batch that was copied meanwhile, while the copy of the one after it begins.
DataLoader::Step DataLoader::fetch_ahead() {
  const auto begin_copy = [&] {
    ahead_ = fetch();
    if (ahead_->batch) copies_->start(*std::exchange(ahead_->batch, Batch{}));
  };
  if (!ahead_) begin_copy();
  Step step = std::move(*ahead_);
  if (step.batch) {
    step.batch = copies_->take();
    begin_copy();
  }
  return step;
}

// Where it is one too many, the step fails.
void DataLoader::note_bad(Step& step) {
  for (BadSample& bad : std::exchange(step.bad, {})) {
    const std::string which = concat("[data] sample ", bad.sample, " (batch ", bad.batch,
                                     " of epoch ", running_, "): ", bad.why);
    const std::int64_t replaced_by = bad.replaced_by;
    bad_samples_.push_back(std::move(bad));
    if (std::ssize(bad_samples_) <= options_.max_bad_samples) {
      log_warning(which, "; sample ", replaced_by, " stands in for it");
      continue;
    }
    step = {std::nullopt, 0,
            std::make_exception_ptr(Error(concat(which, "; it is bad sample ", bad_samples_.size(),
                                                 " of this epoch, of which max_bad_samples lets ",
                                                 options_.max_bad_samples, " be")))};
    return;
  }
}

std::optional<Batch> DataLoader::next() {
  if (failure_) std::rethrow_exception(failure_);
  const TraceSpan span("load batch");  // how long training waits for data
  if (!epoch_) open();
  Step step = copies_ ? fetch_ahead() : fetch();
  note_bad(step);
  last_taken_ = step.samples;
  taken_ += step.samples;
  if (step.batch) {
    ++batches_taken_;
    return std::move(step.batch);
  }
  epoch_.reset();
  ahead_.reset();
  failure_ = step.failure;
  if (failure_) std::rethrow_exception(failure_);
  taken_ = batches_taken_ = last_taken_ = 0;
  if (running_ == taken_up_) dealt_before_.clear();  // who comes back to it means the whole
  // Of a sampler that has the say about epochs, too, the next one comes.
  if (sampler_ && sampler_->epoch()) sampler_->resume(running_ + 1, 0);
  return std::nullopt;
}

DataLoader::Iterator DataLoader::begin() {
  open();
  advance();
  return Iterator(this);
}

// The last batch goes first, so that its memory is there for the next ones.
void DataLoader::advance() {
  current_.reset();
  current_ = next();
}

}  // namespace peal::data

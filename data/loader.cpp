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

PlannedBatches joined(const PlannedBatches& first, const PlannedBatches& then) {
  if (first.size() == 0) return then;
  return {first.size() + then.size(),
          [=](std::int64_t k) { return k < first.size() ? first[k] : then[k - first.size()]; }};
}

// What a sampler's order has before what is left of it.
Order before_rest(Sampler& sampler, std::int64_t epoch, std::int64_t left) {
  const std::int64_t consumed = sampler.consumed_after(0);
  if (consumed == 0) return {};
  Order all;
  sampler.resume(epoch, 0);
  try {
    all = sampler.order();
  } catch (...) {
    sampler.resume(epoch, consumed);
    throw;
  }
  sampler.resume(epoch, consumed);
  return {std::max<std::int64_t>(all.size() - left, 0), [all](std::int64_t k) { return all[k]; }};
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
  const bool exact = options_.exact || (sampler_ && sampler_->exact());
  PEAL_CHECK(options_.max_bad_samples == 0 || !exact,
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

std::pair<PlannedBatches, std::int64_t> DataLoader::whole(std::int64_t epoch) const {
  if (by_batches()) {
    PlannedBatches all = planned(epoch);
    PEAL_CHECK(next_consumed_ <= all.size(), "[data] loader: an epoch of ", all.size(),
               " batches cannot be taken up after ", next_consumed_,
               "; does the plan give other batches than when the state was saved?");
    return {std::move(all), next_consumed_};
  }
  Order before, rest;
  if (sampler_) {
    rest = sampler_->order();
    before = before_rest(*sampler_, epoch, rest.size());
  } else {
    const std::int64_t size = dataset_->size(), world = place().world;
    rest = planned_shard(size, place().world, place().rank, shard_options(epoch, next_consumed_));
    if (rest.size() > 0 && next_consumed_ > 0) {
      const Order all = epoch_order(size, shard_options(epoch, 0));
      const std::int64_t at = next_consumed_ + place().rank;  // of the first one that is left
      before = {at / world, [=](std::int64_t k) { return all[(at % world + k * world) % size]; }};
    }
  }
  const PlannedBatches over = planned_batches(std::move(before), options_.batch_size);
  return {joined(over, planned_batches(std::move(rest), options_.batch_size, options_.drop_last)),
          over.size()};
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
  const std::int64_t epoch = coming();
  auto [batches, first] = whole(epoch);
  const std::int64_t count = batches.size() - first;
  if (epoch != bad_epoch_ || first == 0) bad_before_ = 0;
  std::erase_if(bad_samples_, [&, from = first](const BadSample& bad) {
    return epoch != bad_epoch_ || bad.batch >= from;
  });
  bad_epoch_ = epoch;
  epoch_ = std::make_unique<Prefetch>(
      *dataset_, std::move(batches), Draws{seed_, epoch},
      PrefetchOptions{options_.workers, options_.prefetch, copies_ != nullptr,
                      options_.max_bad_samples, first});
  first_batch_ = first;
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

// Where it is one too many, the step fails, and its batch counts as not handed out.
void DataLoader::note_bad(Step& step) {
  for (BadSample& bad : std::exchange(step.bad, {})) {
    const std::string which = concat("[data] sample ", bad.sample, " (batch ", bad.batch,
                                     " of epoch ", running_, "): ", bad.why);
    const std::int64_t replaced_by = bad.replaced_by, batch = bad.batch;
    bad_samples_.push_back(std::move(bad));
    if (bad_so_far() <= options_.max_bad_samples) {
      log_warning(which, "; sample ", replaced_by, " stands in for it");
      continue;
    }
    step = {std::nullopt, 0,
            std::make_exception_ptr(Error(concat(which, "; it is bad sample ", bad_so_far(),
                                                 " of this epoch, of which max_bad_samples lets ",
                                                 options_.max_bad_samples, " be")))};
    std::erase_if(bad_samples_, [&](const BadSample& each) { return each.batch == batch; });
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

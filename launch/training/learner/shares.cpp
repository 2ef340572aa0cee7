// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/group/agree.h>
#include <peal/launch/training/learner/shares.h>
#include <peal/launch/training/share.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <tuple>
#include <utility>

namespace peal::launch {
namespace {

// Whether a loader that is to go on within an epoch does so after `iter` batches. Where it counts
// samples these may be of another world's batches, so `iter` is what they come to.
bool stands_after(const data::DataLoader& loader, std::int64_t iter) {
  const data::LoaderOptions options = loader.options();
  const std::int64_t consumed = loader.consumed();
  if (loader.plan() || options.way != data::Way::samples) return consumed == iter;
  const int world =
      loader.sampler() ? loader.sampler()->whose().world : options.shard.value_or(Place{}).world;
  const std::int64_t round = options.batch_size * world;
  if (iter == 0) return consumed < round;
  return consumed > 0 && std::abs(consumed - iter * round) < 2 * round;
}

std::string wrong_start(const data::DataLoader& loader, Start start) {
  if (loader.taken() == 0 && stands_after(loader, start.iter)) return "";
  if (start.iter == 0) {
    return concat("the run is to begin with an epoch, and the training loader stands within epoch ",
                  loader.epoch(), ", after ", loader.consumed(),
                  " of its samples or batches; say where (Start), or call set_epoch()");
  }
  return concat("the run is to begin after ", start.iter, " batches of epoch ", start.epoch,
                ", and the training loader does not stand there; load its state, or leave them out "
                "(skip_first_batches)");
}

// As begin() has it.
void leave_epoch(data::DataLoader& loader) {
  if (loader.taken() == 0) return;
  const std::int64_t running = loader.epoch();
  const auto told = loader.sampler() ? loader.sampler()->epoch() : std::nullopt;
  const std::int64_t next =
      told == running ? running + (loader.has_next() ? 0 : 1) : told.value_or(running + 1);
  loader.set_epoch(next);
}

bool are_alike(const data::LoaderOptions& a, const data::LoaderOptions& b) {
  const auto members = [](const data::LoaderOptions& o) {
    return std::tie(o.batch_size, o.shuffle, o.shard, o.way, o.seed, o.workers, o.prefetch,
                    o.drop_last, o.exact, o.max_bad_samples, o.device);
  };
  return members(a) == members(b);
}

}  // namespace

// Orders are drawn from rank 0's seed, where none was named. Whether a share is known is each
// rank's own to find, and so comes after what all do.
data::DataLoader& Shares::of(const Job& job, data::DataLoader& loader, data::Way way, bool exact) {
  if (job.world() == 1 || !is_whole(loader)) return loader;
  data::LoaderOptions options = shared_out(loader.options(), job.place(), way, exact);
  options.seed = std::stoull(job.group().all_gather_object(std::to_string(*options.seed))[0]);
  // A share holds its data set, so that no other has its address.
  auto known = std::find_if(made_.begin(), made_.end(), [&](const Made& each) {
    return each.whole == &loader && each.share->dataset_ref() == loader.dataset_ref() &&
           are_alike(each.share->options(), options);
  });
  const bool is_new = known == made_.end();
  if (is_new) {
    auto share = std::make_unique<data::DataLoader>(loader.dataset_ref(), options);
    known = made_.insert(made_.end(), {&loader, 0, std::move(share)});
  }
  if (is_new || known->epoch != loader.epoch()) known->share->set_epoch(loader.epoch());
  known->epoch = loader.epoch();
  return *known->share;
}

data::DataLoader& Shares::to_train(const Job& job, data::DataLoader& loader, Start start,
                                   data::Way way) {
  data::DataLoader& share = of(job, loader, way, false);
  if (&share != &loader && start.iter > 0) share.resume(loader.epoch(), start.iter);
  if (start.iter == 0) leave_epoch(share);
  std::string wrong = wrong_start(share, start);
  if (job.world() == 1) {
    PEAL_CHECK(wrong.empty(), "[launch] learner: ", wrong);
    return share;
  }
  if (wrong.empty()) wrong = wrong_place(share, job.place());
  comm::agree_unless(
      job.group(), "[launch] learner: the training loader",
      concat("of ", share.size(), " batches, from batch ", start.iter, " of epoch ", start.epoch),
      wrong, "give every rank equally many (leave out .exact)");
  return share;
}

data::DataLoader& Shares::to_validate(const Job& job, data::DataLoader& loader) {
  data::DataLoader& share = of(job, loader, data::Way::samples, true);
  if (job.world() == 1) return share;
  comm::agree_unless(job.group(), "[launch] learner: the validation loader", "there",
                     wrong_for_validation(share, job.place()),
                     "give each rank its share, or a whole one to all");
  return share;
}

void Shares::go_on(data::DataLoader& whole, const data::DataLoader& share) {
  const auto made =
      std::ranges::find_if(made_, [&](const Made& each) { return each.share.get() == &share; });
  if (made == made_.end()) return;
  whole.set_epoch(share.epoch());
  made->epoch = whole.epoch();
}

}  // namespace peal::launch

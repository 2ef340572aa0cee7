// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/group/agree.h>
#include <peal/launch/training/learner/shares.h>
#include <peal/launch/training/share.h>

#include <algorithm>
#include <string>

namespace peal::launch {
namespace {

std::string wrong_start(const data::DataLoader& loader, Start start) {
  if (start.iter == 0 || (loader.taken() == 0 && loader.consumed() > 0)) return "";
  return concat("the run is to begin after ", start.iter, " batches of epoch ", start.epoch,
                ", and the training loader stands at the beginning of one; load its state, or "
                "leave them out (skip_first_batches)");
}

}  // namespace

// Orders are drawn from rank 0's seed, where none was named.
data::DataLoader& Shares::of(const Job& job, data::DataLoader& loader, bool exact) {
  if (job.world() == 1 || !is_whole(loader)) return loader;
  const auto known = std::find_if(made_.begin(), made_.end(), [&](const Made& each) {
    return each.whole == &loader && each.exact == exact;
  });
  if (known != made_.end()) return *known->share;
  data::LoaderOptions options = shared_out(loader.options(), job.place(),
                                           exact ? data::Way::samples : data::Way::batches, exact);
  options.seed = std::stoull(job.group().all_gather_object(std::to_string(*options.seed))[0]);
  made_.push_back(
      {&loader, exact, std::make_unique<data::DataLoader>(loader.dataset_ref(), options)});
  made_.back().share->set_epoch(loader.epoch());
  return *made_.back().share;
}

data::DataLoader& Shares::to_train(const Job& job, data::DataLoader& loader, Start start) {
  data::DataLoader& share = of(job, loader, false);
  if (&share != &loader && start.iter > 0) share.resume(loader.epoch(), start.iter);
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
  data::DataLoader& share = of(job, loader, true);
  if (job.world() == 1) return share;
  comm::agree_unless(job.group(), "[launch] learner: the validation loader", "there",
                     wrong_for_validation(share, job.place()),
                     "give each rank its share, or a whole one to all");
  return share;
}

}  // namespace peal::launch

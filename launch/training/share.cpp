// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/training/share.h>

namespace peal::launch {

bool is_whole(const data::DataLoader& loader) {
  return !loader.plan() && !loader.sampler() && !loader.options().shard;
}

data::LoaderOptions shared_out(data::LoaderOptions whole, Place here, data::Way way, bool exact) {
  whole.shard = here;
  whole.way = way;
  whole.exact = exact;
  if (exact) whole.drop_last = false;
  return whole;
}

std::string wrong_place(const data::DataLoader& loader, Place here) {
  const bool samples = loader.sampler() != nullptr;
  const auto shard = loader.options().shard;
  if (!samples && !shard) return "";
  const Place whose = samples ? loader.sampler()->whose() : *shard;
  if (whose.rank == here.rank && whose.world == here.world) return "";
  return concat("its ", samples ? "sampler" : "shard", " is of rank ", whose.rank, " of ",
                whose.world, ", and this is rank ", here.rank, " of ", here.world,
                samples ? "; make a DistributedSampler of job.place(), or leave the order to the "
                          "loader (.shuffle = true)"
                        : "; leave the shard out, each rank is given its own, or give it .shard = "
                          "job.place()");
}

std::string wrong_for_validation(const data::DataLoader& loader, Place here) {
  std::string wrong = wrong_place(loader, here);
  const data::LoaderOptions options = loader.options();
  if (!wrong.empty() || !options.shard || options.exact) return wrong;
  const bool even = options.way == data::Way::samples && loader.dataset().size() % here.world == 0;
  if (even) return wrong;
  return "some samples would count twice, to make ranks equal; count each once (.exact = true)";
}

}  // namespace peal::launch

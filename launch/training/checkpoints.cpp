// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/stateful.h>
#include <peal/launch/training/checkpoints.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

namespace peal::launch {
namespace {

// Ranks may draw unequally often, so each has a place of its own in its stream.
struct Places {
  Tensor of_ranks;  // i64 [world], Generator::offset

  NamedTensors state_dict() const { return {{"offsets", of_ranks}}; }
  void load_state_dict(const NamedTensors& state) {
    StateReader reader("random numbers", state);
    if (reader.has("offset")) {  // in the oldest: rank 0's, which all took
      reader.number<std::int64_t>("seed");
      of_ranks = reader.tensor("offset", {}, DType::i64);
    } else {
      const auto found = std::find_if(state.begin(), state.end(),
                                      [](const auto& entry) { return entry.first == "offsets"; });
      const std::int64_t ranks = found == state.end() ? 1 : found->second.numel();
      of_ranks = reader.tensor("offsets", {ranks}, DType::i64);
    }
    reader.finish();
  }
};

}  // namespace

Checkpoints::Checkpoints(Job& job, std::vector<nn::Part> parts, Metadata settings)
    : job_(job), parts_(std::move(parts)), settings_(std::move(settings)) {
  std::set<std::string> names{"random"};
  for (const nn::Part& part : parts_) {
    PEAL_CHECK(names.insert(part.name()).second, "[launch] two parts of a checkpoint are called '",
               part.name(), "'; rename one");
  }
}

std::vector<nn::Part> Checkpoints::parts_and(nn::Part random) const {
  std::vector<nn::Part> all = parts_;
  all.push_back(std::move(random));
  return all;
}

void Checkpoints::try_to_save(const std::string& path) const {
  if (job_.is_main()) AtomicFile probe(path);
}

void Checkpoints::save(const std::string& path, int next_epoch, const Metadata& more) const {
  const Places places{Tensor::empty({job_.world()}, DType::i64, Device{})};
  const auto mine = static_cast<std::int64_t>(context().generator.offset);
  job_.group().all_gather(places.of_ranks, Tensor::scalar(mine, Device{})).wait();
  if (job_.is_main()) {
    const auto busy = job_.group().busy();
    Metadata metadata = settings_;
    metadata.insert(more.begin(), more.end());
    metadata["epoch"] = std::to_string(next_epoch);
    nn::save(path, parts_and({"random", places}), metadata);
  }
  job_.group().barrier().wait();
}

int Checkpoints::resume(const std::string& path, int epochs, Metadata* all) const {
  // Before a part finds that it is another run's in words of its own.
  const Metadata metadata = nn::load(path, {}, /*strict=*/false).metadata;
  const auto saved = [&](const std::string& name) {
    const auto found = metadata.find(name);
    PEAL_CHECK(found != metadata.end(), path, ": it does not say its ", name,
               "; is it a checkpoint of another program, or of an older version of this one?");
    return found->second;
  };
  for (const auto& [name, here] : settings_) {
    const auto found = metadata.find(name);
    PEAL_CHECK(found == metadata.end() || found->second == here, path, ": it was saved with ", name,
               " ", found->second, ", and this run has ", here, "; go on with the same");
  }
  Places places;
  nn::load(path, parts_and({"random", places}));
  for (const auto& [name, here] : settings_) static_cast<void>(saved(name));
  const std::string text = saved("epoch");
  int epoch = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), epoch);
  PEAL_CHECK(problem == std::errc{} && end == text.data() + text.size() && epoch >= 0, path,
             ": its epoch is '", text, "', which is no such number; the file is damaged");
  PEAL_CHECK(epoch < epochs, path, ": its run has ", epoch,
             " epochs behind it; ask for more with --epochs (now ", epochs,
             ", counted from the start)");
  const auto offsets = places.of_ranks.to_vector<std::int64_t>();
  const auto rank = offsets.size() == 1 ? 0 : static_cast<std::size_t>(job_.rank());
  PEAL_CHECK(rank < offsets.size(), path, ": it has random numbers of ", offsets.size(),
             " ranks, and this run has ", job_.world(), "; the file is damaged");
  context().generator.offset = static_cast<std::uint64_t>(offsets[rank]);
  if (all != nullptr) *all = metadata;
  if (job_.is_main()) log_info("going on after epoch ", epoch, " of ", path);
  return epoch;
}

}  // namespace peal::launch

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/stateful.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/group/failure_while.h>
#include <peal/launch/training/checkpoints.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

namespace peal::launch {
namespace {

// A number of each rank, by a key: what ranks do not share.
struct OfRanks {
  std::vector<std::pair<std::string, DType>> keys;
  NamedTensors numbers = {};  // [world] each, in the order of the keys

  NamedTensors state_dict() const { return numbers; }
  void load_state_dict(const NamedTensors& state) {
    StateReader reader("numbers of ranks", state);
    for (const auto& [key, dtype] : keys) {
      const auto found = std::find_if(state.begin(), state.end(),
                                      [&](const auto& entry) { return entry.first == key; });
      const std::int64_t ranks = found == state.end() ? 1 : found->second.numel();
      numbers.emplace_back(key, reader.tensor(key, {ranks}, dtype));
    }
    reader.finish();
  }
};

// Ranks may draw unequally often, so each has a place of its own in its stream.
struct Places : OfRanks {
  Places() : OfRanks{{{"offsets", DType::i64}}} {}
  void load_state_dict(const NamedTensors& state) {
    StateReader reader("random numbers", state);
    if (!reader.has("offset")) return OfRanks::load_state_dict(state);
    reader.number<std::int64_t>("seed");  // the oldest have rank 0's, which all took
    numbers = {{"offsets", reader.tensor("offset", {}, DType::i64)}};
    reader.finish();
  }
};

// A state that is handed on as it is.
struct Kept {
  NamedTensors state;
  NamedTensors state_dict() const { return state; }
  void load_state_dict(const NamedTensors& given) { state = given; }
};

template <class T>
Tensor gathered(const Job& job, T mine) {
  const Tensor all = Tensor::empty({job.world()}, dtype_of<T>, Device{});
  job.group().all_gather(all, Tensor::scalar(mine, Device{})).wait();
  return all;
}

// f() on rank 0, whatever its time; what goes wrong there is an Error on all ranks. Collective.
template <class F>
void on_rank_0(const Job& job, std::string_view what, F&& f) {
  std::string wrong;
  if (job.is_main()) wrong = comm::failure_while(job.group(), what, f);
  comm::agree_unless(job.group(), what, "", wrong, "");
}

std::int64_t number_of(const std::string& path, const std::string& name, const std::string& text) {
  std::int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  PEAL_CHECK(problem == std::errc{} && end == text.data() + text.size() && number >= 0, path,
             ": its ", name, " is '", text, "', which is no such number; the file is damaged");
  return number;
}

constexpr const char* what_saves = "[launch] checkpoint";

}  // namespace

Checkpoints::Checkpoints(Job& job, std::vector<nn::Part> parts, Metadata settings, int keep,
                         std::string best)
    : job_(job),
      parts_(std::move(parts)),
      settings_(std::move(settings)),
      keep_(keep),
      best_(std::move(best)) {
  std::set<std::string> names{"random", "loader"};
  for (const nn::Part& part : parts_) {
    PEAL_CHECK(names.insert(part.name()).second, "[launch] two parts of a checkpoint are called '",
               part.name(), "'; rename one");
  }
}

std::vector<nn::Part> Checkpoints::parts_and(std::vector<nn::Part> more) const {
  more.insert(more.begin(), parts_.begin(), parts_.end());
  return more;
}

// REQUIRES: nothing is being written.
std::string Checkpoints::next_file(const std::string& save, std::int64_t step) {
  if (!saves_in_folder(save)) return save;
  if (!folder_ || folder_->path() != save) {
    lock_.reset();
    folder_.emplace(save, keep_, best_);
  }
  const auto next = folder_->next(step);
  if (!lock_) lock_.emplace(save);
  return next.string();
}

void Checkpoints::try_to_save(const std::string& save) {
  on_rank_0(job_, what_saves, [&] {
    saving_.wait();
    PEAL_CHECK(best_.empty() || saves_in_folder(save), "save ", save, ": the best checkpoint (",
               best_, ") stays in a folder, and this is a file, which each save replaces; name ",
               save, "/");
    AtomicFile probe(next_file(save, 0));
  });
}

void Checkpoints::save(const std::string& save, const Position& at, const Metadata& more,
                       std::optional<double> measure) {
  wait();
  for (const nn::Part& part : parts_) part.consolidate_state_dict();
  Places places;
  places.numbers = {
      {"offsets", gathered(job_, static_cast<std::int64_t>(context().generator.offset))}};
  Kept loader{at.loader};
  std::vector<nn::Part> all = parts_and({{"random", places}});
  if (!at.loader.empty()) all.emplace_back("loader", loader);
  on_rank_0(job_, what_saves, [&] {
    Metadata metadata = settings_;
    metadata.insert(more.begin(), more.end());
    metadata["epoch"] = std::to_string(at.epoch);
    metadata["step"] = std::to_string(at.step);
    if (measure) metadata[nn::measure_key] = concat(*measure, " ", best_);
    const std::string file = next_file(save, at.step);
    std::function<void()> then;
    if (saves_in_folder(save))
      then = [this, alone = lock_->held(), measure] { folder_->remove_old(alone, measure); };
    saving_.save(file, nn::snapshot(all, metadata), std::move(then));
  });
}

void Checkpoints::wait() {
  on_rank_0(job_, what_saves, [&] { saving_.wait(); });
}

void Checkpoints::check_settings(const std::string& path, const Metadata& saved) const {
  for (const auto& [name, here] : settings_) {
    const auto found = saved.find(name);
    if (found == saved.end() || found->second == here) continue;
    PEAL_CHECK(name == "world", path, ": it was saved with ", name, " ", found->second,
               ", and this run has ", here, "; go on with the same");
    if (job_.is_main()) {
      log_warning(path, " was saved by ", found->second,
                  found->second == "1" ? " rank, and " : " ranks, and ", here,
                  " go on: a step takes other samples together than it would have, and sums have "
                  "other bits");
    }
  }
}

Position Checkpoints::resume(const std::string& path, Metadata* all) const {
  std::optional<nn::CheckpointFile> file;
  const std::string wrong = comm::failure_while(job_.group(), "reads a checkpoint", [&] {
    file.emplace(path);
    // Before a part finds that it is another run's, in its own words.
    check_settings(path, file->metadata());
  });
  comm::agree_unless(job_.group(), concat("[launch] the checkpoint ", path),
                     file ? file->checksum() : "", wrong,
                     "these are two files; let all ranks see one folder, or copy one file to all");
  const Metadata& metadata = file->metadata();
  Places places;
  Kept loader;
  std::vector<nn::Part> more{{"random", places}};
  const bool within = file->has("loader");
  if (within) more.emplace_back("loader", loader);
  file->load(parts_and(more));
  std::vector<std::string> names{"epoch"};
  for (const auto& [name, here] : settings_) names.push_back(name);
  for (const std::string& name : names) {
    PEAL_CHECK(metadata.contains(name), path, ": it does not say its ", name,
               "; is it a checkpoint of another program, or of an older version of this one?");
  }
  Position at;
  at.epoch = static_cast<int>(number_of(path, "epoch", metadata.at("epoch")));
  if (metadata.contains("step")) at.step = number_of(path, "step", metadata.at("step"));
  const auto rank = static_cast<std::size_t>(job_.rank());
  // Of another world: a stream that nobody drew from before may begin anywhere.
  const auto offsets = places.numbers[0].second.to_vector<std::int64_t>();
  const auto offset = offsets.size() == 1     ? offsets[0]
                      : rank < offsets.size() ? offsets[rank]
                                              : std::ranges::max(offsets);
  context().generator.offset = static_cast<std::uint64_t>(offset);
  if (within) at.loader = loader.state;
  if (all != nullptr) *all = metadata;
  if (job_.is_main()) {
    // Who saves with no epoch (the Accelerator) says nothing of where that was.
    const std::string where =
        within ? concat("step ", at.step, ", in epoch ", at.epoch + 1) : concat("epoch ", at.epoch);
    log_info("going on ", within || at.epoch > 0 ? concat("after ", where, " of ") : "from ", path);
  }
  return at;
}

}  // namespace peal::launch

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/stateful.h>
#include <peal/launch/training/dispatch_reader.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace peal::launch {
namespace {

class SetReader : public DispatchReader {
 public:
  SetReader(const data::DatasetRef& dataset, data::LoaderOptions options, int world) {
    options.way = data::Way::dispatched;
    for (int rank = 0; rank < world; ++rank) {
      options.shard = Place{rank, world};
      loaders_.push_back(std::make_unique<data::DataLoader>(dataset, options));
    }
  }
  std::optional<data::Batch> next(int rank) override {
    return loaders_[static_cast<std::size_t>(rank)]->next();
  }
  std::int64_t size() const override { return loaders_[0]->size(); }
  std::int64_t epoch() const override { return loaders_[0]->epoch(); }
  void set_epoch(std::int64_t epoch) override {
    for (const auto& loader : loaders_) loader->set_epoch(epoch);
  }
  void skip_first_batches(std::int64_t count) override {
    for (const auto& loader : loaders_) loader->skip_first_batches(count);
  }
  NamedTensors state_dict() const override { return loaders_[0]->state_dict(); }
  void load_state_dict(const NamedTensors& state) override {
    for (const auto& loader : loaders_) loader->load_state_dict(state);
  }

 private:
  std::vector<std::unique_ptr<data::DataLoader>> loaders_;  // by rank
};

class LoaderReader : public DispatchReader {
 public:
  LoaderReader(std::unique_ptr<data::DataLoader> loader, int world)
      : loader_(std::move(loader)), world_(world) {}
  std::optional<data::Batch> next(int rank) override {
    if (rank > 0 && ended_) return std::nullopt;
    auto batch = loader_->next();
    ended_ = !batch;
    PEAL_CHECK(batch || rank == 0, "[launch] dispatcher: the epoch ended after ", rank, " of ",
               world_, " ranks had a batch; plan it by data::dispatch_order()");
    return batch;
  }
  std::int64_t size() const override { return loader_->size() / world_; }
  std::int64_t epoch() const override { return loader_->epoch(); }
  void set_epoch(std::int64_t epoch) override { loader_->set_epoch(epoch); }
  void skip_first_batches(std::int64_t count) override {
    loader_->skip_first_batches(count * world_);
  }
  NamedTensors state_dict() const override {
    NamedTensors state = loader_->state_dict();
    state.emplace_back("world", Tensor::scalar(std::int64_t{world_}, Device{}));
    return state;
  }
  void load_state_dict(const NamedTensors& state) override {
    NamedTensors of_loader, mine;
    for (const auto& entry : state) (entry.first == "world" ? mine : of_loader).push_back(entry);
    StateReader reader("Dispatcher", mine);
    const auto world = reader.number<std::int64_t>("world");
    if (mine.size() == 1 && world != world_) {
      reader.fault(concat("it was saved on ", world, " ranks, and here are ", world_,
                          "; a plan of one's own has batches for so many. By a data set and "
                          "options a Dispatcher goes on in any world"));
    }
    reader.finish();
    loader_->load_state_dict(of_loader);
  }

 private:
  std::unique_ptr<data::DataLoader> loader_;
  int world_;
  bool ended_ = false;
};

class StreamReader : public DispatchReader {
 public:
  using Source = std::function<std::optional<data::Batch>()>;
  StreamReader(Source source, bool drop_last, int world)
      : source_(std::move(source)),
        drop_last_(drop_last),
        world_(static_cast<std::size_t>(world)) {}

  std::optional<data::Batch> next(int rank) override {
    if (rank == 0) read_round();
    if (round_.empty()) return std::nullopt;
    return round_[static_cast<std::size_t>(rank)];
  }
  std::int64_t size() const override { return -1; }
  std::int64_t epoch() const override { return epoch_; }
  void set_epoch(std::int64_t epoch) override {
    PEAL_CHECK(epoch == epoch_ && read_ == 0,
               "[launch] dispatcher: a stream comes as it comes; it "
               "is in epoch ",
               epoch_, " after ", read_, " batches, and cannot be set to ", epoch);
  }
  void skip_first_batches(std::int64_t count) override {
    for (; count > 0; --count) {
      read_round();
      PEAL_CHECK(!round_.empty(), "[launch] dispatcher: the stream ended with ", count,
                 " batches still to skip");
    }
  }
  NamedTensors state_dict() const override {
    return {{"epoch", Tensor::scalar(epoch_, Device{})},
            {"batches", Tensor::scalar(read_, Device{})}};
  }
  void load_state_dict(const NamedTensors& state) override {
    StateReader reader("Dispatcher", state);
    const auto epoch = reader.number<std::int64_t>("epoch");
    const auto batches = reader.number<std::int64_t>("batches");
    reader.finish();
    set_epoch(0);  // a stream is read from its start
    while (read_ < batches && read_one()) {
    }
    PEAL_CHECK(read_ == batches, "[launch] dispatcher: the stream ended after ", read_,
               " batches, and it had been left after ", batches);
    epoch_ = epoch;
  }

 private:
  bool read_one() {
    std::optional<data::Batch> batch = ended_ ? std::nullopt : source_();
    ended_ = !batch;
    if (ended_) return false;
    ++read_;
    if (first_.size() < world_) first_.push_back(*batch);
    round_.push_back(std::move(*batch));
    if (round_.size() > world_) round_.erase(round_.begin());
    return true;
  }
  // None at the end of the stream, which so is the end of an epoch.
  void read_round() {
    round_.clear();
    while (round_.size() < world_ && read_one()) {
    }
    if (round_.size() == world_) return;
    if (round_.empty() || drop_last_) {
      round_.clear();
      first_.clear();
      ended_ = false;  // it may begin again
      read_ = 0;
      ++epoch_;
      return;
    }
    for (std::size_t i = 0; round_.size() < world_; ++i)
      round_.push_back(first_[i % first_.size()]);
  }

  Source source_;
  bool drop_last_;
  std::size_t world_;
  std::vector<data::Batch> first_, round_;  // of a pass, by rank
  std::int64_t epoch_ = 0, read_ = 0;
  bool ended_ = false;  // and what it had goes to the ranks
};

}  // namespace

std::unique_ptr<DispatchReader> reader_of_set(const data::DatasetRef& dataset,
                                              const data::LoaderOptions& options, int world) {
  return std::make_unique<SetReader>(dataset, options, world);
}

std::unique_ptr<DispatchReader> reader_of_loader(std::unique_ptr<data::DataLoader> loader,
                                                 int world) {
  return std::make_unique<LoaderReader>(std::move(loader), world);
}

std::unique_ptr<DispatchReader> reader_of_stream(std::function<std::optional<data::Batch>()> source,
                                                 bool drop_last, int world) {
  return std::make_unique<StreamReader>(std::move(source), drop_last, world);
}

}  // namespace peal::launch

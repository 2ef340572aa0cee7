// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/stateful.h>
#include <peal/data/dealt_state.h>
#include <peal/launch/training/dispatch_reader.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

namespace peal::launch {
namespace {

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
    const std::int64_t left = loader_->left() / world_;
    PEAL_CHECK(count >= 0 && count <= left, "[launch] dispatcher: expected 0 to ", left,
               " batches to skip in epoch ", epoch(), ", got ", count);
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

 protected:
  data::DataLoader& loader() const { return *loader_; }
  int world() const { return world_; }

 private:
  std::unique_ptr<data::DataLoader> loader_;
  int world_;
  bool ended_ = false;
};

// A set, by options: one loader, and one order, of which it makes the batches of all ranks.
struct Dealing {
  data::DatasetRef dataset;
  data::LoaderOptions options;
  int world;
  // What other worlds were dealt of that epoch, where it was taken up.
  std::int64_t taken_up = 0;
  std::vector<data::Dealt> before{};

  data::Deal deal() const {
    const data::Tail tail = options.drop_last ? data::Tail::drop : data::Tail::fill;
    return {data::Way::dispatched, options.batch_size, {0, world}, tail};
  }
  std::vector<data::Dealt> dealt_before(std::int64_t epoch) const {
    return epoch == taken_up ? before : std::vector<data::Dealt>();
  }
  // Drawn when the first batch is asked for: how many there are is known without it.
  data::Order order(std::int64_t epoch) const {
    struct Drawn {
      std::once_flag once;
      data::Order order;
    };
    const data::ShardOptions how{
        .shuffle = options.shuffle, .seed = options.seed.value_or(0), .epoch = epoch};
    return {dataset->size(),
            [drawn = std::make_shared<Drawn>(), how, size = dataset->size()](std::int64_t k) {
              std::call_once(drawn->once, [&] { drawn->order = data::epoch_order(size, how); });
              return drawn->order[k];
            }};
  }
};

class SetReader : public LoaderReader {
 public:
  explicit SetReader(const std::shared_ptr<Dealing>& dealing)
      : LoaderReader(loader_of(dealing), dealing->world), dealing_(dealing) {}

  std::optional<data::Batch> next(int rank) override {
    auto batch = LoaderReader::next(rank);
    rank_ = rank;
    if (!batch && rank == 0 && epoch() == dealing_->taken_up + 1) dealing_->before.clear();
    return batch;
  }
  std::vector<std::int64_t> places() const override {
    data::Deal how = dealing_->deal();
    how.place.rank = rank_;
    const std::int64_t last = loader().consumed() - 1;  // of all ranks' in turn
    auto places = data::dealt_places(dealing_->dataset->size(), how,
                                     dealing_->dealt_before(epoch()), last / world());
    for (const data::BadSample& bad : loader().bad_samples()) {
      if (bad.batch == last) places[static_cast<std::size_t>(bad.row)] = -1;
    }
    return places;
  }
  void set_epoch(std::int64_t epoch) override {
    dealing_->before.clear();
    LoaderReader::set_epoch(epoch);
  }
  NamedTensors state_dict() const override {
    std::vector<data::Dealt> all = dealing_->dealt_before(epoch());
    all.push_back(data::dealt(dealing_->deal(), loader().consumed() / world()));
    NamedTensors state{{"epoch", Tensor::scalar(epoch(), Device{})},
                       {"dealt", data::tensor_of(all)}};
    data::put_order(state, how_ordered());
    return state;
  }
  void load_state_dict(const NamedTensors& state) override {
    StateReader reader("Dispatcher", state);
    const auto epoch = reader.number<std::int64_t>("epoch");
    data::TakenUp taken = data::read_dealt(reader, state, data::dealt(dealing_->deal(), 0),
                                           dealing_->dataset->size(), how_ordered());
    loader().resume(epoch, taken.batches * world());
    dealing_->taken_up = epoch;
    dealing_->before = std::move(taken.before);
  }

 private:
  // Each rank has the workers and the batches ahead that a loader of its own would have.
  static std::unique_ptr<data::DataLoader> loader_of(const std::shared_ptr<Dealing>& dealing) {
    data::deal(0, dealing->deal());
    data::LoaderOptions options = dealing->options;  // but for what the plan says
    options.batch_size = 1;
    options.shuffle = options.drop_last = false;
    options.workers *= dealing->world;
    options.max_bad_samples *= dealing->world;
    return std::make_unique<data::DataLoader>(
        dealing->dataset,
        [dealing](std::int64_t epoch) {
          return data::dealt_to_all(dealing->order(epoch), dealing->deal(),
                                    dealing->dealt_before(epoch));
        },
        options);
  }

  data::HowOrdered how_ordered() const {
    const std::uint64_t seed = dealing_->options.seed.value_or(0);
    data::HowOrdered mine{"dispatcher", std::nullopt, {{"samples", dealing_->dataset->size()}}};
    if (dealing_->options.shuffle) {
      mine.seed = seed;
    } else {
      mine.numbers.emplace_back(data::augmentation, static_cast<std::int64_t>(seed));
    }
    return mine;
  }

  std::shared_ptr<Dealing> dealing_;
  int rank_ = 0;  // the last one's
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
    rank_ = static_cast<std::size_t>(rank);
    return round_[rank_];
  }
  std::vector<std::int64_t> places() const override {
    std::vector<std::int64_t> places(static_cast<std::size_t>(round_[rank_].size()), -1);
    if (begins_[rank_] >= 0) std::iota(places.begin(), places.end(), begins_[rank_]);
    return places;
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
    PEAL_CHECK(count >= 0, "[launch] dispatcher: expected 0 or more batches to skip, got ", count);
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
    begins_.push_back(samples_);
    samples_ += batch->size();
    if (first_.size() < world_) first_.push_back(*batch);
    round_.push_back(std::move(*batch));
    if (round_.size() > world_) {
      round_.erase(round_.begin());
      begins_.erase(begins_.begin());
    }
    return true;
  }
  // None at the end of the stream, which so is the end of an epoch.
  void read_round() {
    round_.clear();
    begins_.clear();
    while (round_.size() < world_ && read_one()) {
    }
    if (round_.size() == world_) return;
    if (round_.empty() || drop_last_) {
      round_.clear();
      first_.clear();
      ended_ = false;  // it may begin again
      read_ = samples_ = 0;
      ++epoch_;
      return;
    }
    for (std::size_t i = 0; round_.size() < world_; ++i) {
      round_.push_back(first_[i % first_.size()]);
      begins_.push_back(-1);
    }
  }

  Source source_;
  bool drop_last_;
  std::size_t world_;
  std::vector<data::Batch> first_, round_;  // of a pass, by rank
  std::vector<std::int64_t> begins_;        // places of the round's first samples
  std::size_t rank_ = 0;                    // the last one's
  std::int64_t epoch_ = 0, read_ = 0, samples_ = 0;
  bool ended_ = false;  // and what it had goes to the ranks
};

}  // namespace

std::unique_ptr<DispatchReader> reader_of_set(const data::DatasetRef& dataset,
                                              const data::LoaderOptions& options, int world) {
  return std::make_unique<SetReader>(
      std::make_shared<Dealing>(Dealing{.dataset = dataset, .options = options, .world = world}));
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

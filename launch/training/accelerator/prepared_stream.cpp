// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/training/accelerator/prepared_stream.h>

namespace peal::launch {
namespace {

class LoaderStream : public StreamBody {
 public:
  explicit LoaderStream(data::StreamLoader& stream) : stream_(stream) {
    nominal = stream.options().batch_size;
  }
  std::optional<data::Batch> next() override {
    of_all_.clear();
    return stream_.next();
  }
  std::int64_t left() const override { return stream_.has_next() ? 1 : 0; }
  bool knows_left() const override { return false; }
  std::vector<std::int64_t> places() const override {
    fail(
        "[accelerator] gather_for_metrics: ranks of a StreamLoader have different numbers of "
        "batches, which have no order; add up on each rank what is found (nn::Accuracy), and "
        "bring that together when all are through, or read by a Dispatcher");
  }
  std::int64_t epoch() const override { return stream_.epoch(); }
  void set_epoch(std::int64_t epoch) override {
    of_all_.clear();
    stream_.set_epoch(epoch);
  }
  void skip_first_batches(std::int64_t count) override {
    of_all_.clear();
    stream_.skip_first_batches(count);
  }
  NamedTensors state_dict() const override {
    return of_all_.empty() ? stream_.state_dict() : of_all_;
  }
  void load_state_dict(const NamedTensors& state) override {
    of_all_.clear();
    stream_.load_state_dict(state);
  }
  // All ranks' states as one are the greatest elements (StreamLoader::merge_states).
  void consolidate_state_dict(const comm::ProcessGroup& group) override {
    of_all_ = stream_.state_dict();
    for (const auto& [name, tensor] : of_all_) {
      group.all_reduce(tensor, comm::ReduceOp::max, "where streams are").wait();
    }
  }
  std::string wrong(Place here) const override {
    const Place place = stream_.options().place;
    if (place.rank == here.rank && place.world == here.world) return {};
    return concat("prepare: a stream loader's place is rank ", place.rank, " of ", place.world,
                  ", and this is rank ", here.rank, " of ", here.world,
                  "; make it with .place = job.place()");
  }

 private:
  data::StreamLoader& stream_;
  NamedTensors of_all_;  // until it goes on
};

// One that does not say how many batches there are is read a batch ahead.
class DispatcherStream : public StreamBody {
 public:
  explicit DispatcherStream(Dispatcher& dispatcher) : dispatcher_(dispatcher) {}

  std::optional<data::Batch> next() override {
    if (!ahead_) ahead_ = take();
    Ahead now = *std::exchange(ahead_, std::nullopt);
    places_ = std::move(now.places);
    if (now.batch && !dispatcher_.has_size()) {
      state_ = dispatcher_.state_dict();
      epoch_ = dispatcher_.epoch();
      ahead_ = take();
    }
    return std::move(now.batch);
  }
  std::int64_t left() const override {
    if (!dispatcher_.has_size()) return !ahead_ || ahead_->batch ? 1 : 0;
    return dispatcher_.size() - taken_;
  }
  bool knows_left() const override { return dispatcher_.has_size(); }
  std::vector<std::int64_t> places() const override {
    return dispatcher_.has_size() ? dispatcher_.places() : places_;
  }
  std::int64_t epoch() const override { return ahead_ ? epoch_ : dispatcher_.epoch(); }
  void set_epoch(std::int64_t epoch) override {
    begin_anew();
    dispatcher_.set_epoch(epoch);
  }
  void skip_first_batches(std::int64_t count) override {
    while (ahead_ && ahead_->batch && count > 0) {
      next();
      --count;
    }
    taken_ = 0;
    if (count > 0) dispatcher_.skip_first_batches(count);
  }
  NamedTensors state_dict() const override { return ahead_ ? state_ : dispatcher_.state_dict(); }
  void load_state_dict(const NamedTensors& state) override {
    begin_anew();
    dispatcher_.load_state_dict(state);
  }

 private:
  struct Ahead {
    std::optional<data::Batch> batch;
    std::vector<std::int64_t> places;
  };
  Ahead take() {
    Ahead ahead{dispatcher_.next(), {}};
    taken_ = ahead.batch ? taken_ + 1 : 0;
    if (ahead.batch && !dispatcher_.has_size()) ahead.places = dispatcher_.places();
    return ahead;
  }
  void begin_anew() {
    ahead_.reset();
    taken_ = 0;
  }

  Dispatcher& dispatcher_;
  std::optional<Ahead> ahead_;
  NamedTensors state_;  // before it
  std::vector<std::int64_t> places_;
  std::int64_t epoch_ = 0, taken_ = 0;  // since it was last told where to go on
};

}  // namespace

std::shared_ptr<StreamBody> stream_of(data::StreamLoader& loader) {
  return std::make_shared<LoaderStream>(loader);
}

std::shared_ptr<StreamBody> stream_of(Dispatcher& dispatcher) {
  return std::make_shared<DispatcherStream>(dispatcher);
}

std::optional<data::Batch> PreparedStream::next() {
  if (!body_->opened) {
    const std::int64_t batches = body_->knows_left() ? body_->left() : 0;
    body_->opened = begin_loop(state_, body_.get(), batches);
  }
  auto batch = body_->next();
  if (batch && body_->device) *batch = batch->to(*body_->device);
  take_turn(*state_, *body_, batch ? &*batch : nullptr);
  if (!batch) body_->opened.reset();
  return batch;
}

void PreparedStream::set_epoch(std::int64_t epoch) {
  body_->opened.reset();
  body_->set_epoch(epoch);
}

void PreparedStream::load_state_dict(const NamedTensors& state) {
  body_->opened.reset();
  body_->load_state_dict(state);
}

void PreparedStream::consolidate_state_dict(int /*to*/) {
  body_->consolidate_state_dict(state_->group);
}

PreparedStream::Iterator PreparedStream::begin() { return Iterator(*this); }

// A loop that was left.
PreparedStream::Iterator::~Iterator() {
  if (at_) of_.body()->opened.reset();
}

}  // namespace peal::launch

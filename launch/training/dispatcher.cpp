// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/launch/training/dispatch_reader.h>
#include <peal/launch/training/dispatcher.h>
#include <peal/launch/training/tensor_words.h>

#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace peal::launch {
namespace {

NamedTensors tensors_of(const data::Batch& batch) {
  NamedTensors all{{"x", batch.x.detach().to(Device{})}};
  if (batch.y.defined()) all.emplace_back("y", batch.y.detach().to(Device{}));
  for (const auto& [name, tensor] : batch.more)
    all.emplace_back(name, tensor.detach().to(Device{}));
  return all;
}

data::Batch batch_of(const NamedTensors& tensors) {
  data::Batch batch;
  for (const auto& [name, tensor] : tensors) {
    if (name == "x") {
      batch.x = tensor;
    } else if (name == "y") {
      batch.y = tensor;
    } else {
      batch.more.emplace_back(name, tensor);
    }
  }
  return batch;
}

Tensor words_of(const std::vector<std::int64_t>& words) {
  return Tensor::from(words, {std::ssize(words)}, Device{});
}

void send_words(const comm::ProcessGroup& group, const std::vector<std::int64_t>& words, int to) {
  const Tensor text = words_of(words), length = words_of({text.numel()});
  group.batch_isend_irecv({{comm::Direction::send, length, to}, {comm::Direction::send, text, to}})
      .wait();
}

// Behind what the tensors are, their samples' places, and last how many these are.
void send(const comm::ProcessGroup& group, const NamedTensors& tensors,
          const std::vector<std::int64_t>& places, int to) {
  std::vector<std::int64_t> words = described(tensors);
  words.insert(words.end(), places.begin(), places.end());
  words.push_back(std::ssize(places));
  const Tensor text = words_of(words), length = words_of({text.numel()});
  std::vector<comm::P2POp> messages{{comm::Direction::send, length, to},
                                    {comm::Direction::send, text, to}};
  for (const auto& [name, tensor] : tensors) {
    if (tensor.numel() > 0) messages.push_back({comm::Direction::send, tensor, to});
  }
  group.batch_isend_irecv(messages).wait();
}

NamedTensors receive(const comm::ProcessGroup& group, int from, std::vector<std::int64_t>& words) {
  const Tensor length = Tensor::zeros({1}, DType::i64, Device{});
  group.recv(length, from).wait();
  const Tensor text = Tensor::zeros({length.item<std::int64_t>()}, DType::i64, Device{});
  group.recv(text, from).wait();
  words = text.to_vector<std::int64_t>();
  NamedTensors tensors = like(words);
  std::vector<comm::P2POp> messages;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.numel() > 0) messages.push_back({comm::Direction::recv, tensor, from});
  }
  if (!messages.empty()) group.batch_isend_irecv(messages).wait();
  return tensors;
}

void check_options(const data::LoaderOptions& options) {
  PEAL_CHECK(!options.shard && options.way == data::Way::samples && !options.exact,
             "[launch] dispatcher: it deals the batches to the ranks, to all equally many: leave "
             "out shard, way and exact");
}

}  // namespace

// Each rank says what is wrong with what it gives, before any waits for another.
Dispatcher::Dispatcher(comm::ProcessGroup group, const Make& make, const char* what)
    : group_(std::move(group)) {
  const std::string fault = failure_in([&] {
    reader_ = make();
    PEAL_CHECK((reader_ != nullptr) == (group_.rank() == 0), "[launch] dispatcher: rank ",
               group_.rank(), reader_ ? " has a " : " has no ", what,
               "; rank 0 reads, and no other");
  });
  for (const std::string& each : group_.all_gather_object(fault)) PEAL_CHECK(each.empty(), each);
  tell_after([] {});
}

Dispatcher::Dispatcher(comm::ProcessGroup group, const data::DatasetRef& dataset,
                       const data::LoaderOptions& options)
    : Dispatcher(
          group,
          [&]() -> std::unique_ptr<DispatchReader> {
            check_options(options);
            return dataset ? reader_of_set(dataset, options, group.world()) : nullptr;
          },
          "data set") {}

Dispatcher::Dispatcher(comm::ProcessGroup group, std::unique_ptr<data::DataLoader> reader)
    : Dispatcher(
          group,
          [&] { return reader ? reader_of_loader(std::move(reader), group.world()) : nullptr; },
          "reader") {}

Dispatcher Dispatcher::of_stream(comm::ProcessGroup group,
                                 std::function<std::optional<data::Batch>()> source,
                                 bool drop_last) {
  const Make make = [&] {
    return source ? reader_of_stream(std::move(source), drop_last, group.world()) : nullptr;
  };
  return {group, make, "stream"};
}

Dispatcher::Dispatcher(Dispatcher&&) noexcept = default;
Dispatcher::~Dispatcher() = default;

std::optional<data::Batch> Dispatcher::next() {
  if (!reader_) {
    std::vector<std::int64_t> words;
    const NamedTensors tensors = receive(group_, 0, words);
    if (!tensors.empty()) {
      places_.assign(words.end() - 1 - words.back(), words.end() - 1);
      return batch_of(tensors);
    }
    places_.clear();
    epoch_ = words.at(1);
    size_ = words.at(2);
    return std::nullopt;
  }
  try {
    return send_round();
  } catch (...) {
    // Some ranks may have their batch of this round, and would go on without this one.
    if (group_.world() > 1 && !group_.poisoned()) {
      group_.poison(concat("[launch] rank ", group_.global_rank(0),
                           ", which reads for all: ", words_of_failure()));
    }
    throw;
  }
}

std::optional<data::Batch> Dispatcher::send_round() {
  std::optional<data::Batch> own = reader_->next(0);
  places_.clear();
  if (own) {
    epoch_ = reader_->epoch();
    places_ = reader_->places();
  }
  for (int to = 1; own && to < group_.world(); ++to) {
    const auto batch = reader_->next(to);
    send(group_, tensors_of(*batch), reader_->places(), to);
  }
  if (own) return batch_of(tensors_of(*own));
  for (int to = 1; to < group_.world(); ++to) reader_->next(to);  // their epochs end, too
  epoch_ = reader_->epoch();
  size_ = reader_->size();
  for (int to = 1; to < group_.world(); ++to) send_words(group_, {0, epoch_, size_}, to);
  return std::nullopt;
}

const std::vector<std::int64_t>& Dispatcher::places() const {
  PEAL_CHECK(
      !places_.empty(),
      "[launch] dispatcher: nobody knows where the last batch's samples stand in the order of "
      "all ranks: it was made by a plan of the program's own, or there is none under way");
  return places_;
}

std::int64_t Dispatcher::size() const {
  PEAL_CHECK(size_ >= 0, "[launch] dispatcher: a stream does not say how many batches it has");
  return size_;
}

void Dispatcher::set_epoch(std::int64_t epoch) {
  tell_after([&] { reader_->set_epoch(epoch); });
}

void Dispatcher::skip_first_batches(std::int64_t count) {
  tell_after([&] { reader_->skip_first_batches(count); });
}

NamedTensors Dispatcher::state_dict() const {
  return reader_ ? reader_->state_dict() : NamedTensors{};
}

void Dispatcher::load_state_dict(const NamedTensors& state) {
  tell_after([&] { reader_->load_state_dict(state); });
}

// Rank 0 does that; then all know what epoch comes, and where it failed, why: a stream may have
// come to its end.
void Dispatcher::tell_after(const std::function<void()>& f) {
  std::string words;
  if (reader_) {
    std::string fault;
    const auto attempt = [&](const std::function<void()>& what) {
      const std::string words_of_this = failure_in(what);
      if (fault.empty()) fault = words_of_this;
    };
    std::int64_t batches = size_;
    attempt(f);
    attempt([&] { batches = reader_->size(); });  // asks a plan, or the set
    words = concat(reader_->epoch(), ' ', batches, '\n', fault);
  }
  words = group_.broadcast_object(words);
  epoch_ = std::stoll(words);
  size_ = std::stoll(words.substr(words.find(' ')));
  const std::string fault = words.substr(words.find('\n') + 1);
  PEAL_CHECK(fault.empty(), fault);
}

}  // namespace peal::launch

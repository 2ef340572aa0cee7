// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/control/far_board.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

namespace peal::comm {
namespace {

constexpr Channel channel{};

// What the library below may still touch is left to it until the process ends. It is kept in sight
// of leak checkers.
void leave(std::shared_ptr<const void> word) {
  static std::mutex mutex;
  static auto* const left = new std::vector<std::shared_ptr<const void>>;
  const std::lock_guard lock(mutex);
  left->push_back(std::move(word));
}

}  // namespace

// As it goes over the wire, between ranks of one version. It is small enough for every library to
// send it at once, whether or not anybody has a receive for it.
struct FarBoard::Word {
  struct Call {
    std::uint64_t group, sequence;
    Finished what;
    FlightState state;
  };
  char failure[512] = {};   // empty: it has not failed
  std::uint64_t apart = 0;  // ms until it says again that it works; 0: it waits
  WorkName work{};
  Row row{};
  std::uint64_t calls = 0;  // so many of them
  Call call[calls_told] = {};
};

FarBoard::FarBoard(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {
  static_assert(std::is_trivially_copyable_v<Word> && sizeof(Word) < 4000);
}

FarBoard::~FarBoard() {
  for (Sent& each : sent_) give_up(each);
  for (auto& [rank, inbox] : inboxes_) {
    if (inbox.ticket && !transport_->cancel(*inbox.ticket)) leave(std::move(inbox.word));
  }
}

// Another thread may have to leave the library to the one that has it.
bool FarBoard::may_send() const {
  try {
    transport_->check_thread();
    return true;
  } catch (const Error&) {
    return false;
  }
}

void FarBoard::give_up(Sent& sent) {
  if (transport_->cancel(sent.ticket)) return;
  leave(std::move(sent.word));
}

void FarBoard::send(const std::vector<int>& ranks, const std::shared_ptr<Word>& word) {
  for (const int rank : ranks) {
    const Message message{Direction::send, rank, reinterpret_cast<std::byte*>(word.get()),
                          sizeof(Word)};
    try {
      sent_.push_back({rank, 0, word});
      sent_.back().ticket = transport_->post(channel, {&message, 1});
    } catch (const Error&) {  // nothing was sent, or what was is the library's
      leave(word);
      sent_.pop_back();
    }
  }
  drop_sent();
}

void FarBoard::drop_sent() {
  std::erase_if(sent_, [&](Sent& each) {
    try {
      return transport_->test(each.ticket);
    } catch (const Error&) {
      give_up(each);
      return true;
    }
  });
}

// Who takes in nothing gets no more.
std::vector<int> FarBoard::without_full(const std::vector<int>& ranks) const {
  std::set<int> full;
  for (const Sent& each : sent_) full.insert(each.to);
  std::vector<int> others;
  std::ranges::copy_if(ranks, std::back_inserter(others),
                       [&](int rank) { return !full.contains(rank); });
  return others;
}

void FarBoard::abandon() {
  const std::lock_guard lock(moving_);
  transport_->abandon();
}

void FarBoard::tell(const std::vector<int>& ranks, const Row& row, const FlightRecorder& flight) {
  const std::lock_guard lock(moving_);
  const auto is_told = [&](int rank) {
    const auto told = told_.find(rank);
    return told != told_.end() && told->second.group == row.group &&
           told->second.sequence == row.sequence && told->second.signature == row.signature &&
           told->second.alone == row.alone;
  };
  if (std::ranges::all_of(ranks, is_told) || !may_send()) return;
  drop_sent();
  std::vector<int> untold = without_full(ranks);
  std::erase_if(untold, is_told);
  if (untold.empty()) return;
  for (const int rank : untold) told_[rank] = row;
  const auto word = std::make_shared<Word>();
  word->row = row;
  std::vector<FlightRow> calls = flight.read();
  if (calls.size() > calls_told) {
    calls.erase(calls.begin(), calls.end() - static_cast<std::ptrdiff_t>(calls_told));
  }
  for (const FlightRow& each : calls) {
    word->call[word->calls++] = {each.group, each.sequence, each.what, each.state};
  }
  send(untold, word);
}

void FarBoard::tell_work(const std::vector<int>& ranks, const std::string& work,
                         std::chrono::milliseconds apart) {
  const std::lock_guard lock(moving_);
  if (told_failure_ || !may_send()) return;
  drop_sent();
  const auto word = std::make_shared<Word>();
  word->apart = static_cast<std::uint64_t>(std::max<std::int64_t>(apart.count(), 1));
  std::memcpy(word->work.text, work.data(), std::min(work.size(), sizeof word->work.text - 1));
  send(without_full(ranks), word);
}

void FarBoard::tell_failure(const std::vector<int>& ranks, const std::string& why) {
  const std::lock_guard lock(moving_);
  if (told_failure_ || !may_send()) return;
  told_failure_ = true;
  const auto word = std::make_shared<Word>();
  const std::size_t length = std::min(why.size(), sizeof word->failure - 1);
  std::memcpy(word->failure, why.data(), length);
  send(ranks, word);
}

// Of what comes from elsewhere nothing is believed that memory depends on.
void FarBoard::take(int rank, Word& word, std::optional<std::string>& failure) {
  word.failure[sizeof word.failure - 1] = word.row.text[sizeof word.row.text - 1] =
      word.row.waits_for[sizeof word.row.waits_for - 1] =
          word.work.text[sizeof word.work.text - 1] = 0;
  if (word.failure[0] != 0) {
    failure = word.failure;
    return;
  }
  constexpr std::uint64_t longest = 60'000;
  if (word.apart > 0) {
    const std::lock_guard lock(mutex_);
    heard_[rank].work = {
        word.work.text, std::chrono::steady_clock::now(),
        std::chrono::milliseconds(static_cast<std::int64_t>(std::min(word.apart, longest)))};
    return;
  }
  Heard heard{.row = word.row};
  for (std::size_t i = 0; i < std::min<std::uint64_t>(word.calls, calls_told); ++i) {
    const Word::Call& each = word.call[i];
    heard.calls.push_back(
        {.group = each.group, .sequence = each.sequence, .what = each.what, .state = each.state});
  }
  const std::lock_guard lock(mutex_);
  heard_[rank] = std::move(heard);
}

std::optional<std::string> FarBoard::hear(const std::vector<int>& ranks) {
  const std::lock_guard lock(moving_);
  std::optional<std::string> failure;
  if (!may_send()) return failure;
  drop_sent();
  for (const int rank : ranks) {
    Inbox& inbox = inboxes_[rank];
    try {
      while (!inbox.over && !failure) {
        if (!inbox.ticket) {
          if (!inbox.word) inbox.word = std::make_unique<Word>();
          const Message message{Direction::recv, rank,
                                reinterpret_cast<std::byte*>(inbox.word.get()), sizeof(Word)};
          inbox.ticket = transport_->post(channel, {&message, 1});
        }
        if (!transport_->test(*inbox.ticket)) break;
        inbox.ticket.reset();
        take(rank, *inbox.word, failure);
      }
    } catch (const Error&) {
      inbox.over = true;
    }
  }
  return failure;
}

std::optional<Row> FarBoard::row(int rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = heard_.find(rank);
  return found == heard_.end() ? std::nullopt : found->second.row;
}

std::optional<FarBoard::Work> FarBoard::work(int rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = heard_.find(rank);
  return found == heard_.end() ? std::nullopt : found->second.work;
}

bool FarBoard::anyone_works() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(heard_, [](const auto& each) {
    const std::optional<Work>& work = each.second.work;
    return work && work->goes_on();
  });
}

std::optional<Finished> FarBoard::finished(int rank, std::uint64_t group,
                                           std::uint64_t sequence) const {
  const std::lock_guard lock(mutex_);
  const auto found = heard_.find(rank);
  if (found == heard_.end()) return std::nullopt;
  for (const FlightRow& each : found->second.calls) {
    if (each.group == group && each.sequence == sequence && each.state == FlightState::done) {
      return each.what;
    }
  }
  return std::nullopt;
}

std::vector<std::pair<std::uint64_t, Finished>> FarBoard::finished(int rank,
                                                                   std::uint64_t group) const {
  std::vector<std::pair<std::uint64_t, Finished>> calls;
  {
    const std::lock_guard lock(mutex_);
    const auto found = heard_.find(rank);
    if (found == heard_.end()) return calls;
    for (const FlightRow& each : found->second.calls) {
      if (each.group == group && each.state == FlightState::done) {
        calls.emplace_back(each.sequence, each.what);
      }
    }
  }
  std::ranges::sort(calls, {}, [](const auto& call) { return call.first; });
  return calls;
}

std::vector<FlightRow> FarBoard::calls(int rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = heard_.find(rank);
  return found == heard_.end() ? std::vector<FlightRow>() : found->second.calls;
}

}  // namespace peal::comm

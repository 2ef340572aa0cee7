// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/control/board.h>
#include <peal/comm/schedule/mix.h>

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace peal::comm {

// All-zero bytes, which is what fresh memory is, are a valid empty board.
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

namespace {

// A recorder for each of these ranks, in their order; of none, for all.
std::vector<int> recorders_of(int world, const std::vector<int>& ranks) {
  std::vector<int> recorders(static_cast<std::size_t>(world), -1);
  if (ranks.empty()) std::iota(recorders.begin(), recorders.end(), 0);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    recorders.at(static_cast<std::size_t>(ranks[i])) = static_cast<int>(i);
  }
  return recorders;
}

}  // namespace

Board::Board(void* memory, std::vector<int> recorder_of, std::shared_ptr<SharedSegment> segment)
    : header_(static_cast<Header*>(memory)),
      world_(static_cast<int>(recorder_of.size())),
      recorder_of_(std::move(recorder_of)),
      segment_(std::move(segment)) {}

Board::~Board() {
  if (!segment_) munmap(header_, bytes_for(world_, recorder_of_.size()));
}

std::size_t Board::bytes_for(int world, std::size_t recorders) {
  return sizeof(Header) + static_cast<std::size_t>(world) * sizeof(Words) +
         recorders * sizeof(FlightRecorder);
}

std::size_t Board::at(int rank) const {
  PEAL_CHECK(rank >= 0 && rank < world_, "board: rank ", rank, " of ", world_);
  return static_cast<std::size_t>(rank);
}

std::size_t Board::recorder(int rank) const {
  const int place = recorder_of_[at(rank)];
  PEAL_CHECK(place >= 0, "board: rank ", rank, " has its flight recorder on another node");
  return static_cast<std::size_t>(place);
}

// The system gives pages as they are used, zeroed.
std::shared_ptr<Board> Board::in_memory(int world) {
  std::vector<int> recorders = recorders_of(world, {});
  const std::size_t bytes = bytes_for(world, recorders.size());
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  PEAL_CHECK(memory != MAP_FAILED, "board: no memory for ", bytes, " bytes");
  return std::shared_ptr<Board>(new Board(memory, std::move(recorders), nullptr));
}

std::shared_ptr<Board> Board::shared(Rendezvous& node, int world, const std::vector<int>& here) {
  const std::size_t recorders = here.empty() ? static_cast<std::size_t>(world) : here.size();
  auto segment = SharedSegment::between_processes(node, bytes_for(world, recorders), "board");
  void* const memory = segment->data();
  return std::shared_ptr<Board>(new Board(memory, recorders_of(world, here), std::move(segment)));
}

template <class T>
void Board::Published<T>::write(const T& value) {
  std::uint64_t words[count];
  std::memcpy(words, &value, sizeof value);
  const std::uint64_t before = stamp.load(std::memory_order_relaxed);
  stamp.store(before + 1);
  for (int i = 0; i < count; ++i) word[i].store(words[i]);
  stamp.store(before + 2);
}

template <class T>
std::optional<T> Board::Published<T>::read() const {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::uint64_t before = stamp.load();
    if (before == 0) return std::nullopt;
    std::uint64_t words[count];
    for (int i = 0; i < count; ++i) words[i] = word[i].load();
    if (before % 2 == 0 && stamp.load() == before) {
      T value;
      std::memcpy(&value, words, sizeof value);
      return value;
    }
  }
  return std::nullopt;
}

void Board::publish(int rank, const Row& row) {
  const std::lock_guard lock(publishing_);
  slot(rank).row.write(row);
}

std::optional<Row> Board::read(int rank) const { return slot(rank).row.read(); }

WorkName Board::begin_work(int rank, std::string_view what) {
  WorkName name;
  what.copy(name.text, sizeof name.text - 1);
  const std::lock_guard lock(publishing_);
  Words& here = slot(rank);
  const WorkName before = here.work.read().value_or(WorkName{});
  here.work.write(name);
  here.works.fetch_add(1);
  return before;
}

void Board::end_work(int rank, const WorkName& before) {
  const std::lock_guard lock(publishing_);
  slot(rank).works.fetch_sub(1);
  slot(rank).work.write(before);
}

std::string Board::work(int rank) const {
  const auto name = slot(rank).work.read();
  return name ? name->text : "";
}

namespace {

std::uint64_t key_of(std::uint64_t group, std::uint64_t sequence) {
  mix(group, sequence);
  return group | 1;  // 0 is none
}

}  // namespace

// A reader in between sees nothing rather than a mixture. Each store is released: what is seen of a
// new record is seen after the key of the old one has gone.
void Board::finished(int rank, std::uint64_t group, std::uint64_t sequence, const Finished& what) {
  auto& place = slot(rank).finished[sequence % remembered];
  place.key.store(0, std::memory_order_relaxed);
  place.signature.store(what.signature, std::memory_order_release);
  place.call[0].store(what.call[0], std::memory_order_release);
  place.call[1].store(what.call[1], std::memory_order_release);
  place.key.store(key_of(group, sequence), std::memory_order_release);
}

std::optional<Finished> Board::finished(int rank, std::uint64_t group,
                                        std::uint64_t sequence) const {
  const auto& place = slot(rank).finished[sequence % remembered];
  const std::uint64_t key = key_of(group, sequence);
  if (place.key.load(std::memory_order_acquire) != key) return std::nullopt;
  Finished what;
  what.signature = place.signature.load(std::memory_order_acquire);
  what.call[0] = place.call[0].load(std::memory_order_acquire);
  what.call[1] = place.call[1].load(std::memory_order_acquire);
  if (place.key.load(std::memory_order_relaxed) != key) return std::nullopt;
  return what;
}

void Board::poison(const std::string& message, int rank) {
  if (header_->winner.load() != 0) return;
  const std::uint32_t place = header_->taken.fetch_add(1);
  if (place >= Header::places) return;  // so many are at it: one of them lives
  auto& room = header_->message[place];
  const std::size_t length = std::min<std::size_t>(message.size(), Header::message_bytes - 1);
  for (std::size_t i = 0; i < length; ++i) room[i].store(message[i], std::memory_order_relaxed);
  header_->rank[place].store(rank + 1, std::memory_order_relaxed);
  std::uint32_t nobody_yet = 0;
  header_->winner.compare_exchange_strong(nobody_yet, place + 1, std::memory_order_release,
                                          std::memory_order_relaxed);
}

std::optional<std::string> Board::poisoned() const {
  const std::uint32_t winner = header_->winner.load(std::memory_order_acquire);
  if (winner == 0) return std::nullopt;
  std::string message;
  for (const auto& letter : header_->message[winner - 1]) {
    const char c = letter.load(std::memory_order_relaxed);
    if (c == 0) break;
    message += c;
  }
  return message;
}

int Board::poisoner() const {
  const std::uint32_t winner = header_->winner.load(std::memory_order_acquire);
  return winner == 0 ? nobody : header_->rank[winner - 1].load(std::memory_order_relaxed) - 1;
}

bool Board::take_stall_word(std::chrono::milliseconds apart) {
  const std::int64_t now = FlightRecorder::now();
  std::int64_t last = header_->stall_word.load();
  if (last != 0 && now - last < std::chrono::nanoseconds(apart).count()) return false;
  return header_->stall_word.compare_exchange_strong(last, now);
}

}  // namespace peal::comm

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/control/control.h>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>
#include <thread>
#include <tuple>

namespace peal::comm {
namespace {

constexpr std::string_view rule =
    "all ranks must make the same calls with the same arguments in the same order";

}  // namespace

Control::Control(std::shared_ptr<Board> board, int rank, std::vector<int> here,
                 const std::vector<Peer>& processes)
    : Control(std::move(board), rank, std::move(here), watch(rank, processes)) {}

Control::Control(std::shared_ptr<Board> board, int rank, std::vector<int> here,
                 std::shared_ptr<const Watched> watched)
    : board_(std::move(board)), rank_(rank), here_(std::move(here)), watched_(std::move(watched)) {}

std::shared_ptr<const Control::Watched> Control::watch(int rank,
                                                       const std::vector<Peer>& processes) {
  auto watched = std::make_shared<Watched>();
  for (const Peer& peer : processes) {
    if (peer.rank == rank) continue;
    const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0));
    if (descriptor >= 0) {
      watched->processes.push_back({peer.rank, peer.pid, descriptor});
    } else if (errno == ESRCH) {
      watched->dead_already.push_back(peer);
    } else {
      log_warning("rank ", peer.rank, "'s process cannot be watched (", std::strerror(errno),
                  "): its death will be noticed by the deadline alone");
    }
  }
  return watched;
}

Control::Watched::~Watched() {
  for (const Process& process : processes) close(process.descriptor);
}

std::string pid_namespace() {
  char target[64] = {};
  const auto length = readlink("/proc/self/ns/pid", target, sizeof target - 1);
  return length > 0 ? std::string(target, static_cast<std::size_t>(length)) : "unknown";
}

std::unique_ptr<Control> Control::subset(const std::vector<int>& ranks) const {
  std::vector<int> here;
  std::copy_if(here_.begin(), here_.end(), std::back_inserter(here), [&](int rank) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  });
  return std::unique_ptr<Control>(new Control(board_, rank_, std::move(here), watched_));
}

bool Control::is_to_tell(const std::string& message) const {
  const auto standing = board_->poisoned();
  if (!standing || message.find(*standing) == message.npos) return true;
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (board_->poisoner() != rank_ && !board_->word_taken() &&
         std::chrono::steady_clock::now() < patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return board_->take_word();
}

void Control::lament(const Peer& peer) {
  // A rank that fails says why before it goes: its word is better than ours.
  if (const auto message = board_->poisoned()) fail(*message);
  const std::string message = concat("rank ", peer.rank, " (process ", peer.pid,
                                     ") has died; the job cannot go on without it");
  board_->poison(concat("[comm] ", message));
  fail(concat("[comm] rank ", rank_, ": ", message));
}

std::optional<Peer> Control::first_gone() const {
  const auto& [processes, dead_already] = *watched_;
  if (!dead_already.empty()) return dead_already[0];
  if (processes.empty()) return std::nullopt;
  std::vector<pollfd> polled;
  for (const auto& process : processes) polled.push_back({process.descriptor, POLLIN, 0});
  if (poll(polled.data(), polled.size(), 0) <= 0) return std::nullopt;
  for (std::size_t i = 0; i < polled.size(); ++i) {
    if ((polled[i].revents & POLLIN) != 0) return Peer{processes[i].rank, processes[i].pid};
  }
  return std::nullopt;
}

void Control::check() {
  if (const auto message = board_->poisoned()) fail(*message);
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_.load()) return;
  next_look_ = now + std::chrono::milliseconds(2);
  if (const auto peer = first_gone()) lament(*peer);
}

// Whoever notices, the message is the same: the lower rank first.
void Control::compare_finished(int peer, std::uint64_t group, std::uint64_t end,
                               Describe describe) const {
  const std::uint64_t begin = end > Board::remembered ? end - Board::remembered : 0;
  bool agreed_before = begin == 0;
  for (std::uint64_t sequence = begin; sequence < end; ++sequence) {
    const auto mine = board_->finished(rank_, group, sequence);
    const auto theirs = board_->finished(peer, group, sequence);
    if (!mine || !theirs) continue;
    if (mine->signature == theirs->signature) {
      agreed_before = true;
      continue;
    }
    const auto& [low, high] = rank_ < peer ? std::tie(*mine, *theirs) : std::tie(*theirs, *mine);
    fail(concat("[comm] rank ", std::min(rank_, peer), " has finished ", describe(low, sequence),
                ", but rank ", std::max(rank_, peer), " has finished ", describe(high, sequence),
                agreed_before ? "" : ", and they differed before", ": ", rule));
  }
}

void Control::compare_finished(std::uint64_t group, std::uint64_t end, Describe describe) const {
  board_->meet_passing();
  for (const int peer : here_) {
    if (peer != rank_) compare_finished(peer, group, end, describe);
  }
}

void Control::compare(const Row& mine, Describe describe) const {
  for (const int peer : here_) {
    if (peer == rank_) continue;
    compare_finished(peer, mine.group, mine.sequence, describe);
    const auto theirs = read(peer);
    // A row without words is of none: who had one out has taken it back.
    if (theirs && theirs->text[0] != 0 && theirs->group == mine.group &&
        theirs->sequence == mine.sequence && theirs->signature != mine.signature) {
      const bool we_first = rank_ < peer;
      const bool alike = std::string_view(mine.text) == std::string_view(theirs->text);
      fail(concat("[comm] rank ", std::min(rank_, peer), " is in ",
                  std::string_view(we_first ? mine.text : theirs->text), ", but rank ",
                  std::max(rank_, peer), " is in ",
                  std::string_view(we_first ? theirs->text : mine.text),
                  alike ? ", and their calls before this one differed" : "", ": ", rule));
    }
    const auto done = board_->finished(peer, mine.group, mine.sequence);
    PEAL_CHECK(!done || done->signature == mine.signature, "[comm] rank ", rank_, " is in ",
               std::string_view(mine.text), ", but rank ", peer, " has finished ",
               describe(*done, mine.sequence), ": ", rule);
  }
}

std::string Control::describe() const {
  std::string text;
  for (const int peer : here_) {
    const auto row = read(peer);
    if (board_->works(peer)) {
      text += concat("\n  rank ", peer, ": works");
      continue;
    }
    if (!row || row->text[0] == 0) {
      text += concat("\n  rank ", peer, ": waits for nothing that it has said");
      continue;
    }
    text += concat("\n  rank ", peer, ": ", std::string_view(row->text));
    if (row->waits_for[0] != 0) text += concat(", for ", std::string_view(row->waits_for));
  }
  return text;
}

}  // namespace peal::comm

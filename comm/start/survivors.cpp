// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/start/neighbours.h>
#include <peal/comm/start/survivors.h>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

namespace peal::comm {
namespace {

using SurvivorsClock = std::chrono::steady_clock;

// No group has this number: its operations are none of theirs.
constexpr std::uint64_t shrink_row = 0x7065616c'73687269;
constexpr int ranks_of_a_digit = 4;
constexpr int most_survivors = (sizeof(Row::waits_for) - 1) * ranks_of_a_digit;

// A digit for four ranks, in Row::waits_for.
void write_ranks(Row& row, const std::vector<int>& ranks, int world) {
  std::string digits(static_cast<std::size_t>((world + ranks_of_a_digit - 1) / ranks_of_a_digit),
                     'a');
  for (const int rank : ranks) {
    char& digit = digits[static_cast<std::size_t>(rank / ranks_of_a_digit)];
    digit = static_cast<char>(digit + (1 << (rank % ranks_of_a_digit)));
  }
  std::memcpy(row.waits_for, digits.c_str(), digits.size() + 1);
}

std::vector<int> read_ranks(const Row& row, int world) {
  std::vector<int> ranks;
  for (int rank = 0; rank < world; ++rank) {
    const int digit = row.waits_for[rank / ranks_of_a_digit] - 'a';
    if ((digit >> (rank % ranks_of_a_digit)) % 2 != 0) ranks.push_back(rank);
  }
  return ranks;
}

std::string listed_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += concat(text.empty() ? "rank " : ", ", rank);
  return text;
}

// The engine takes rows of a group's operations back, and may take this for one.
void say_on_board(Control& control, const Row& row) {
  if (control.own_row() != row) control.publish(row);
}

}  // namespace

Survivors::Survivors(Rendezvous& world)
    : rank_(world.rank()),
      world_(world.world()),
      descriptors_(static_cast<std::size_t>(world_), -1) {
  const Neighbours met = comm::meet(world);
  const auto all = static_cast<std::size_t>(world_);
  if (met.here.size() != all) {
    obstacle_ = "the ranks are on several nodes";
  } else if (met.processes.size() != all) {
    obstacle_ = "the ranks are in several namespaces of processes";
  } else if (world_ > most_survivors) {
    obstacle_ = concat("there are more than ", most_survivors, " ranks");
  }
  if (!obstacle_.empty()) return;
  for (const Peer& peer : met.processes) {
    if (peer.rank == rank_) continue;
    int& descriptor = descriptors_[static_cast<std::size_t>(peer.rank)];
    descriptor = static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0));
    if (descriptor < 0 && errno != ESRCH) {
      obstacle_ =
          concat("rank ", peer.rank, "'s process cannot be watched (", std::strerror(errno), ")");
    }
  }
}

Survivors::~Survivors() {
  for (const int descriptor : descriptors_) {
    if (descriptor >= 0) close(descriptor);
  }
}

bool Survivors::is_gone(int rank) const {
  if (rank == rank_) return false;
  const int descriptor = descriptors_[static_cast<std::size_t>(rank)];
  pollfd polled{descriptor, POLLIN, 0};
  return descriptor < 0 || (poll(&polled, 1, 0) > 0 && (polled.revents & POLLIN) != 0);
}

// Who is in a later call has given this one up, and never comes to it again.
void Survivors::check_call(int rank, const std::optional<Row>& row, std::uint64_t call) const {
  PEAL_CHECK(!row || row->group != shrink_row || row->sequence <= call, "[comm] rank ", rank_,
             " of the first world is in its shrink() ", call, ", but rank ", rank, " is in its ",
             row->sequence, ": call shrink() again");
}

void Survivors::check(const Control& control, const std::vector<int>& ranks,
                      std::uint64_t call) const {
  for (const int rank : ranks) {
    PEAL_CHECK(!is_gone(rank), "[comm] rank ", rank, " of the first world has died while rank ",
               rank_, " was in shrink() with it: call shrink() again");
    check_call(rank, control.read(rank), call);
  }
}

Survivors::Left Survivors::open(Control& control, const std::shared_ptr<const Row>& mine,
                                const std::vector<int>& ranks, int port, const Patience& patience,
                                const std::string& run, const std::string& secret) {
  Left left{.call = mine->sequence, .ranks = ranks, .store = nullptr};
  Patience watches = patience;
  watches.hopeless = [this, ranks, &control, mine, starts = left.starts] {
    if (!*starts) return;
    say_on_board(control, *mine);
    check(control, ranks, mine->sequence);
  };
  const auto own = std::ranges::find(ranks, rank_);
  PEAL_CHECK(own != ranks.end(), "[comm] rank ", rank_,
             " of the first world has come to shrink(), but is not among those who are left: ",
             listed_ranks(ranks));
  left.store =
      std::make_unique<TcpStore>("127.0.0.1", port, static_cast<int>(own - ranks.begin()),
                                 static_cast<int>(ranks.size()), std::move(watches), run, secret);
  return left;
}

Survivors::Left Survivors::meet(Control& control, std::chrono::milliseconds deadline,
                                const std::function<bool(int)>& works, const std::string& run,
                                const std::string& secret) {
  PEAL_CHECK(
      obstacle_.empty(), "[comm] rank ", rank_, ": shrink() is for ranks that see each ",
      "other's processes, on one node, but ", obstacle_,
      ": start the job again, from its last checkpoint (peal-run --max-restarts, --elastic)");
  const std::uint64_t call = ++calls_;
  const Patience patience{.deadline = deadline};
  const std::string this_run = concat("shrink ", call, " of ", run).substr(0, 256);
  const auto mine = std::make_shared<Row>();
  mine->group = shrink_row;
  mine->sequence = call;
  std::snprintf(mine->text, sizeof mine->text, "shrink(), call %llu",
                static_cast<unsigned long long>(call));
  for (auto begin = SurvivorsClock::now();;) {
    say_on_board(control, *mine);
    std::vector<int> left, missing;
    for (int rank = 0; rank < world_; ++rank) {
      // In this order: what one has said that died then is seen.
      const bool gone = is_gone(rank);
      const auto row = rank == rank_ ? std::optional(*mine) : control.read(rank);
      const bool in_shrink = row && row->group == shrink_row;
      if (in_shrink && row->sequence == call && row->signature != 0) {
        return open(control, mine, read_ranks(*row, world_), static_cast<int>(row->signature),
                    patience, this_run, secret);
      }
      if (gone) continue;
      check_call(rank, row, call);
      left.push_back(rank);
      if (!in_shrink || row->sequence < call) missing.push_back(rank);
    }
    if (missing.empty() && left.front() == rank_) {
      Left opened = open(control, mine, left, 0, patience, this_run, secret);
      mine->signature = static_cast<std::uint64_t>(opened.store->port());
      write_ranks(*mine, left, world_);
      say_on_board(control, *mine);
      return opened;
    }
    if (std::ranges::any_of(missing, works)) begin = SurvivorsClock::now();
    if (SurvivorsClock::now() - begin >= deadline) {
      control.publish({});  // who comes now would take this rank for one that is here
      fail(concat("[comm] rank ", rank_, " of the first world has waited ",
                  std::chrono::duration<double>(deadline).count(),
                  " s (PEAL_TIMEOUT) in shrink() for ",
                  missing.empty() ? listed_ranks({left.front()}) : listed_ranks(missing),
                  " of the first world: every rank that lives must call it, or end"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace peal::comm

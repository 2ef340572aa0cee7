// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/control/control.h>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string_view>
#include <thread>
#include <tuple>

namespace peal::comm {
namespace {

constexpr std::chrono::milliseconds most_apart{1000};  // beats of a heart

constexpr std::string_view rule =
    "all ranks must make the same calls with the same arguments in the same order";

// Behind that somebody works.
std::string in_brackets(const std::string& work) {
  return work.empty() ? "" : concat(" (", work, ")");
}

// By proc(5) the state stands behind the name, which may have any letters.
bool is_stopped(int pid) {
  std::ifstream file(concat("/proc/", pid, "/stat"));
  const std::string line{std::istreambuf_iterator<char>(file), {}};
  const auto name_ends = line.rfind(')');
  if (name_ends == line.npos || name_ends + 2 >= line.size()) return false;
  const char state = line[name_ends + 2];
  return state == 'T' || state == 't';
}

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

Busy::Busy(std::shared_ptr<Board> board, int rank, std::string_view what,
           const std::shared_ptr<Heartbeat>& heart)
    : board_(std::move(board)), rank_(rank), heart_(heart) {
  before_ = board_->begin_work(rank_, what);
  if (heart) heart->begin();
}

// In a child the thread is its parent's.
Busy::~Busy() {
  if (!board_ || mark_.inherited()) return;
  if (const auto heart = heart_.lock()) heart->end();
  board_->end_work(rank_, before_);
}

void Control::reach_far(Transport& world, std::chrono::milliseconds deadline) {
  std::vector<int> everyone(static_cast<std::size_t>(board_->world()));
  std::iota(everyone.begin(), everyone.end(), 0);
  std::ranges::copy_if(everyone, std::back_inserter(elsewhere_), [&](int rank) {
    return rank != rank_ && std::ranges::find(here_, rank) == here_.end();
  });
  far_everyone_ = elsewhere_;
  if (elsewhere_.empty()) return;  // on all ranks: who is elsewhere for one has it elsewhere too
  far_ = std::make_shared<FarBoard>(world.subset(everyone, FarBoard::group));
  if (!far_->travels_beside()) return;
  // Who is silent for three of them works no more, and of the deadline there is half left then.
  const auto apart = std::min(most_apart, std::max(deadline / 8, std::chrono::milliseconds(1)));
  heart_ = std::make_shared<Heartbeat>(
      [far = far_, board = board_, rank = rank_, everyone = far_everyone_, apart] {
        try {
          far->tell_work(everyone, board->work(rank), apart);
        } catch (const std::exception&) {  // for want of memory: the next may have it
        }
      },
      apart);
}

void Control::end_beats() {
  if (heart_) heart_->stop();
}

std::shared_ptr<ToldWarnings> Control::told_warnings() const {
  return {board_, board_->told_warnings()};
}

std::unique_ptr<Control> Control::subset(const std::vector<int>& ranks) const {
  const auto among = [&](const std::vector<int>& some) {
    std::vector<int> both;
    std::ranges::copy_if(some, std::back_inserter(both),
                         [&](int rank) { return std::ranges::find(ranks, rank) != ranks.end(); });
    return both;
  };
  auto part = std::unique_ptr<Control>(new Control(board_, rank_, among(here_), watched_));
  part->elsewhere_ = among(elsewhere_);
  part->far_everyone_ = far_everyone_;
  part->far_ = far_;
  part->heart_ = heart_;
  return part;
}

std::vector<int> Control::peers() const {
  std::vector<int> all = here_;
  all.insert(all.end(), elsewhere_.begin(), elsewhere_.end());
  std::erase(all, rank_);
  return all;
}

// Of ranks that are elsewhere the board has nothing.
std::optional<Row> Control::read(int peer) const {
  auto row = board_->read(peer);
  return row || !far_ ? row : far_->row(peer);
}

std::optional<Finished> Control::finished_by(int peer, std::uint64_t group,
                                             std::uint64_t sequence) const {
  auto done = board_->finished(peer, group, sequence);
  return done || !far_ ? done : far_->finished(peer, group, sequence);
}

std::optional<bool> Control::has_begun(int peer, std::uint64_t group, std::uint64_t sequence,
                                       const CallPlace& waits_in) const {
  const bool far = std::ranges::find(elsewhere_, peer) != elsewhere_.end();
  return comm::has_begun(far ? far_->calls(peer) : board_->flight(peer).read(), group, sequence,
                         waits_in);
}

void Control::meet_far(const Row& mine) {
  if (!far_) return;
  far_->tell(elsewhere_, mine, board_->flight(rank_));
  next_hearing_ = {};
  hear_far();
}

void Control::hear_far() {
  if (!far_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_hearing_) return;
  next_hearing_ = now + between_hearings;
  if (const auto failure = far_->hear(far_everyone_)) board_->poison(*failure);
}

void Control::hear_beside() const {
  if (!far_ || !far_->travels_beside()) return;
  if (const auto failure = far_->hear(far_everyone_)) board_->poison(*failure);
}

// Who heard it from another leaves it to that one.
void Control::fail_far() {
  if (!far_) return;
  if (board_->poisoner() == rank_) far_->tell_failure(far_everyone_, *board_->poisoned());
  far_->abandon();
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

void Control::leave(std::chrono::milliseconds patience) const {
  using Clock = std::chrono::steady_clock;
  board_->leave(rank_);
  const auto has_left = [&](const Watched::Process& process) {
    pollfd polled{process.descriptor, POLLIN, 0};
    return board_->has_left(process.rank) || poll(&polled, 1, 0) > 0;
  };
  for (const auto begin = Clock::now();
       !std::ranges::all_of(watched_->processes, has_left) && Clock::now() - begin < patience;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Control::lament(const Peer& peer) {
  // A rank that fails says why before it goes: its word is better than ours.
  if (const auto message = board_->poisoned()) fail(*message);
  const std::string message = concat(
      "[comm] rank ", peer.rank, " (process ", peer.pid, ") has died",
      board_->works(peer.rank) ? concat(" at its work", in_brackets(board_->work(peer.rank))) : "",
      "; the job cannot go on without it");
  board_->poison(message, rank_);
  fail(board_->poisoned().value_or(message));  // another may have been faster
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

bool Control::anyone_works(bool but_me) const {
  if (far_ && far_->anyone_works()) return true;
  std::vector<int> working;  // processes of ranks that say so
  for (int rank = 0; rank < board_->world(); ++rank) {
    if (!board_->works(rank) || (but_me && rank == rank_)) continue;
    const auto process = std::ranges::find(watched_->processes, rank, &Watched::Process::rank);
    if (process == watched_->processes.end()) return true;  // one that is this process
    working.push_back(process->pid);
  }
  if (working.empty()) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now - states_seen_.load() < std::chrono::milliseconds(10)) return one_moves_;
  one_moves_ = !std::ranges::all_of(working, is_stopped);
  states_seen_ = now;
  return one_moves_;
}

bool Control::works(int rank) const {
  if (!board_->works(rank)) return false;
  const auto process = std::ranges::find(watched_->processes, rank, &Watched::Process::rank);
  return process == watched_->processes.end() || !is_stopped(process->pid);
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
  const auto check = [&](std::uint64_t sequence, const Finished& theirs) {
    const auto mine = board_->finished(rank_, group, sequence);
    if (!mine) return;
    if (mine->signature == theirs.signature) {
      agreed_before = true;
      return;
    }
    const auto& [low, high] = rank_ < peer ? std::tie(*mine, theirs) : std::tie(theirs, *mine);
    fail(concat("[comm] rank ", std::min(rank_, peer), " has finished ", describe(low, sequence),
                ", but rank ", std::max(rank_, peer), " has finished ", describe(high, sequence),
                agreed_before ? "" : ", and they differed before", ": ", rule));
  };
  // There may be many that are elsewhere, and each has told a few of its calls.
  std::vector<std::pair<std::uint64_t, Finished>> told;
  if (far_) told = far_->finished(peer, group);
  for (const auto& [sequence, theirs] : told) {
    if (sequence >= begin && sequence < end) check(sequence, theirs);
  }
  for (std::uint64_t sequence = begin; told.empty() && sequence < end; ++sequence) {
    if (const auto theirs = board_->finished(peer, group, sequence)) check(sequence, *theirs);
  }
}

void Control::compare_finished(std::uint64_t group, std::uint64_t end, Describe describe) const {
  board_->meet_passing();
  for (const int peer : here_) {
    if (peer != rank_) compare_finished(peer, group, end, describe);
  }
}

void Control::compare(const Row& mine, Describe describe) const {
  for (const int peer : peers()) compare(peer, mine, describe);
}

void Control::compare(int peer, const Row& mine, Describe describe) const {
  compare_finished(peer, mine.group, mine.sequence, describe);
  const auto theirs = read(peer);
  // A row without words is of none: who had one out has taken it back.
  if (theirs && theirs->text[0] != 0 && theirs->group == mine.group &&
      theirs->sequence == mine.sequence && theirs->signature != mine.signature) {
    const bool we_first = rank_ < peer;
    const bool alike = std::string_view(mine.text) == std::string_view(theirs->text);
    fail(concat(
        "[comm] rank ", std::min(rank_, peer), " is in ",
        std::string_view(we_first ? mine.text : theirs->text), ", but rank ", std::max(rank_, peer),
        " is in ", std::string_view(we_first ? theirs->text : mine.text),
        alike ? ", and these differ in their parts, or those before them" : "", ": ", rule));
  }
  const auto done = finished_by(peer, mine.group, mine.sequence);
  PEAL_CHECK(!done || done->signature == mine.signature, "[comm] rank ", rank_, " is in ",
             std::string_view(mine.text), ", but rank ", peer, " has finished ",
             describe(*done, mine.sequence), ": ", rule);
}

void Control::fail_crossed(const Row& mine, std::string_view my_group, int peer, const Row& theirs,
                           std::string_view their_group) const {
  const auto place = [](const Row& row, std::string_view group) {
    return concat(" is in ", std::string_view(row.text), " of ", group);
  };
  const bool we_first = rank_ < peer;
  fail(concat("[comm] rank ", std::min(rank_, peer),
              we_first ? place(mine, my_group) : place(theirs, their_group), ", but rank ",
              std::max(rank_, peer), we_first ? place(theirs, their_group) : place(mine, my_group),
              ", and neither has come to the other's call: ", rule));
}

std::string Control::describe_here(int peer) const {
  const auto row = board_->read(peer);
  const auto process = std::ranges::find(watched_->processes, peer, &Watched::Process::rank);
  const std::string work = board_->works(peer) ? in_brackets(board_->work(peer)) : "";
  if (process != watched_->processes.end() && is_stopped(process->pid)) {
    return concat("its process (", process->pid,
                  ") stands still, stopped by a signal (SIGCONT lets it go on) or a debugger",
                  work.empty() ? "" : ", at its work", work);
  }
  if (board_->works(peer)) return concat("works", work);
  if (!row || row->text[0] == 0) return "waits for nothing that it has said";
  return concat(std::string_view(row->text), row->waits_for[0] != 0 ? ", for " : "",
                std::string_view(row->waits_for));
}

// It may have said both that it waits and that it works, of several groups or threads.
std::string Control::describe_elsewhere(int peer) const {
  const auto work = far_->work(peer);
  if (work && work->goes_on()) return concat("works", in_brackets(work->name));
  const auto row = read(peer);
  const std::string waited = row && row->text[0] != 0 ? std::string(row->text) : "";
  if (!work) return waited;  // a row that comes later takes the work's place
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - work->heard;
  return concat("said ", std::round(since.count() * 10) / 10, " s ago that it works",
                in_brackets(work->name),
                ", and nothing since: it is done, stands still, is gone, or cannot be heard",
                waited.empty() ? "" : concat("; before, it waited: ", waited));
}

std::string Control::describe() const {
  constexpr int most_silent = 8;
  std::string text;
  for (const int peer : here_) text += concat("\n  rank ", peer, ": ", describe_here(peer));
  int silent = 0;
  for (const int peer : elsewhere_) {
    const std::string said = describe_elsewhere(peer);
    if (!said.empty()) text += concat("\n  rank ", peer, ", elsewhere: ", said);
    if (!said.empty() || ++silent > most_silent) continue;
    text += concat("\n  rank ", peer, ", elsewhere: has said nothing");
  }
  if (silent > most_silent) {
    text += concat("\n  and so have ", silent - most_silent, " more, elsewhere");
  }
  return text;
}

std::string Control::describe_far_work() const {
  std::string text;
  for (const int peer : elsewhere_) {
    const auto work = far_->work(peer);
    if (!work || !work->goes_on()) continue;
    text += concat("\n  rank ", peer, ", elsewhere: works", in_brackets(work->name));
  }
  return text;
}

}  // namespace peal::comm

// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <peal/comm/verify/verify.h>
#include <peal/launch/tools/schedule/commands.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

namespace peal::launch {
namespace {

struct Tally {
  std::int64_t proofs = 0, exact = 0, bounded = 0, faults = 0;
};

// Every world that an algorithm is tried on: small, uneven and larger counts, roots at the ends and
// in the middle, short and long pipelines, one node and several.
std::vector<World> worlds_of(const comm::Entry& entry, int p) {
  std::vector<World> worlds;
  std::set<std::int64_t> counts{0, 1, p - 1, p, p + 1, 1009};
  if (entry.what == comm::Collective::barrier) counts = {0};
  std::set<int> roots{0};
  if (has_root(entry.what)) roots.insert({p / 2, p - 1});
  for (const std::int64_t n : counts) {
    for (const int root : roots) {
      worlds.push_back(make_world(entry.what, p, n, 0, root));
      if (entry.pipelined) worlds.push_back(make_world(entry.what, p, n, 0, root, n / 7 + 1));
      if (!entry.sees_nodes) continue;
      for (const int size : {2, 3, 8}) {
        worlds.push_back(make_world(entry.what, p, n, size, root));
        if (entry.pipelined) worlds.push_back(make_world(entry.what, p, n, size, root, n / 7 + 1));
      }
    }
  }
  return worlds;
}

class Verifier {
 public:
  void check(const comm::Entry& entry, const World& world, Tally& tally) {
    const auto programs = world.programs(entry);
    for (const bool in_place : {false, true}) {
      if (in_place && !has_in_place(entry.what)) continue;
      const comm::Verdict verdict =
          verify(world.problem(), programs,
                 in_place ? comm::Aliasing::in_place : comm::Aliasing::out_of_place);
      ++tally.proofs;
      if (!verdict.ok) {
        fault(tally, world.text(entry) + (in_place ? ", in place: " : ": ") + verdict.why);
      }
    }
    const comm::ClosedForm form = entry.costs(world.problem());
    comm::Cost most;
    for (const comm::Program& program : programs) {
      const comm::Cost c = cost(program);
      most = {std::max(most.rounds, c.rounds), std::max(most.sent, c.sent),
              std::max(most.received, c.received), std::max(most.reduced, c.reduced)};
    }
    ++(form.exact ? tally.exact : tally.bounded);
    const bool within = most.rounds <= form.most.rounds && most.sent <= form.most.sent &&
                        most.received <= form.most.received && most.reduced <= form.most.reduced;
    if (!(form.exact ? most == form.most : within)) {
      fault(tally, fmt::format("{}: {} rounds, {} sent, {} received, {} reduced; the books say {} "
                               "{}, {}, {}, {}",
                               world.text(entry), most.rounds, most.sent, most.received,
                               most.reduced, form.exact ? "exactly" : "at most", form.most.rounds,
                               form.most.sent, form.most.received, form.most.reduced));
    }
  }

  void print_faults() {
    constexpr std::size_t enough = 20;
    for (std::size_t i = 0; i < std::min(enough, faults_.size()); ++i) {
      fmt::print("wrong: {}\n", faults_[i]);
    }
    if (faults_.size() > enough) fmt::print("and {} more\n", faults_.size() - enough);
  }

 private:
  void fault(Tally& tally, const std::string& text) {
    ++tally.faults;
    const std::lock_guard lock(mutex_);
    faults_.push_back(text);
  }

  std::mutex mutex_;
  std::vector<std::string> faults_;
};

}  // namespace

int verify_all(const VerifyOptions& options) {
  struct Task {
    const comm::Entry* entry;
    int ranks;
    Tally tally;
    double seconds = 0;
  };
  std::vector<Task> tasks;
  const std::vector<comm::Entry> entries = comm::all_algorithms();
  for (const comm::Entry& entry : entries) {
    if (!options.only.empty() && entry.what != collective_named(options.only)) continue;
    for (const int p : options.ranks) {
      if (entry.supports(p)) tasks.push_back({&entry, p, {}});
    }
  }
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const auto begin = Clock::now();
  Verifier verifier;
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < tasks.size(); i = next++) {
      const auto began = Clock::now();
      for (const World& world : worlds_of(*tasks[i].entry, tasks[i].ranks)) {
        verifier.check(*tasks[i].entry, world, tasks[i].tally);
      }
      tasks[i].seconds = since(began);
    }
  };
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < options.threads; ++i) others.emplace_back(work);
    work();
  }

  fmt::print("{:<15} {:<20} {:>7} {:>9} {:>9} {:>7} {:>9}\n", "collective", "algorithm", "proofs",
             "= books", "<= books", "faults", "seconds");
  Tally sum;
  for (auto task = tasks.begin(); task != tasks.end();) {
    Tally one;
    double seconds = 0;
    const comm::Entry* entry = task->entry;
    for (; task != tasks.end() && task->entry == entry; ++task) {
      one.proofs += task->tally.proofs;
      one.exact += task->tally.exact;
      one.bounded += task->tally.bounded;
      one.faults += task->tally.faults;
      seconds += task->seconds;
    }
    fmt::print("{:<15} {:<20} {:>7} {:>9} {:>9} {:>7} {:>9.2f}\n", name(entry->what), entry->name,
               one.proofs, one.exact, one.bounded, one.faults, seconds);
    sum.proofs += one.proofs;
    sum.exact += one.exact;
    sum.bounded += one.bounded;
    sum.faults += one.faults;
  }
  fmt::print("{:<36} {:>7} {:>9} {:>9} {:>7} {:>9.2f}\n", "all, by the clock", sum.proofs,
             sum.exact, sum.bounded, sum.faults, since(begin));
  verifier.print_faults();
  return sum.faults == 0 ? 0 : 1;
}

}  // namespace peal::launch

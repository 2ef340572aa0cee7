// SPDX-License-Identifier: Apache-2.0
// Selection: which algorithm runs a collective of so many bytes, and in which chunks. Tables of
// rules, of which the first that speaks of the call decides: what the user says, what was measured
// on this machine (tuning.h), what is built in (defaults.h). All are written alike:
//
//   PEAL_ALGO="all_reduce=recursive_doubling:0-8192;ring:8193-max,all_gather=native"
//
// collectives apart by commas, ranges of bytes a rank apart by semicolons; a name without a range
// is for every size. Names are those of algorithms/table.h, and `native` for the transport's own (a
// schedule stands in where it has none for the type or the reduction, and messages for one-sided
// ones where the ranks share no memory). `chain/65536`: in chunks of so many bytes.
//
// Only what all ranks see alike may decide: the tables are equal on all of them, and buffers have
// no say.
//
// Deterministic mode (ProcessGroup::Options::deterministic): reductions go by those algorithms
// alone that make each sum at once, from rank 0 to the last (Entry::at_once). The others add in an
// order that depends on where an element stands (ring), or in one of their own
// (recursive_doubling), so that floating-point sums change with the place, or where the choice
// changes with the size. Rules of tables for such are passed over; the user's are an Error. Thread
// safety: values.
#pragma once

#include <peal/comm/schedule/schedule.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace peal::comm {

struct Entry;

// An algorithm, or `native`, as rules and users name it.
struct NamedAlgorithm {
  std::string_view name;   // a part of the text
  std::int64_t chunk = 0;  // bytes; 0: as the algorithm likes
};
// Error that begins with `who`, and shows the names that exist.
NamedAlgorithm parse_algorithm(Collective what, std::string_view text, std::string_view who);

class Rules {
 public:
  struct Rule {
    Collective what;
    std::string algorithm;
    std::int64_t chunk;
    std::int64_t first, last;  // bytes, both included

    // "ring", "chain/65536"
    std::string name() const;
  };

  Rules() = default;
  // Of two rules that both apply the first is taken.
  explicit Rules(std::vector<Rule> rules) : rules_(std::move(rules)) {}
  // Error that begins with `who`, shows the part it cannot read, and the names that exist.
  Rules(std::string_view text, std::string_view who);
  // As PEAL_ALGO has them, so that Rules(text(), who) are the same; and one by one.
  std::string text() const;
  const std::vector<Rule>& all() const { return rules_; }

  // The first for that size that `fits`; null: none.
  template <class Fits>
  const Rule* find(Collective what, std::int64_t bytes, Fits fits) const {
    for (const Rule& rule : rules_) {
      if (rule.what == what && bytes >= rule.first && bytes <= rule.last && fits(rule)) {
        return &rule;
      }
    }
    return nullptr;
  }

 private:
  std::vector<Rule> rules_;
};

// What a call can be run with.
struct Means {
  bool shared = false;  // memory that its ranks share
  // A collective of the transport's own; in deterministic mode one that sums as the mode wants.
  bool native = false;
  bool on_device = false;  // the transport is a device's
};

struct Choice {
  std::string_view algorithm;  // as long as the selection lives
  std::int64_t chunk = 0;      // bytes; 0: as the algorithm likes
  bool asked_for = false;      // by the user
  std::string_view why;        // "PEAL_ALGO", "built in"; as long as the selection lives
};

class Selection {
 public:
  // What was measured; empty tables where nothing was.
  struct Measured {
    std::string origin;      // "measured on 2 ranks, FILE"
    Rules shared, messages;  // for ranks that share memory, and others
  };

  Selection() = default;  // whatever the group, the first of those that there are
  // For so many ranks on so many nodes; `crowded`: as default_rules(). Error that shows the part of
  // `user` that it cannot read, or that deterministic mode does not admit.
  Selection(std::string_view user, int world, int nodes, Measured measured = {},
            bool crowded = false, bool deterministic = false);

  // The algorithm for a buffer of so many bytes, and by whose word: the user's, what was measured,
  // the table that is built in, or the first that serves so many ranks.
  Choice choose(Collective what, std::int64_t bytes, const Means& means) const;
  // Error that begins with `who` where deterministic mode does not admit the algorithm, or
  // `native`.
  void check_admitted(Collective what, std::string_view algorithm, std::string_view who) const;

 private:
  bool serves(const Rules::Rule& rule, const Means& means) const;
  bool admits(const Entry& entry) const;

  int world_ = 1;
  bool deterministic_ = false;
  Rules user_;
  Measured measured_;
  Rules shared_, messages_;  // built in
};

}  // namespace peal::comm

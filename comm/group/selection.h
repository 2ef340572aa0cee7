// SPDX-License-Identifier: Apache-2.0
// Selection: which algorithm runs a collective of so many bytes. A pure table; the user overrides
// it with
//
//   PEAL_ALGO="all_reduce=recursive_doubling:0-8192;ring:8193-max,all_gather=native"
//
// collectives apart by commas, ranges of bytes a rank apart by semicolons; a name without a range
// is for every size. Names are those of algorithms/table.h, and `native` for the transport's own (a
// schedule stands in where it has none for the type or the reduction, and messages for one-sided
// ones where the ranks share no memory). Thread safety: a value.
#pragma once

#include <peal/comm/schedule/schedule.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace peal::comm {

class Selection {
 public:
  Selection() = default;
  // Error that shows the part it cannot read, and the names that exist.
  explicit Selection(std::string_view text);

  // The algorithm's name: the user's choice, else the default, which supports the world. Where the
  // ranks do not share memory, one-sided ones are not chosen.
  std::string_view choose(Collective what, std::int64_t bytes, int world, bool shared) const;
  // Whether that is the user's choice.
  bool names(Collective what, std::int64_t bytes) const {
    return find_rule(what, bytes) != nullptr;
  }

 private:
  struct Rule {
    Collective what;
    std::string algorithm;
    std::int64_t first, last;  // bytes, both included
  };
  const Rule* find_rule(Collective what, std::int64_t bytes) const;
  std::vector<Rule> rules_;
};

}  // namespace peal::comm

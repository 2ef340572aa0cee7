// SPDX-License-Identifier: Apache-2.0
// Place: which rank of how many. What has to know it without knowing communication (the shard of a
// data set, a name of a file) takes it as this value; launch::Job::place() gives it.
#pragma once

namespace peal {

// 0 <= rank < world.
struct Place {
  int rank = 0, world = 1;
  bool operator==(const Place&) const = default;
};

}  // namespace peal

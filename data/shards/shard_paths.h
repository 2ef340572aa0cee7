// SPDX-License-Identifier: Apache-2.0
// Names of shards as people write them: "train-{000000..000146}.tar", "{train,extra}-{0..3}.tar".
// Thread safety: a pure function.
#pragma once

#include <string>
#include <vector>

namespace peal::data {

// All that the braces say, the last of them running fastest; {08..11} keeps its zeros. A text
// without braces is one name, and braces without a comma or dots are a part of it. Errors: a brace
// that is left open, an empty one, a range that runs downwards or is none, more than a million
// names.
std::vector<std::string> shard_paths(const std::string& pattern);

}  // namespace peal::data

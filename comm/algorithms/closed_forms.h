// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the textbooks say that each algorithm of the table costs, to compare its programs with.
//
// Thread safety: a pure function.

#include <peal/comm/algorithms/table.h>

namespace peal::comm {

struct ClosedForm {
  Cost most;   // of each field, the most that any rank has
  bool exact;  // some rank has it; else it is an upper bound
};

// Exact where the algorithm cuts the buffers into equal parts that are not empty; elsewhere the
// formula is taken of the largest part. The double tree, and hierarchies of unequal nodes, have
// bounds only. Throws std::invalid_argument for an algorithm whose costs are not known here.
// REQUIRES a problem that plan() accepts; problem.rank is not looked at.
ClosedForm closed_form(const Entry& entry, const Problem& problem);

}  // namespace peal::comm

// SPDX-License-Identifier: Apache-2.0
#pragma once

// The order in which a rank of a pipeline computes, one function a kind of schedule; p stages, m
// micro-batches, v chunks of a stage. Messages are not their business.
//
// GPipe (Huang et al., 2018): all forwards, then all backwards. Stash m; idle (p-1)(F+B).
//
// 1F1B (Narayanan et al., PipeDream-Flush, 2020): rank r runs p-r-1 forwards ahead, then one
// forward and one backward in turn, then the backwards that are left. The same idle time as GPipe,
// but a stash of p-r.
//
// Interleaved 1F1B (Narayanan et al., Megatron-LM, 2021): each rank has v parts, p apart, and takes
// micro-batches in groups of p, a group through one part after the other. Rank r runs 2(p-r-1) +
// (v-1)p forwards ahead. Idle (p-1)(F+B)/v, for v times the messages and a larger stash. The last
// group may be short: then the order is that of whole groups, without what is not there. (Counted
// ahead in the short group as in the others, ranks would wait for each other for ever.)
//
// ZB-H1 (Qi et al., Zero Bubble Pipeline Parallelism, 2023): 1F1B with backward in two. The part
// before waits for I alone, and W fills what would be idle: rank r holds back r of them. So every
// rank has the stash of 1F1B's first, p. Idle (p-1)(F+I-W).
//
// ZB-V (Qi et al., Pipeline Parallelism with Controllable Memory, 2024): two parts a rank, in a V:
// rank 0 has the first and the last. So the last rank goes on to the second half at once, and
// backward begins where it ends. With F = I = W nothing is idle but the start; stash 2p halves.
//
// Thread safety: pure functions. REQUIRES a problem that validate() accepts, and a rank of it.

#include <peal/comm/pipeline/pipeline.h>

#include <vector>

namespace peal::comm::pipeline {

std::vector<Action> order(const Problem& problem, int rank);

}  // namespace peal::comm::pipeline

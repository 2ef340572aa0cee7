// SPDX-License-Identifier: Apache-2.0
#pragma once

// Staged slices: collectives of ranks that share memory, for buffers that only their own rank
// reaches. They go through the rooms, a chunk at a time.
//
// Vocabulary. A room has two slots of a chunk, used in turn. What a rank puts into its slot are
// *pieces*: parts of its `in`.
//
// Begin: all meet; so that a rank knows where the others' buffers lie, and direct_slices.h, which
// begins alike, can be taken instead where all reach them. Then for each chunk: every rank copies
// its pieces into its slot, and all meet; and each takes what it needs out of the others' slots,
// and of its own `in`.
//
// all_reduce, reduce, of more than two ranks: slice i of a chunk is rank i's work, which adds it in
// the order of ranks and leaves the sum in slice i of its own slot; all meet again, and the slices
// are copied out. Two ranks add the other's slot to their own `in`. reduce_scatter: pieces of all
// blocks, of which rank i adds the i-th of all slots. The others only copy.
//
// Why two slots are enough: a rank that fills a slot for chunk c + 2 has met all others in chunk
// c + 1, which they came to when they had read all of chunk c.
//
// Cost a rank, in k chunks: 1 + k rounds of signals, 1 + 2k where there are slices; two chunks of
// room. all_reduce of n elements: n additions for two ranks, n(p-1)/p for more. Every element is
// reduced by the same tree, ((0 + 1) + 2) + ..
// Source: what GPUs call two-shot, through memory that is shared as in Open MPI's coll/sm.

#include <peal/comm/algorithms/entry.h>
#include <peal/comm/algorithms/meeting.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace peal::comm {

// Elements of a slot: of problem.chunk or, where that is 0, such that it stays in a core's cache.
inline std::int64_t staged_chunk(const Problem& problem) {
  constexpr std::int64_t usual = 16384;
  return problem.chunk > 0 ? problem.chunk : usual;
}

// The chunks of a buffer, or of blocks of which every chunk has a piece: elements of a piece, and
// how many chunks there are.
struct StagedChunks {
  StagedChunks(const Problem& problem, std::int64_t longest, int pieces)
      : piece(std::max<std::int64_t>(staged_chunk(problem) / pieces, 1)) {
    if (piece > problem.align) piece -= piece % problem.align;
    piece = std::min(piece, std::max<std::int64_t>(longest, 1));
    count = (longest + piece - 1) / piece;
    slot = piece * pieces;
  }
  // The part of a block that chunk c has.
  Block of(const Block& block, std::int64_t c) const {
    const std::int64_t at = std::min(c * piece, block.count);
    return {block.at + at, std::min(piece, block.count - at)};
  }
  std::int64_t slot_of(std::int64_t c) const { return c % 2 * slot; }

  std::int64_t piece, count = 0, slot = 0;
};

inline std::int64_t longest_of(const Problem& problem) {
  return problem.counts.empty() ? 0 : std::ranges::max(problem.counts);
}

// Each chunk: put(c, slot) are copies into the own slot, take(program, c, slot) is what comes after
// the meeting.
template <class Put, class Take>
Program staged(const Problem& problem, const StagedChunks& chunks, Put put, Take take) {
  const bool alone = problem.world == 1;
  Program program;
  program.room = alone ? 0 : std::min<std::int64_t>(chunks.count, 2) * chunks.slot;
  add_meeting(program, problem.rank, problem.world);
  for (std::int64_t c = 0; c < chunks.count; ++c) {
    if (!alone) add(program, put(c, chunks.slot_of(c)));
    add_meeting(program, problem.rank, problem.world);
    take(program, c, chunks.slot_of(c));
  }
  return program;
}

// all_reduce, and reduce: only the root copies out.
inline Program staged_slices_reduction(const Problem& problem, bool copies_out) {
  const int p = problem.world, rank = problem.rank;
  const Block all{0, problem.counts[0]};
  const StagedChunks chunks(problem, all.count, 1);
  return staged(
      problem, chunks,
      [&](std::int64_t c, std::int64_t slot) {
        const Block here = chunks.of(all, c);
        return Round{copy(room({slot, here.count}), in(here))};
      },
      [&](Program& program, std::int64_t c, std::int64_t slot) {
        const Block here = chunks.of(all, c);
        const auto in_slot = [&](const Block& b) { return room({slot + b.at, b.count}); };
        const auto in_place = [&](const Block& b) { return Block{here.at + b.at, b.count}; };
        const Blocks slices = Blocks::balanced(here.count, p <= 2 ? 1 : p, problem.align);
        const Block mine = slices[p <= 2 ? 0 : rank];
        std::vector<Span> sources = of_all(problem, in_slot(mine)), targets;
        sources[static_cast<std::size_t>(rank)] = in(in_place(mine));
        if (copies_out) targets.push_back(out(in_place(mine)));
        if (p > 2) targets.push_back(in_slot(mine));
        if (!targets.empty()) add_combination(program, targets, sources);
        if (p <= 2) return;
        add_meeting(program, rank, p);
        Round rest;
        for (int r = 0; copies_out && r < p; ++r) {
          if (r == rank) continue;
          rest.push_back(copy(out(in_place(slices[r])), of(r, rank, in_slot(slices[r]))));
        }
        add(program, std::move(rest));
      });
}

inline Program staged_slices_all_reduce(const Problem& problem) {
  return staged_slices_reduction(problem, true);
}
inline Program staged_slices_reduce(const Problem& problem) {
  return staged_slices_reduction(problem, problem.rank == problem.root);
}

// Of each other rank's block, block(r), what chunk c has of it.
template <class BlockOf>
Round pieces_for_others(const Problem& problem, const StagedChunks& chunks, std::int64_t c,
                        std::int64_t slot, BlockOf block) {
  Round pieces;
  for (int r = 0; r < problem.world; ++r) {
    const Block b = chunks.of(block(r), c);
    if (r != problem.rank) pieces.push_back(copy(room({slot + r * chunks.piece, b.count}), in(b)));
  }
  return pieces;
}

inline Program staged_slices_reduce_scatter(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  const Blocks block(problem.counts);
  const StagedChunks chunks(problem, longest_of(problem), p);
  return staged(
      problem, chunks,
      [&](std::int64_t c, std::int64_t slot) {
        return pieces_for_others(problem, chunks, c, slot, [&](int r) { return block[r]; });
      },
      [&](Program& program, std::int64_t c, std::int64_t slot) {
        const Block mine = chunks.of(block[rank], c);
        auto sources = of_all(problem, room({slot + rank * chunks.piece, mine.count}));
        sources[static_cast<std::size_t>(rank)] = in(mine);
        add_combination(program, {out({mine.at - block[rank].at, mine.count})}, sources);
      });
}

// all_gather, and gather: only the root takes.
inline Program staged_slices_gathering(const Problem& problem, bool takes) {
  const int p = problem.world, rank = problem.rank;
  const Blocks block(problem.counts);
  const Block own{0, block[rank].count};
  const StagedChunks chunks(problem, longest_of(problem), 1);
  return staged(
      problem, chunks,
      [&](std::int64_t c, std::int64_t slot) {
        const Block mine = chunks.of(own, c);
        return Round{copy(room({slot, mine.count}), in(mine))};
      },
      [&](Program& program, std::int64_t c, std::int64_t slot) {
        Round copies;
        for (int k = 0; takes && k < p; ++k) {
          const int r = wrap(rank + k, p);
          const Block b = chunks.of(block[r], c);
          copies.push_back(
              copy(out(b), k == 0 ? in(chunks.of(own, c)) : of(r, rank, room({slot, b.count}))));
        }
        add(program, std::move(copies));
      });
}
inline Program staged_slices_all_gather(const Problem& problem) {
  return staged_slices_gathering(problem, true);
}
inline Program staged_slices_gather(const Problem& problem) {
  return staged_slices_gathering(problem, problem.rank == problem.root);
}

inline Program staged_slices_all_to_all(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  const AllToAllBlocks blocks(problem);
  const StagedChunks chunks(problem, longest_of(problem), p);
  return staged(
      problem, chunks,
      [&](std::int64_t c, std::int64_t slot) {
        return pieces_for_others(problem, chunks, c, slot,
                                 [&](int r) { return blocks.in_of(rank, r); });
      },
      [&](Program& program, std::int64_t c, std::int64_t slot) {
        Round copies;
        for (int k = 0; k < p; ++k) {
          const int r = wrap(rank + k, p);
          const Block b = chunks.of(blocks.from(r), c);
          const Span there = of(r, rank, room({slot + rank * chunks.piece, b.count}));
          copies.push_back(copy(out(b), k == 0 ? in(chunks.of(blocks.at_sender(rank), c)) : there));
        }
        add(program, std::move(copies));
      });
}

inline Program staged_slices_broadcast(const Problem& problem) {
  const int rank = problem.rank, root = problem.root;
  const Block all{0, problem.counts[0]};
  const StagedChunks chunks(problem, all.count, 1);
  return staged(
      problem, chunks,
      [&](std::int64_t c, std::int64_t slot) {
        const Block here = chunks.of(all, c);
        return rank == root ? Round{copy(room({slot, here.count}), in(here))} : Round{};
      },
      [&](Program& program, std::int64_t c, std::int64_t slot) {
        const Block here = chunks.of(all, c);
        add(program,
            {copy(out(here), rank == root ? in(here) : of(root, rank, room({slot, here.count})))});
      });
}

inline Program staged_slices_scatter(const Problem& problem) {
  const int p = problem.world, rank = problem.rank, root = problem.root;
  const Blocks block(problem.counts);
  const StagedChunks chunks(problem, longest_of(problem), p);
  return staged(
      problem, chunks,
      [&](std::int64_t c, std::int64_t slot) {
        const auto of_rank = [&](int r) { return block[r]; };
        return rank == root ? pieces_for_others(problem, chunks, c, slot, of_rank) : Round{};
      },
      [&](Program& program, std::int64_t c, std::int64_t slot) {
        const Block mine = chunks.of(block[rank], c);
        const Span there = of(root, rank, room({slot + rank * chunks.piece, mine.count}));
        add(program,
            {copy(out({mine.at - block[rank].at, mine.count}), rank == root ? in(mine) : there)});
      });
}

// For the worst of ranks; additions are those of its slices or blocks.
inline ClosedForm costs_of_staged_slices(const Problem& problem) {
  const Terms t(problem);
  if (t.p == 1) return {{}, true};
  const Collective what = problem.what;
  const bool blocks = problem.counts.size() > 1;
  const bool pieces = what == Collective::reduce_scatter || what == Collective::all_to_all ||
                      what == Collective::scatter;
  const std::int64_t longest = longest_of(problem);
  const StagedChunks chunks(problem, longest, pieces ? t.p : 1);
  const bool sliced = what == Collective::all_reduce || what == Collective::reduce;
  Cost cost{1 + chunks.count * (sliced && t.p > 2 ? 2 : 1), 0, 0, 0};
  if (what == Collective::reduce_scatter) cost.reduced = longest * t.others;
  for (std::int64_t c = 0; sliced && c < chunks.count; ++c) {
    const std::int64_t here = chunks.of({0, t.n}, c).count;
    cost.reduced +=
        t.p == 2 ? here : Blocks::balanced(here, t.p, problem.align).largest() * t.others;
  }
  return {cost, blocks || sliced || what == Collective::broadcast};
}

constexpr Entry staged_slices_entry(Collective what, Algorithm make) {
  return {.what = what,
          .name = "staged_slices",
          .make = make,
          .costs = costs_of_staged_slices,
          .pipelined = true,
          .one_sided = true,
          .at_once = true};
}

}  // namespace peal::comm

// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/algorithms/bidirectional_ring.h>
#include <peal/comm/algorithms/binomial_broadcast.h>
#include <peal/comm/algorithms/binomial_gather.h>
#include <peal/comm/algorithms/binomial_reduce.h>
#include <peal/comm/algorithms/bruck.h>
#include <peal/comm/algorithms/chain.h>
#include <peal/comm/algorithms/circulant.h>
#include <peal/comm/algorithms/direct.h>
#include <peal/comm/algorithms/direct_reduction.h>
#include <peal/comm/algorithms/direct_slices.h>
#include <peal/comm/algorithms/dissemination_barrier.h>
#include <peal/comm/algorithms/double_tree.h>
#include <peal/comm/algorithms/hierarchical.h>
#include <peal/comm/algorithms/neighbor_exchange.h>
#include <peal/comm/algorithms/pairwise.h>
#include <peal/comm/algorithms/rabenseifner.h>
#include <peal/comm/algorithms/recursive_doubling.h>
#include <peal/comm/algorithms/ring.h>
#include <peal/comm/algorithms/scatter_broadcast.h>
#include <peal/comm/algorithms/signals_barrier.h>
#include <peal/comm/algorithms/slots.h>
#include <peal/comm/algorithms/staged_slices.h>
#include <peal/comm/algorithms/swing.h>
#include <peal/comm/algorithms/table.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace peal::comm {
namespace {

// The first entry of a collective is its default.
constexpr Entry entries[] = {
    ring_all_reduce_entry,
    bidirectional_ring_all_reduce_entry,
    recursive_doubling_all_reduce_entry,
    rabenseifner_all_reduce_entry,
    circulant_all_reduce_entry,
    swing_all_reduce_entry,
    binomial_all_reduce_entry,
    double_tree_all_reduce_entry,
    hierarchical_all_reduce_entry,
    direct_all_reduce_entry,
    binomial_reduce_entry,
    chain_reduce_entry,
    direct_reduce_entry,
    binomial_broadcast_entry,
    scatter_ring_broadcast_entry,
    chain_broadcast_entry,
    ring_all_gather_entry,
    recursive_doubling_all_gather_entry,
    bruck_all_gather_entry,
    circulant_all_gather_entry,
    neighbor_exchange_all_gather_entry,
    ring_reduce_scatter_entry,
    recursive_halving_reduce_scatter_entry,
    pairwise_reduce_scatter_entry,
    circulant_reduce_scatter_entry,
    direct_reduce_scatter_entry,
    binomial_gather_entry,
    direct_gather_entry,
    binomial_scatter_entry,
    direct_scatter_entry,
    pairwise_all_to_all_entry,
    bruck_all_to_all_entry,
    dissemination_barrier_entry,
};

constexpr Entry one_sided[] = {
    direct_slices_entry(Collective::all_reduce, direct_slices_all_reduce),
    staged_slices_entry(Collective::all_reduce, staged_slices_all_reduce),
    slots_entry(Collective::all_reduce, slots_all_reduce),
    hierarchical_direct_entry,
    hierarchical_staged_entry,
    direct_slices_entry(Collective::reduce, direct_slices_reduce),
    staged_slices_entry(Collective::reduce, staged_slices_reduce),
    slots_entry(Collective::reduce, slots_reduce),
    direct_slices_entry(Collective::broadcast, direct_slices_broadcast),
    staged_slices_entry(Collective::broadcast, staged_slices_broadcast),
    slots_entry(Collective::broadcast, slots_by<staged_slices_broadcast>),
    direct_slices_entry(Collective::all_gather, direct_slices_all_gather),
    staged_slices_entry(Collective::all_gather, staged_slices_all_gather),
    slots_entry(Collective::all_gather, slots_by<staged_slices_all_gather>),
    direct_slices_entry(Collective::reduce_scatter, direct_slices_reduce_scatter),
    staged_slices_entry(Collective::reduce_scatter, staged_slices_reduce_scatter),
    slots_entry(Collective::reduce_scatter, slots_by<staged_slices_reduce_scatter>),
    direct_slices_entry(Collective::gather, direct_slices_gather),
    staged_slices_entry(Collective::gather, staged_slices_gather),
    slots_entry(Collective::gather, slots_by<staged_slices_gather>),
    direct_slices_entry(Collective::scatter, direct_slices_scatter),
    staged_slices_entry(Collective::scatter, staged_slices_scatter),
    slots_entry(Collective::scatter, slots_by<staged_slices_scatter>),
    direct_slices_entry(Collective::all_to_all, direct_slices_all_to_all),
    staged_slices_entry(Collective::all_to_all, staged_slices_all_to_all),
    slots_entry(Collective::all_to_all, slots_by<staged_slices_all_to_all>),
    signals_barrier_entry,
};

}  // namespace

std::span<const Entry> algorithms() { return entries; }
std::span<const Entry> one_sided_algorithms() { return one_sided; }

std::vector<Entry> all_algorithms() {
  std::vector<Entry> all(std::begin(entries), std::end(entries));
  all.insert(all.end(), std::begin(one_sided), std::end(one_sided));
  return all;
}

const Entry* find(Collective what, std::string_view name) {
  for (const std::span<const Entry> table : {algorithms(), one_sided_algorithms()}) {
    const auto found = std::ranges::find_if(
        table, [&](const Entry& entry) { return entry.what == what && entry.name == name; });
    if (found != table.end()) return &*found;
  }
  return nullptr;
}

Program plan(const Entry& entry, const Problem& problem) {
  validate(problem);
  const std::string who = std::string(name(entry.what)) + " by " + std::string(entry.name);
  if (problem.what != entry.what) {
    throw std::invalid_argument(who + ": got a problem of " + std::string(name(problem.what)));
  }
  if (!entry.supports(problem.world)) {
    throw std::invalid_argument(who + ": no plan for a world of " + std::to_string(problem.world));
  }
  return entry.make(problem);
}

}  // namespace peal::comm

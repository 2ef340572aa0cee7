// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/algorithms/bidirectional_ring.h>
#include <peal/comm/algorithms/binomial_broadcast.h>
#include <peal/comm/algorithms/binomial_gather.h>
#include <peal/comm/algorithms/binomial_reduce.h>
#include <peal/comm/algorithms/bruck.h>
#include <peal/comm/algorithms/chain.h>
#include <peal/comm/algorithms/circulant.h>
#include <peal/comm/algorithms/direct.h>
#include <peal/comm/algorithms/direct_slices.h>
#include <peal/comm/algorithms/dissemination_barrier.h>
#include <peal/comm/algorithms/double_tree.h>
#include <peal/comm/algorithms/hierarchical.h>
#include <peal/comm/algorithms/pairwise.h>
#include <peal/comm/algorithms/rabenseifner.h>
#include <peal/comm/algorithms/recursive_doubling.h>
#include <peal/comm/algorithms/ring.h>
#include <peal/comm/algorithms/scatter_broadcast.h>
#include <peal/comm/algorithms/swing.h>
#include <peal/comm/algorithms/table.h>

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

namespace peal::comm {
namespace {

bool any_world(int) { return true; }
bool power_of_two(int world) { return std::has_single_bit(static_cast<unsigned>(world)); }

constexpr Entry entries[] = {
    {Collective::all_reduce, "ring", ring_all_reduce, any_world},
    {Collective::all_reduce, "bidirectional_ring", bidirectional_ring_all_reduce, any_world},
    {Collective::all_reduce, "recursive_doubling", recursive_doubling_all_reduce, any_world},
    {Collective::all_reduce, "rabenseifner", rabenseifner_all_reduce, any_world},
    {Collective::all_reduce, "circulant", circulant_all_reduce, any_world},
    {Collective::all_reduce, "swing", swing_all_reduce, power_of_two},
    {Collective::all_reduce, "binomial", binomial_all_reduce, any_world},
    {Collective::all_reduce, "double_tree", double_tree_all_reduce, any_world},
    {Collective::all_reduce, "hierarchical", hierarchical_all_reduce, any_world},
    {Collective::reduce, "binomial", binomial_reduce, any_world},
    {Collective::reduce, "chain", chain_reduce, any_world},
    {Collective::broadcast, "binomial", binomial_broadcast, any_world},
    {Collective::broadcast, "scatter_ring", scatter_ring_broadcast, any_world},
    {Collective::broadcast, "chain", chain_broadcast, any_world},
    {Collective::all_gather, "ring", ring_all_gather, any_world},
    {Collective::all_gather, "recursive_doubling", recursive_doubling_all_gather, power_of_two},
    {Collective::all_gather, "bruck", bruck_all_gather, any_world},
    {Collective::all_gather, "circulant", circulant_all_gather, any_world},
    {Collective::reduce_scatter, "ring", ring_reduce_scatter, any_world},
    {Collective::reduce_scatter, "recursive_halving", recursive_halving_reduce_scatter,
     power_of_two},
    {Collective::reduce_scatter, "pairwise", pairwise_reduce_scatter, any_world},
    {Collective::reduce_scatter, "circulant", circulant_reduce_scatter, any_world},
    {Collective::gather, "binomial", binomial_gather, any_world},
    {Collective::gather, "direct", direct_gather, any_world},
    {Collective::scatter, "binomial", binomial_scatter, any_world},
    {Collective::scatter, "direct", direct_scatter, any_world},
    {Collective::all_to_all, "pairwise", pairwise_all_to_all, any_world},
    {Collective::all_to_all, "bruck", bruck_all_to_all, any_world},
    {Collective::barrier, "dissemination", dissemination_barrier, any_world},
};

constexpr Entry one_sided[] = {
    {Collective::all_reduce, "direct_slices", direct_slices_all_reduce, any_world},
};

}  // namespace

std::span<const Entry> algorithms() { return entries; }
std::span<const Entry> one_sided_algorithms() { return one_sided; }

const Entry* find(Collective what, std::string_view name) {
  const auto found = std::ranges::find_if(
      entries, [&](const Entry& entry) { return entry.what == what && entry.name == name; });
  return found == std::end(entries) ? nullptr : found;
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

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/permute.h>
#include <peal/launch/training/across_processes.h>

#include <cstddef>
#include <sstream>
#include <string>

namespace peal::launch {
namespace {

// Everyone's number, by rank; or an Error on all ranks where one has a `fault`, or where the ranks'
// descriptions differ.
std::vector<std::int64_t> agreed_numbers(const comm::ProcessGroup& group, std::int64_t mine,
                                         const std::string& described, const std::string& fault) {
  const auto words =
      group.all_gather_object(fault.empty() ? concat(mine, ' ', described) : fault + '\n');
  std::vector<std::int64_t> numbers;
  std::vector<std::string> descriptions;
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    const std::string& word = words[rank];
    PEAL_CHECK(word.empty() || word.back() != '\n', "[launch] rank ", rank, ": ",
               word.substr(0, word.size() - 1));
    const std::size_t blank = word.find(' ');
    numbers.push_back(std::stoll(word.substr(0, blank)));
    descriptions.push_back(word.substr(blank + 1));
    PEAL_CHECK(descriptions[rank] == descriptions[0], "[launch] rank 0 has a tensor ",
               descriptions[0], ", and rank ", rank, " one ", descriptions[rank],
               ": they may differ in the size * alone");
  }
  return numbers;
}

// "f32 [4, *, 3]".
std::string type_and_sizes(const Tensor& tensor, int dim) {
  std::string sizes;
  for (int d = 0; d < tensor.dim(); ++d) {
    sizes += (d > 0 ? ", " : "") + (d == dim ? std::string("*") : std::to_string(tensor.size(d)));
  }
  return concat(tensor.dtype(), " [", sizes, "]");
}

Tensor padded_to(const Tensor& tensor, int dim, std::int64_t size, double value, bool first) {
  if (tensor.size(dim) == size) return tensor;
  std::vector<std::int64_t> shape(tensor.shape().begin(), tensor.shape().end());
  shape[static_cast<std::size_t>(dim)] = size - tensor.size(dim);
  const Tensor padding = full(Shape(shape), value, tensor.dtype(), tensor.device());
  return first ? cat({padding, tensor}, dim) : cat({tensor, padding}, dim);
}

// Along dim 0, each already as long as the others'.
Tensor gathered(const comm::ProcessGroup& group, const Tensor& mine) {
  std::vector<std::int64_t> shape(mine.shape().begin(), mine.shape().end());
  shape[0] *= group.world();
  Tensor all = Tensor::empty(Shape(shape), mine.dtype(), mine.device());
  group.all_gather(all, mine).wait();
  return all;
}

// A rank without a sample has no tensor, and needs one of no rows that looks like the others'.
Tensor joined_rows(const comm::ProcessGroup& group, const Tensors& parts) {
  const Tensor mine = parts.empty() ? Tensor() : cat(parts);
  if (group.world() == 1) return mine;
  std::string words;  // the type, and sizes behind the rows
  if (mine.defined()) {
    words = std::to_string(static_cast<int>(mine.dtype()));
    for (int d = 1; d < mine.dim(); ++d) words += ' ' + std::to_string(mine.size(d));
  }
  for (const std::string& theirs : group.all_gather_object(words)) {
    if (theirs.empty() || mine.defined()) continue;
    std::istringstream numbers(theirs);
    int dtype = 0;
    numbers >> dtype;
    std::vector<std::int64_t> shape{0};
    for (std::int64_t size = 0; numbers >> size;) shape.push_back(size);
    return Tensor::empty(Shape(shape), static_cast<DType>(dtype), Device{});
  }
  return mine;
}

}  // namespace

std::pair<std::int64_t, std::int64_t> share_of(std::int64_t count, Place place) {
  const auto [rank, world] = place;
  PEAL_CHECK(world >= 1 && rank >= 0 && rank < world,
             "[launch] split_between_processes: expected a rank below its world, got rank ", rank,
             " of ", world);
  PEAL_CHECK(count >= 0, "[launch] split_between_processes: expected a count of at least 0, got ",
             count);
  const auto begin_of = [&](std::int64_t r) {
    return r * (count / world) + std::min<std::int64_t>(r, count % world);
  };
  return {begin_of(rank), begin_of(rank + 1)};
}

Tensor split_between_processes(const Tensor& all, Place place, bool apply_padding) {
  PEAL_CHECK(all.dim() >= 1, "[launch] split_between_processes: expected a tensor [n, ...], got ",
             all.shape());
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < all.size(0); ++row) rows.push_back(row);
  rows = split_between_processes(rows, place, apply_padding);
  return index_select(all, 0, Tensor::from(rows, {std::ssize(rows)}, all.device()));
}

Tensor pad_across_processes(const comm::ProcessGroup& group, const Tensor& tensor, int dim,
                            double value, bool pad_first) {
  const int at = dim < 0 ? dim + tensor.dim() : dim;
  const bool fits = at >= 0 && at < tensor.dim();
  const auto sizes = agreed_numbers(
      group, fits ? tensor.size(at) : 0, type_and_sizes(tensor, at),
      fits ? "" : concat("pad_across_processes: a tensor ", tensor.shape(), " has no dim ", dim));
  return padded_to(tensor, at, *std::max_element(sizes.begin(), sizes.end()), value, pad_first);
}

Tensor gather_in_order(const comm::ProcessGroup& group, const Tensor& rows,
                       std::span<const std::int64_t> places) {
  const NoGrad guard;
  const bool fits = rows.dim() >= 1 && rows.size(0) == std::ssize(places);
  const auto sizes =
      agreed_numbers(group, std::ssize(places), type_and_sizes(rows, 0),
                     fits ? ""
                          : concat("gather_in_order: expected a place for each row of a tensor ",
                                   rows.shape(), ", got ", places.size()));
  const std::int64_t most = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::int64_t> mine(places.begin(), places.end());
  mine.resize(static_cast<std::size_t>(most), -1);
  const Tensor all = most > 0 ? gathered(group, padded_to(rows, 0, most, 0, false)) : rows;
  const auto all_places =
      most > 0 ? gathered(group, Tensor::from(mine, {most}, Device{})).to_vector<std::int64_t>()
               : mine;
  std::vector<std::pair<std::int64_t, std::int64_t>> order;  // place, row
  for (std::size_t row = 0; row < all_places.size(); ++row) {
    if (all_places[row] >= 0) order.emplace_back(all_places[row], std::int64_t(row));
  }
  std::sort(order.begin(), order.end());
  std::vector<std::int64_t> chosen;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto [place, row] = order[i];
    PEAL_CHECK(i == 0 || order[i - 1].first != place, "[launch] gather_in_order: place ", place,
               " of the order has two rows, of rank ", order[i - 1].second / most, " and of rank ",
               row / most,
               "; are they of one epoch, and of loaders with the shards of their ranks?");
    chosen.push_back(row);
  }
  return index_select(all, 0, Tensor::from(chosen, {std::ssize(chosen)}, all.device()));
}

Tensor gather_in_order(const comm::ProcessGroup& group, const std::vector<Tensor>& parts,
                       const std::vector<std::int64_t>& places) {
  const Tensor rows = joined_rows(group, parts);
  return rows.defined() ? gather_in_order(group, rows, places) : rows;
}

}  // namespace peal::launch

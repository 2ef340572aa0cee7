// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/rng.h>
#include <peal/data/concat_dataset.h>
#include <peal/data/rows.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace peal::data {
namespace {

std::string words_of_rows(const Tensor& rows) {
  return rows.defined() ? concat(rows.dtype(), " ", shape_of_row(rows)) : std::string("none");
}

// The rows of one name: those of set `k` go to `at` of `all`, which is made by the first.
void put_column(Tensor& all, bool first, std::string_view name, const Tensor& rows,
                std::span<const std::int64_t> at, std::int64_t count, std::size_t k) {
  PEAL_CHECK(!rows.defined() ||
                 (rows.dim() >= 1 && rows.size(0) == std::ssize(at) && rows.device() == Device{}),
             "[data] concat: expected '", name, "' of ", at.size(), " rows from set ", k,
             ", one a sample, on the CPU, got ", rows.dtype(), " ", rows.shape(), " on ",
             rows.device(), "; does its Collate leave samples out?");
  if (first && rows.defined()) all = room_for(count, shape_of_row(rows), rows.dtype());
  const bool alike =
      all.defined() == rows.defined() &&
      (!all.defined() || (all.dtype() == rows.dtype() && shape_of_row(all) == shape_of_row(rows)));
  PEAL_CHECK(alike, "[data] concat: samples of set ", k, " have '", name, "' ", words_of_rows(rows),
             ", those of a set before ", words_of_rows(all),
             "; samples that are put together have one type and shape");
  if (rows.defined()) put_rows(all, at, rows);
}

// Of a set whose first sample is number `first`. A number of the set would do for one
// ConcatDataset; in one of others, set 1 of set 0 and set 0 of set 1 would draw alike, and so would
// their images.
std::uint64_t seed_from(std::uint64_t seed, std::int64_t first) {
  if (first == 0) return seed;
  constexpr std::uint64_t eighth = std::uint64_t{1} << 61;  // apart from those of draw.h
  const PhiloxBlock block = philox(seed, eighth + static_cast<std::uint64_t>(first));
  return std::uint64_t{block.word[0]} << 32 | block.word[1];
}

}  // namespace

ConcatDataset::ConcatDataset(std::vector<DatasetRef> sets) : sets_(std::move(sets)) {
  PEAL_CHECK(!sets_.empty(), "[data] concat: expected at least one data set, got none");
  std::int64_t end = 0;
  for (const DatasetRef& set : sets_) {
    PEAL_CHECK(set, "[data] concat: data set ", ends_.size(), " is null");
    ends_.push_back(end += set->size());
  }
}

template <class Make>
Batch ConcatDataset::put_together(std::span<const std::int64_t> indices, const Make& make) const {
  std::vector<std::vector<std::int64_t>> own(sets_.size()), at(sets_.size());
  for (std::size_t i = 0; i < indices.size(); ++i) {
    check_index("concat", indices[i], size());
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), indices[i]);
    const auto k = static_cast<std::size_t>(end - ends_.begin());
    own[k].push_back(indices[i] - (k == 0 ? 0 : ends_[k - 1]));
    at[k].push_back(static_cast<std::int64_t>(i));
  }
  std::optional<Batch> all;
  for (std::size_t k = 0; k < sets_.size(); ++k) {
    if (own[k].empty() && !(k + 1 == sets_.size() && !all)) continue;
    Batch part = make(k, own[k]);
    if (own[k].size() == indices.size()) return part;  // of one set alone
    const bool first = !all;
    if (first) {
      all.emplace();
      for (const auto& [name, rows] : part.more) all->more.emplace_back(name, Tensor());
    }
    PEAL_CHECK(all->more.size() == part.more.size(), "[data] concat: samples of set ", k,
               " have other names than those of a set before; give all the same, in one order");
    put_column(all->x, first, "x", part.x, at[k], std::ssize(indices), k);
    put_column(all->y, first, "y", part.y, at[k], std::ssize(indices), k);
    for (std::size_t j = 0; j < part.more.size(); ++j) {
      const auto& [name, rows] = part.more[j];
      PEAL_CHECK(all->more[j].first == name, "[data] concat: samples of set ", k, " have '", name,
                 "' where those of a set before have '", all->more[j].first,
                 "'; give all the same names, in one order");
      put_column(all->more[j].second, first, name, rows, at[k], std::ssize(indices), k);
    }
  }
  return std::move(*all);
}

Batch ConcatDataset::get(std::span<const std::int64_t> indices) const {
  return put_together(indices, [&](std::size_t k, std::span<const std::int64_t> own) {
    return sets_[k]->get(own);
  });
}

Batch ConcatDataset::augmented(std::span<const std::int64_t> indices, const Draws& draws) const {
  return put_together(indices, [&](std::size_t k, std::span<const std::int64_t> own) {
    return sets_[k]->augmented(
        own, Draws{seed_from(draws.seed, ends_[k] - sets_[k]->size()), draws.epoch});
  });
}

}  // namespace peal::data

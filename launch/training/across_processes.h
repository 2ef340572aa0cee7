// SPDX-License-Identifier: Apache-2.0
// What programs do across their ranks beside training (Accelerate: split_between_processes,
// pad_across_processes, gather_for_metrics): share out a list of things, and bring together what
// each rank found, though ranks have not equally many.
//
//   for (const std::string& text : launch::split_between_processes(texts, job.place())) ...
//
//   while (const auto batch = loader.next()) {     // of any shard or way (data/loader.h)
//     for (const std::int64_t place : loader.places()) places.push_back(place);
//     found.push_back(model(batch->x));
//   }
//   const Tensor all = launch::gather_in_order(job.group(), cat(found), places);
//
// Thread safety: as of the group; split_between_processes is a pure function.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/autograd/core/place.h>
#include <peal/autograd/core/tensor.h>
#include <peal/comm/group/process_group.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace peal::launch {

// Which of `count` things are this rank's, begin and end: 17 over 4 are 5, 4, 4 and 4. Error: a
// place outside of its world, count < 0.
std::pair<std::int64_t, std::int64_t> share_of(std::int64_t count, Place place);

// This rank's share of a list, in order. With apply_padding the last of all is repeated, until each
// rank has as many as rank 0: A, B, C over 2 are A, B and C, C.
template <class T>
std::vector<T> split_between_processes(const std::vector<T>& all, Place place,
                                       bool apply_padding = false) {
  const auto [begin, end] = share_of(std::ssize(all), place);
  std::vector<T> mine(all.begin() + begin, all.begin() + end);
  const auto most = static_cast<std::size_t>(share_of(std::ssize(all), {0, place.world}).second);
  if (apply_padding && mine.size() < most) mine.resize(most, all.back());
  return mine;
}
// The same of the rows of a tensor [n, ...]. Error for one of no dimension.
Tensor split_between_processes(const Tensor& all, Place place, bool apply_padding = false);

// The tensor made as long along `dim` as the longest of the ranks' by elements of `value`,
// in the tensor's unit, behind it, or with pad_first before it. Collective. Errors, on all ranks:
// tensors of other types, or whose other sizes differ.
Tensor pad_across_processes(const comm::ProcessGroup& group, const Tensor& tensor, int dim = 0,
                            double value = 0, bool pad_first = false);

// All ranks' rows [n, ...] by their places (data::DataLoader::places()): those of place -1 are left
// out, and the others stand in the order of one rank, the same on every rank. Ranks may have
// different numbers of rows, none for one. To be called after each batch where all ranks have
// equally many batches, or once for an epoch. Collective. Errors, on all ranks: as of
// pad_across_processes(), not a place for each row, two rows for one place.
Tensor gather_in_order(const comm::ProcessGroup& group, const Tensor& rows,
                       std::span<const std::int64_t> places);
// The same of parts (those of each batch, say). A rank without one has rows as the others have, and
// no tensor comes where no rank has any. For one call an epoch.
Tensor gather_in_order(const comm::ProcessGroup& group, const std::vector<Tensor>& parts,
                       const std::vector<std::int64_t>& places);

}  // namespace peal::launch

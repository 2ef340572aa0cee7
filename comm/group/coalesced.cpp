// SPDX-License-Identifier: Apache-2.0
// Collectives over lists of tensors: those of one type are packed into one buffer, which travels as
// one operation, and unpacked from it.
#include <peal/comm/group/group_body.h>
#include <peal/comm/reduce/reduce_op.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace peal::comm {
namespace {

// The types of a list, in the order in which they come first.
std::vector<DType> types_of(const std::vector<View>& list) {
  std::vector<DType> types;
  for (const View& view : list) {
    if (std::find(types.begin(), types.end(), view.dtype) == types.end()) {
      types.push_back(view.dtype);
    }
  }
  return types;
}

std::vector<View> joined(std::vector<View> list, const std::vector<View>& more) {
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

// `whole` is world times `part`, tensor by tensor.
void check_lists(const std::vector<View>& whole, const std::vector<View>& part, int world,
                 std::string_view what, std::string_view whole_name, std::string_view part_name) {
  PEAL_CHECK(whole.size() == part.size(), what, ": ", whole_name, " has ", whole.size(),
             " tensors, ", part_name, " ", part.size());
  for (std::size_t k = 0; k < whole.size(); ++k) {
    PEAL_CHECK(whole[k].dtype == part[k].dtype, what, ": tensor ", k, " of ", whole_name, " is ",
               whole[k].dtype, ", of ", part_name, " ", part[k].dtype);
    PEAL_CHECK(whole[k].count == part[k].count * world, what, ": tensor ", k, " of ", whole_name,
               " expected ", part[k].count * world, " elements, ", world, " times those of ",
               part_name, ", got ", whole[k].count);
  }
}

// Tensors of one type, those that ranks have in `part` and all of them together in `whole`. A
// buffer that carries them has a block for each rank, in which the tensors follow one another.
struct Packing {
  std::vector<Piece> part, whole;
  std::int64_t block = 0;  // elements

  Packing(const std::vector<View>& parts, const std::vector<View>& wholes, DType dtype, int world) {
    for (std::size_t k = 0; k < parts.size(); ++k) {
      if (parts[k].dtype != dtype) continue;
      part.push_back({parts[k], block});
      block += parts[k].count;
    }
    std::int64_t at = 0;
    for (std::size_t k = 0; k < wholes.size(); ++k) {
      if (wholes[k].dtype != dtype) continue;
      const std::int64_t count = parts[k].count;
      for (int r = 0; r < world; ++r) {
        whole.push_back({wholes[k].part(r * count, count), r * block + at});
      }
      at += count;
    }
  }
};

// A buffer for tensors of these: where the transport moves them, and page-locked where they are
// copied to it.
View packed(const GroupBody& group, const std::vector<View>& list, std::int64_t count,
            DType dtype) {
  CollectiveCall call;
  bool away = false;
  for (const View& view : list) {
    if (view.dtype != dtype) continue;
    call.gathered.push_back({view});
    away = away || view.device().type != DeviceType::cpu;
  }
  Transport& transport = group.route(call);
  if (away && transport.device().type == DeviceType::cpu) return Tensor::pinned({count}, dtype);
  return Tensor::empty({count}, dtype, transport.device());
}

}  // namespace

Work ProcessGroup::all_reduce_coalesced(const std::vector<View>& data, ReduceOp op,
                                        const Label& label) const {
  PEAL_CHECK(op != ReduceOp::premul_sum,
             "all_reduce_coalesced: premul_sum needs a factor; use all_reduce_premultiplied");
  for (const View& view : data) check_reduction(view.dtype, op);  // before any of them starts
  std::vector<Work> works;
  for (const DType dtype : types_of(data)) {
    Packing packing(data, {}, dtype, world());
    const View buffer = packed(body(), data, packing.block, dtype);
    works.push_back(body().start({.what = Collective::all_reduce,
                                  .in = buffer,
                                  .out = buffer,
                                  .op = op,
                                  .counts = {packing.block},
                                  .gathered = packing.part,
                                  .scattered = packing.part},
                                 label));
  }
  return Work::all(std::move(works));
}

Work ProcessGroup::broadcast_coalesced(const std::vector<View>& data, int root,
                                       const Label& label) const {
  std::vector<Work> works;
  for (const DType dtype : types_of(data)) {
    Packing packing(data, {}, dtype, world());
    const View buffer = packed(body(), data, packing.block, dtype);
    works.push_back(body().start({.what = Collective::broadcast,
                                  .in = buffer,
                                  .out = buffer,
                                  .root = root,
                                  .counts = {packing.block},
                                  .gathered = packing.part,
                                  .scattered = packing.part},
                                 label));
  }
  return Work::all(std::move(works));
}

Work ProcessGroup::all_gather_coalesced(const std::vector<View>& out, const std::vector<View>& in,
                                        const Label& label) const {
  check_lists(out, in, world(), "all_gather_coalesced", "out", "in");
  std::vector<Work> works;
  for (const DType dtype : types_of(in)) {
    Packing packing(in, out, dtype, world());
    const View buffer = packed(body(), joined(in, out), packing.block * world(), dtype);
    works.push_back(body().start(
        {.what = Collective::all_gather,
         .in = buffer.part(rank() * packing.block, packing.block),
         .out = buffer,
         .counts = std::vector<std::int64_t>(static_cast<std::size_t>(world()), packing.block),
         .gathered = std::move(packing.part),
         .scattered = std::move(packing.whole)},
        label));
  }
  return Work::all(std::move(works));
}

Work ProcessGroup::reduce_scatter_coalesced(const std::vector<View>& out,
                                            const std::vector<View>& in, ReduceOp op,
                                            const Label& label) const {
  PEAL_CHECK(op != ReduceOp::premul_sum, "reduce_scatter_coalesced: premul_sum needs a factor");
  check_lists(in, out, world(), "reduce_scatter_coalesced", "in", "out");
  for (const View& view : in) check_reduction(view.dtype, op);
  std::vector<Work> works;
  for (const DType dtype : types_of(out)) {
    Packing packing(out, in, dtype, world());
    const View buffer = packed(body(), joined(in, out), packing.block * world(), dtype);
    works.push_back(body().start(
        {.what = Collective::reduce_scatter,
         .in = buffer,
         .out = buffer.part(rank() * packing.block, packing.block),
         .op = op,
         .counts = std::vector<std::int64_t>(static_cast<std::size_t>(world()), packing.block),
         .gathered = std::move(packing.whole),
         .scattered = std::move(packing.part)},
        label));
  }
  return Work::all(std::move(works));
}

}  // namespace peal::comm

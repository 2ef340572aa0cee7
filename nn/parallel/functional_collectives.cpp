// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/tape.h>
#include <peal/comm/group/in_stream.h>
#include <peal/comm/schedule/mix.h>
#include <peal/nn/parallel/announce.h>
#include <peal/nn/parallel/even_share.h>
#include <peal/nn/parallel/functional_collectives.h>

#include <cstdint>
#include <string>

namespace peal::nn {
namespace {

std::string_view who_calls(std::string_view name) { return name.empty() ? "peal::nn" : name; }

// A call, whose name is its own on each way; wrappers over the group hear of it first, whose
// buckets are sent at the same places among such calls on all ranks.
class TapeCall {
 public:
  TapeCall(const comm::ProcessGroup& group, std::string_view name, std::string_view what)
      : text_(concat(who_calls(name), ", ", what)) {
    for (const char c : text_) comm::mix(tag_, static_cast<unsigned char>(c));
    call_before_layer(group, text_);
  }
  comm::Label label() const { return {text_, tag_}; }

 private:
  std::string text_;
  std::uint64_t tag_ = 0;
};

Tensor empty_like_it(const Tensor& x, const Shape& shape) {
  return Tensor::empty(shape, x.dtype(), x.device());
}

}  // namespace

Tensor all_reduce(const Tensor& x, const comm::ProcessGroup& group, comm::ReduceOp op,
                  std::string_view name) {
  PEAL_CHECK(op == comm::ReduceOp::sum || op == comm::ReduceOp::avg, who_calls(name),
             ": all_reduce: expected sum or avg, got ", comm::name(op),
             ", which has no gradient here; give it a detach() by group.all_reduce()");
  if (group.world() == 1) return x;
  const Tensor y = empty_like_it(x, x.shape());
  {
    const TapeCall call(group, name, "all_reduce");
    const comm::InStream stays;
    group.all_reduce(y.view(), x.detach().view(), op, call.label()).wait();
  }
  return record("all_reduce", y, {x}, [group, op, name = std::string(name)](const Tensor& g) {
    return all_reduce(g, group, op, name);
  });
}

Tensor all_gather(const Tensor& x, const comm::ProcessGroup& group, int dim,
                  std::string_view name) {
  const int at = dim_from_front(x, dim, who_calls(name));
  if (group.world() == 1) return x;
  const Tensor mine = x.detach();
  const Tensor all = empty_like_it(x, {group.world() * mine.numel()});
  {
    const TapeCall call(group, name, "all_gather");
    const comm::InStream stays;
    group.all_gather(all.view(), mine.view(), call.label()).wait();
  }
  Shape whole = x.shape();
  whole[at] *= group.world();
  Tensors parts;
  for (int r = 0; at > 0 && r < group.world(); ++r) {
    parts.push_back(all.detach(x.shape(), r * mine.numel()));
  }
  return record("all_gather", at == 0 ? all.detach(whole) : cat(parts, at), {x},
                [group, at, name = std::string(name)](const Tensor& g) {
                  return reduce_scatter(g, group, at, name);
                });
}

Tensor reduce_scatter(const Tensor& x, const comm::ProcessGroup& group, int dim,
                      std::string_view name) {
  const int at = dim_from_front(x, dim, who_calls(name));
  const std::int64_t part = even_share(x, at, group, who_calls(name));
  if (group.world() == 1) return x;
  // By rank: what is of one rank lies together.
  const Tensor by_rank = at == 0 ? x.detach() : cat(Tensors(split(x.detach(), part, at)), 0);
  Shape own = x.shape();
  own[at] = part;
  const Tensor mine = empty_like_it(x, own);
  {
    const TapeCall call(group, name, "reduce_scatter");
    const comm::InStream stays;
    group.reduce_scatter(mine.view(), by_rank.view(), comm::ReduceOp::sum, call.label()).wait();
  }
  return record("reduce_scatter", mine, {x},
                [group, at, name = std::string(name)](const Tensor& g) {
                  return all_gather(g, group, at, name);
                });
}

Tensor all_to_all(const Tensor& x, const comm::ProcessGroup& group, std::string_view name) {
  dim_from_front(x, 0, who_calls(name));
  even_share(x, 0, group, who_calls(name));
  if (group.world() == 1) return x;
  const Tensor y = empty_like_it(x, x.shape());
  {
    const TapeCall call(group, name, "all_to_all");
    const comm::InStream stays;
    group.all_to_all(y.view(), x.detach().view(), call.label()).wait();
  }
  return record("all_to_all", y, {x}, [group, name = std::string(name)](const Tensor& g) {
    return all_to_all(g, group, name);
  });
}

}  // namespace peal::nn

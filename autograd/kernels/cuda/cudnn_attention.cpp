// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cuda/cudnn_attention.h>

#ifdef PEAL_CUDNN_FRONTEND
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/cuda/relaxed.h>
#include <peal/autograd/core/graph.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/kernels/cuda/cudnn.h>
#include <peal/autograd/kernels/cuda/cudnn_attention_graph.h>

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <unordered_map>
#endif

namespace peal::cuda {

#ifdef PEAL_CUDNN_FRONTEND

namespace {

// Before, lengths that 128 does not divide were wrong.
constexpr std::size_t first_version = 91501;
constexpr int first_capability = 9;

// A plan takes 50 ms, or up to a second where its kernel is compiled for the first time, and saves
// a call less than 0.1 ms. So a geometry is planned when it comes again, which is within the two
// calls that a Graph warms up with, and after a thread's first 32 plans only when it has come so
// often that it pays.
constexpr int first_plans = 32, calls_for_a_first = 2, calls_for_more = 1000;

struct AttentionPlan {
  enum class State : std::uint8_t { waiting, made, refused };
  State state = State::waiting;
  int calls = 0;
  std::shared_ptr<AttentionGraph::Graph> graph;
  std::int64_t workspace = 0;
  bool stays() const { return graph != nullptr; }  // a captured graph may replay its kernels
};

// A thread's, for a device, with the handle that makes and executes them.
struct AttentionPlans {
  PlanCache<15, AttentionPlan> plans;
  int asked = 0;
};

AttentionPlans& attention_plans(Device device) {
  std::shared_ptr<void>& kept = cudnn_of_thread(device).attention_plans;
  if (!kept) kept = std::make_shared<AttentionPlans>();
  return *static_cast<AttentionPlans*>(kept.get());
}

using AttentionAddresses = std::unordered_map<std::int64_t, void*>;

std::string text_of(const AttentionLayout& layout) {
  const AttentionGeometry& o = layout.geometry;
  return concat(o.causal ? "causal " : "", layout.dtype, " attention ",
                layout.is_backward() ? "backward " : "", "[", o.batch, ", ", o.queries, " of ",
                o.keys, ", ", o.heads, " x ", o.width, "]");
}

void refuse(AttentionPlan& plan, const AttentionLayout& layout, const std::string& why) {
  plan.state = AttentionPlan::State::refused;
  log_line(LogLevel::debug,
           concat("cuda: peal's own kernels serve ", text_of(layout), ", as cuDNN says: ", why));
}

void make_plan(AttentionPlan& plan, const AttentionLayout& layout, cudnnHandle_t handle) {
  const auto start = std::chrono::steady_clock::now();
  try {
    const auto graph = AttentionGraph(layout)();
    auto status = graph->build(handle, {cudnn_frontend::HeurMode_t::A});
    if (status.is_bad()) return refuse(plan, layout, status.get_message());
    plan.workspace = graph->get_workspace_size();
    plan.graph = graph;
    plan.state = AttentionPlan::State::made;
  } catch (const std::exception& error) {
    return refuse(plan, layout, error.what());
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  log_line(LogLevel::debug, concat("cuda: cuDNN planned ", text_of(layout), " in ", took.count(),
                                   " ms, workspace ", plan.workspace, " bytes"));
}

AttentionPlan& plan_of(AttentionPlans& all, const AttentionLayout& layout) {
  const AttentionGeometry& o = layout.geometry;
  return all.plans.get({o.batch, o.heads, o.queries, o.keys, o.width, o.causal,
                        static_cast<std::int64_t>(layout.dtype), layout.q, layout.k, layout.v,
                        layout.y, layout.dy, layout.dq, layout.dk, layout.dv},
                       [](AttentionPlan&) {});
}

// Whether there is a plan, or one is to be made now.
bool is_due(AttentionPlan& plan, const AttentionPlans& all) {
  if (plan.state != AttentionPlan::State::waiting) return plan.state == AttentionPlan::State::made;
  return Graph::capturing() == nullptr &&
         ++plan.calls >= (all.asked < first_plans ? calls_for_a_first : calls_for_more);
}

void* address(const Tokens& x) {
  return static_cast<std::byte*>(x.data.raw()) +
         x.at * static_cast<std::int64_t>(size_of(x.data.dtype()));
}

// cuDNN does not look: on other boundaries it would read wrong values.
bool is_aligned(const Tokens& x) {
  return x.row % 8 == 0 && reinterpret_cast<std::uintptr_t>(address(x)) % 16 == 0;
}

// Of gradients that nobody wants: somewhere to write to.
std::int64_t bytes_of(const AttentionLayout& layout, std::int64_t operand) {
  const AttentionGeometry& o = layout.geometry;
  return o.batch * (operand == at_dq ? o.queries : o.keys) * o.heads * o.width *
         static_cast<std::int64_t>(size_of(layout.dtype));
}

// An address that is null is such a gradient's.
bool run_plan(const AttentionLayout& layout, Device device, AttentionAddresses addresses) {
  AttentionPlans& all = attention_plans(device);
  AttentionPlan& plan = plan_of(all, layout);
  if (!is_due(plan, all)) return false;
  const Relaxed relaxed;  // what a first call loads is no part of a captured graph
  cudnnHandle_t handle = nullptr;
  Tensors room;  // goes back at the end, to the stream that still uses it
  const auto take = [&](std::int64_t bytes) {
    return room.emplace_back(Tensor::empty({bytes}, DType::u8, device)).raw();
  };
  void* workspace = nullptr;
  try {
    handle = cudnn_on(device);
    if (plan.state == AttentionPlan::State::waiting) {
      ++all.asked;
      make_plan(plan, layout, handle);
    }
    if (plan.state != AttentionPlan::State::made) return false;
    for (auto& [operand, place] : addresses) {
      if (place == nullptr) place = take(bytes_of(layout, operand));
    }
    if (plan.workspace > 0) workspace = take(plan.workspace);
  } catch (const Error&) {
    return false;  // for this time: the own kernels want less memory
  }
  std::string why;
  try {
    auto status = plan.graph->execute(handle, addresses, workspace);
    if (status.is_good()) return true;
    why = status.get_message();
  } catch (const std::exception& error) {
    why = error.what();
  }
  refuse(plan, layout, why);
  return false;
}

}  // namespace

bool asks_cudnn_attention(const AttentionGeometry& o, DType dtype, Device device) {
  if (!is_low_precision(dtype) || o.width % 8 != 0 || o.width > 128) return false;
  if (cudnnGetVersion() < first_version) return false;
  int capability = 0;
  return cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, device.index) ==
             cudaSuccess &&
         capability >= first_capability;
}

bool cudnn_attention(const AttentionGeometry& o, const Tokens& y, const Tensor& sums,
                     const Tokens& q, const Tokens& k, const Tokens& v) {
  const Device device = y.data.device();
  if (context().deterministic || !asks_cudnn_attention(o, y.data.dtype(), device)) return false;
  for (const Tokens* x : {&y, &q, &k, &v}) {
    if (!is_aligned(*x)) return false;
  }
  return run_plan({o, y.data.dtype(), q.row, k.row, v.row, y.row}, device,
                  {{at_q, address(q)},
                   {at_k, address(k)},
                   {at_v, address(v)},
                   {at_y, address(y)},
                   {at_sums, sums.raw()}});
}

bool cudnn_attention_backward(const AttentionGeometry& o, const Tokens* dq, const Tokens* dk,
                              const Tokens* dv, const Tokens& dy, const Tokens& y,
                              const Tensor& sums, const Tokens& q, const Tokens& k,
                              const Tokens& v) {
  const DType dtype = dy.data.dtype();
  const Device device = dy.data.device();
  if (context().deterministic || !asks_cudnn_attention(o, dtype, device)) return false;
  for (const Tokens* x : {dq, dk, dv, &dy, &y, &q, &k, &v}) {
    if (x != nullptr && !is_aligned(*x)) return false;
  }
  const auto row_of = [&](const Tokens* x) { return x != nullptr ? x->row : o.heads * o.width; };
  const auto place_of = [](const Tokens* x) { return x != nullptr ? address(*x) : nullptr; };
  return run_plan(
      {o, dtype, q.row, k.row, v.row, y.row, dy.row, row_of(dq), row_of(dk), row_of(dv)}, device,
      {{at_q, address(q)},
       {at_k, address(k)},
       {at_v, address(v)},
       {at_y, address(y)},
       {at_sums, sums.raw()},
       {at_dy, address(dy)},
       {at_dq, place_of(dq)},
       {at_dk, place_of(dk)},
       {at_dv, place_of(dv)}});
}

#else

bool asks_cudnn_attention(const AttentionGeometry&, DType, Device) { return false; }
bool cudnn_attention(const AttentionGeometry&, const Tokens&, const Tensor&, const Tokens&,
                     const Tokens&, const Tokens&) {
  return false;
}
bool cudnn_attention_backward(const AttentionGeometry&, const Tokens*, const Tokens*, const Tokens*,
                              const Tokens&, const Tokens&, const Tensor&, const Tokens&,
                              const Tokens&, const Tokens&) {
  return false;
}

#endif

}  // namespace peal::cuda

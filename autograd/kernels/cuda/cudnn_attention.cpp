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
// a call less than 0.1 ms. So a geometry is planned when it has come 16 times, and after a thread's
// first 32 plans only when it has come so often that it pays.
constexpr int first_plans = 32, calls_for_a_first = 16, calls_for_more = 1000;

struct AttentionPlan {
  enum class State : std::uint8_t { waiting, made, refused };
  State state = State::waiting;
  int calls = 0;
  std::shared_ptr<AttentionGraph::Graph> graph;
  std::int64_t workspace = 0;
};

using AttentionAddresses = std::unordered_map<std::int64_t, void*>;

std::string text_of(const AttentionLayout& layout) {
  const AttentionGeometry& o = layout.geometry;
  return concat(o.causal ? "causal " : "", layout.dtype, " attention ",
                layout.is_backward() ? "backward " : "", "[", o.batch, ", ", o.queries, " of ",
                o.keys, ", ", o.heads, " x ", o.width, "]");
}

void refuse(AttentionPlan& plan, const AttentionLayout& layout, const std::string& why) {
  plan.state = AttentionPlan::State::refused;
  plan.graph.reset();
  log_line(LogLevel::debug,
           concat("cuda: peal's own kernels serve ", text_of(layout), ", as cuDNN says: ", why));
}

void make_plan(AttentionPlan& plan, const AttentionLayout& layout, cudnnHandle_t handle) {
  const auto start = std::chrono::steady_clock::now();
  try {
    plan.graph = AttentionGraph(layout)();
    auto status = plan.graph->build(handle, {cudnn_frontend::HeurMode_t::A});
    if (status.is_bad()) return refuse(plan, layout, status.get_message());
    plan.workspace = plan.graph->get_workspace_size();
    plan.state = AttentionPlan::State::made;
  } catch (const std::exception& error) {
    return refuse(plan, layout, error.what());
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  log_line(LogLevel::debug, concat("cuda: cuDNN planned ", text_of(layout), " in ", took.count(),
                                   " ms, workspace ", plan.workspace, " bytes"));
}

AttentionPlan& plan_of(const AttentionLayout& layout, Device device, cudnnHandle_t handle) {
  thread_local PlanCache<16, AttentionPlan> plans;
  thread_local int asked = 0;
  const AttentionGeometry& o = layout.geometry;
  AttentionPlan& plan =
      plans.get({o.batch, o.heads, o.queries, o.keys, o.width, o.causal,
                 static_cast<std::int64_t>(layout.dtype), device.index, layout.q, layout.k,
                 layout.v, layout.y, layout.dy, layout.dq, layout.dk, layout.dv},
                [](AttentionPlan&) {});
  if (plan.state == AttentionPlan::State::waiting && Graph::capturing() == nullptr &&
      ++plan.calls >= (asked < first_plans ? calls_for_a_first : calls_for_more)) {
    ++asked;
    make_plan(plan, layout, handle);
  }
  return plan;
}

void* address(const Tokens& x) {
  return static_cast<std::byte*>(x.data.raw()) +
         x.at * static_cast<std::int64_t>(size_of(x.data.dtype()));
}

// cuDNN does not look: on other boundaries it would read wrong values.
bool is_aligned(const Tokens& x) {
  return x.row % 8 == 0 && reinterpret_cast<std::uintptr_t>(address(x)) % 16 == 0;
}

bool run_plan(const AttentionLayout& layout, Device device, AttentionAddresses addresses) {
  const cudnnHandle_t handle = cudnn_on(device);
  const Relaxed relaxed;  // what a first call loads is no part of a captured graph
  AttentionPlan& plan = plan_of(layout, device, handle);
  if (plan.state != AttentionPlan::State::made) return false;
  Tensor workspace;  // goes back at the end, to the stream that still uses it
  if (plan.workspace > 0) {
    try {
      workspace = Tensor::empty({plan.workspace}, DType::u8, device);
    } catch (const Error&) {
      return false;  // for this time: the own kernels want less memory
    }
  }
  auto status =
      plan.graph->execute(handle, addresses, workspace.defined() ? workspace.raw() : nullptr);
  if (status.is_bad()) refuse(plan, layout, status.get_message());
  return status.is_good();
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
  if (!asks_cudnn_attention(o, y.data.dtype(), device)) return false;
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
  // Of gradients that nobody wants: somewhere to write to.
  const std::int64_t row = o.heads * o.width;
  Tensor rest[3];
  std::int64_t rows[3];
  void* places[3];
  const Tokens* const wanted[3] = {dq, dk, dv};
  for (int i = 0; i < 3; ++i) {
    if (wanted[i] != nullptr) {
      rows[i] = wanted[i]->row;
      places[i] = address(*wanted[i]);
      continue;
    }
    rest[i] = Tensor::empty({o.batch, i == 0 ? o.queries : o.keys, row}, dtype, device);
    rows[i] = row;
    places[i] = rest[i].raw();
  }
  return run_plan({o, dtype, q.row, k.row, v.row, y.row, dy.row, rows[0], rows[1], rows[2]}, device,
                  {{at_q, address(q)},
                   {at_k, address(k)},
                   {at_v, address(v)},
                   {at_y, address(y)},
                   {at_sums, sums.raw()},
                   {at_dy, address(dy)},
                   {at_dq, places[0]},
                   {at_dk, places[1]},
                   {at_dv, places[2]}});
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

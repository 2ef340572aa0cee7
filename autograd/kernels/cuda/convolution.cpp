// SPDX-License-Identifier: Apache-2.0
// Convolutions by cuDNN, in the layout NCHW. For each geometry and direction those algorithms that
// its heuristics list and that keep the rules are tried in their order, until one runs, which is
// kept: workspace within a bound, FMA in f32 unless the context allows TF32, and reproducible sums
// where the context wants determinism. Where it wants a benchmark all of them are timed first, and
// tried from the fastest on. A bias is added, and its gradient summed, by peal's own kernels.
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/graph.h>
#include <peal/autograd/core/stream.h>
#include <peal/autograd/kernels/cuda/cudnn.h>
#include <peal/autograd/kernels/cuda/table.h>

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace peal::cuda {
namespace {

constexpr std::size_t most_workspace = std::size_t{1} << 30;

std::string text_of(const Conv2dGeometry& o, DType dtype) {
  return concat(", for ", dtype, " input [", o.batch, ", ", o.in_channels, ", ", o.in_height, ", ",
                o.in_width, "], weight [", o.out_channels, ", ", o.in_channels / o.groups, ", ",
                o.kernel_height, ", ", o.kernel_width, "], stride ", o.stride[0], ", ", o.stride[1],
                ", padding ", o.padding[0], ", ", o.padding[1], ", dilation ", o.dilation[0], ", ",
                o.dilation[1], ", ", o.groups, " groups");
}

// cuDNN counts in int, elements of a tensor too.
int count(std::int64_t number) {
  PEAL_CHECK(number <= std::numeric_limits<int>::max(), "conv2d: cuDNN takes at most ",
             std::numeric_limits<int>::max(), " elements in a tensor, got ", number,
             "; use a smaller batch");
  return static_cast<int>(number);
}

struct Algorithm {
  int number;  // a value of cuDNN's enumeration
  cudnnMathType_t math;
  std::size_t workspace;
};

// The descriptors of a geometry, and one direction's algorithms, of which the first one is taken
// while it runs.
struct Plan {
  TensorDescriptor x, y;
  FilterDescriptor weight;
  ConvolutionDescriptor convolution;
  std::vector<Algorithm> algorithms;
  bool timed = false;
};

void describe(const TensorDescriptor& tensor, DType dtype, std::int64_t n, std::int64_t c,
              std::int64_t h, std::int64_t w) {
  count(n * c * h * w);
  PEAL_CUDNN_CHECK(cudnnSetTensor4dDescriptor(tensor.get(), CUDNN_TENSOR_NCHW, cudnn_type(dtype),
                                              count(n), count(c), count(h), count(w)),
                   ", for ", dtype, " [", n, ", ", c, ", ", h, ", ", w, "]");
}

void describe(const Plan& plan, const Conv2dGeometry& o, DType dtype, cudnnMathType_t math) {
  describe(plan.x, dtype, o.batch, o.in_channels, o.in_height, o.in_width);
  describe(plan.y, dtype, o.batch, o.out_channels, o.out_height, o.out_width);
  count(o.out_channels * (o.in_channels / o.groups) * o.kernel_height * o.kernel_width);
  PEAL_CUDNN_CHECK(
      cudnnSetFilter4dDescriptor(plan.weight.get(), cudnn_type(dtype), CUDNN_TENSOR_NCHW,
                                 count(o.out_channels), count(o.in_channels / o.groups),
                                 count(o.kernel_height), count(o.kernel_width)),
      text_of(o, dtype));
  PEAL_CUDNN_CHECK(
      cudnnSetConvolution2dDescriptor(
          plan.convolution.get(), count(o.padding[0]), count(o.padding[1]), count(o.stride[0]),
          count(o.stride[1]), count(o.dilation[0]), count(o.dilation[1]), CUDNN_CROSS_CORRELATION,
          dtype == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT),
      text_of(o, dtype));
  PEAL_CUDNN_CHECK(cudnnSetConvolutionGroupCount(plan.convolution.get(), count(o.groups)),
                   text_of(o, dtype));
  PEAL_CUDNN_CHECK(cudnnSetConvolutionMathType(plan.convolution.get(), math), text_of(o, dtype));
}

// What f32 is multiplied in: CUDNN_DEFAULT_MATH would take TF32 for it.
cudnnMathType_t math_of(DType dtype) {
  if (is_low_precision(dtype)) return CUDNN_TENSOR_OP_MATH;
  return dtype == DType::f32 && !context().allow_tf32 ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH;
}

enum class Direction : std::uint8_t { forward, backward_data, backward_filter };

// list(performances, count of them) and size(algorithm, bytes) are cuDNN's of one direction.
template <class Performance, class List, class Size>
void choose(Plan& plan, const Conv2dGeometry& o, DType dtype, List&& list, Size&& size) {
  Performance results[32];
  int found = 0;
  PEAL_CUDNN_CHECK(list(plan, static_cast<int>(std::size(results)), &found, results),
                   text_of(o, dtype));
  const cudnnMathType_t math = math_of(dtype);
  for (const Performance& result : std::span(results, static_cast<std::size_t>(found))) {
    if (result.status != CUDNN_STATUS_SUCCESS) continue;
    if (context().deterministic && result.determinism != CUDNN_DETERMINISTIC) continue;
    // An algorithm is meant with its own type of math, but f32 without TF32 stays FMA.
    const cudnnMathType_t own = math == CUDNN_FMA_MATH ? math : result.mathType;
    PEAL_CUDNN_CHECK(cudnnSetConvolutionMathType(plan.convolution.get(), own), text_of(o, dtype));
    std::size_t bytes = 0;
    if (size(plan, result.algo, &bytes) != CUDNN_STATUS_SUCCESS || bytes > most_workspace) continue;
    plan.algorithms.push_back({static_cast<int>(result.algo), own, bytes});
  }
  PEAL_CHECK(!plan.algorithms.empty(), "cuda: cuDNN has no ",
             context().deterministic ? "deterministic " : "", "algorithm within ",
             most_workspace >> 20, " MiB of workspace", text_of(o, dtype));
}

void make_plan(Plan& plan, Direction direction, cudnnHandle_t handle, const Conv2dGeometry& o,
               DType dtype) {
  describe(plan, o, dtype, math_of(dtype));
  switch (direction) {
    case Direction::forward:
      return choose<cudnnConvolutionFwdAlgoPerf_t>(
          plan, o, dtype,
          [&](const Plan& p, int room, int* found, cudnnConvolutionFwdAlgoPerf_t* results) {
            return cudnnGetConvolutionForwardAlgorithm_v7(handle, p.x.get(), p.weight.get(),
                                                          p.convolution.get(), p.y.get(), room,
                                                          found, results);
          },
          [&](const Plan& p, cudnnConvolutionFwdAlgo_t algorithm, std::size_t* bytes) {
            return cudnnGetConvolutionForwardWorkspaceSize(handle, p.x.get(), p.weight.get(),
                                                           p.convolution.get(), p.y.get(),
                                                           algorithm, bytes);
          });
    case Direction::backward_data:
      return choose<cudnnConvolutionBwdDataAlgoPerf_t>(
          plan, o, dtype,
          [&](const Plan& p, int room, int* found, cudnnConvolutionBwdDataAlgoPerf_t* results) {
            return cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, p.weight.get(), p.y.get(),
                                                               p.convolution.get(), p.x.get(), room,
                                                               found, results);
          },
          [&](const Plan& p, cudnnConvolutionBwdDataAlgo_t algorithm, std::size_t* bytes) {
            return cudnnGetConvolutionBackwardDataWorkspaceSize(handle, p.weight.get(), p.y.get(),
                                                                p.convolution.get(), p.x.get(),
                                                                algorithm, bytes);
          });
    case Direction::backward_filter:
      break;
  }
  return choose<cudnnConvolutionBwdFilterAlgoPerf_t>(
      plan, o, dtype,
      [&](const Plan& p, int room, int* found, cudnnConvolutionBwdFilterAlgoPerf_t* results) {
        return cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, p.x.get(), p.y.get(),
                                                             p.convolution.get(), p.weight.get(),
                                                             room, found, results);
      },
      [&](const Plan& p, cudnnConvolutionBwdFilterAlgo_t algorithm, std::size_t* bytes) {
        return cudnnGetConvolutionBackwardFilterWorkspaceSize(
            handle, p.x.get(), p.y.get(), p.convolution.get(), p.weight.get(), algorithm, bytes);
      });
}

// A thread's, for a device.
using ConvolutionPlans = PlanCache<21, Plan>;
ConvolutionPlans* new_convolution_plans() { return new ConvolutionPlans; }

Plan& plan_of(Direction direction, cudnnHandle_t handle, const Conv2dGeometry& o, const Tensor& x) {
  ConvolutionPlans& plans = *handle_on<ConvolutionPlans*, new_convolution_plans>(x.device());
  const auto number = [](auto value) { return static_cast<std::int64_t>(value); };
  return plans.get({o.batch,
                    o.in_channels,
                    o.in_height,
                    o.in_width,
                    o.out_channels,
                    o.out_height,
                    o.out_width,
                    o.kernel_height,
                    o.kernel_width,
                    o.stride[0],
                    o.stride[1],
                    o.padding[0],
                    o.padding[1],
                    o.dilation[0],
                    o.dilation[1],
                    o.groups,
                    number(direction),
                    number(x.dtype()),
                    number(context().allow_tf32),
                    number(context().deterministic),
                    number(context().cudnn_benchmark)},
                   [&](Plan& plan) { make_plan(plan, direction, handle, o, x.dtype()); });
}

// Puts the fastest first, and last, in their order, those that do not run. attempt(algorithm) says
// whether it does.
template <class Attempt>
void sort_by_time(std::vector<Algorithm>& algorithms, Device device, Attempt&& attempt) {
  constexpr int times = 4;  // more than one, so that launches overlap with what they launch
  const Stream stream = current_stream(device);
  Event begin(true), end(true);
  std::vector<std::pair<double, Algorithm>> timed;
  for (const Algorithm& algorithm : algorithms) {
    bool runs = attempt(algorithm);  // the first time it may be loaded
    begin.record(stream);
    for (int i = 0; i < times && runs; ++i) runs = attempt(algorithm);
    end.record(stream);
    end.synchronize();
    timed.emplace_back(runs ? end.seconds_since(begin) : std::numeric_limits<double>::infinity(),
                       algorithm);
  }
  std::ranges::stable_sort(timed, {}, [](const auto& each) { return each.first; });
  std::ranges::transform(timed, algorithms.begin(), [](const auto& each) { return each.second; });
}

// f(handle, plan, algorithm, workspace's address, 1, 0): one direction, on the current stream. What
// heuristics list may still be refused when it is to run, and is not tried again; where memory has
// no room for its workspace, the next one serves for this time. Whatever runs writes the whole
// result, so those that are only timed leave nothing there.
template <class F>
void run(Direction direction, const Conv2dGeometry& o, const Tensor& x, F&& f) {
  const cudnnHandle_t handle = cudnn_on(x.device());
  Plan& plan = plan_of(direction, handle, o, x);
  const CudnnFactor one(x.dtype(), 1), zero(x.dtype(), 0);
  std::string refusals;
  bool room = true;
  const auto attempt = [&](const Algorithm& algorithm) {
    PEAL_CUDNN_CHECK(cudnnSetConvolutionMathType(plan.convolution.get(), algorithm.math),
                     text_of(o, x.dtype()));
    Tensor workspace;  // goes back at the end, to the stream that still uses it
    if (algorithm.workspace > 0) {
      try {
        workspace =
            Tensor::empty({static_cast<std::int64_t>(algorithm.workspace)}, DType::u8, x.device());
      } catch (const Error& error) {
        room = false;
        refusals += concat("; algorithm ", algorithm.number, ": ", error.what());
        return false;
      }
    }
    const cudnnStatus_t status =
        f(handle, plan, algorithm, workspace.defined() ? workspace.raw() : nullptr, one.get(),
          zero.get());
    if (status == CUDNN_STATUS_SUCCESS) return true;
    refusals += concat("; algorithm ", algorithm.number, " with ", algorithm.workspace,
                       " bytes of workspace: ", cudnn_reason(status));
    return false;
  };
  // A capture cannot wait for times; the next call that is none makes up for it.
  if (context().cudnn_benchmark && !plan.timed && Graph::capturing() == nullptr) {
    if (plan.algorithms.size() > 1) sort_by_time(plan.algorithms, x.device(), attempt);
    plan.timed = true;
    refusals.clear();
    room = true;
  }
  for (auto each = plan.algorithms.begin(); each != plan.algorithms.end(); ++each) {
    if (!attempt(*each)) continue;
    if (room) plan.algorithms.erase(plan.algorithms.begin(), each);
    return;
  }
  fail(concat("cuda: cuDNN runs none of its algorithms", text_of(o, x.dtype()), refusals));
}

// x as [N, channels, plane], and a bias that broadcasts to it.
Tensor planes(const Tensor& x) { return x.detach({x.size(0), x.size(1), x.size(2) * x.size(3)}); }

}  // namespace

bool conv2d(const Conv2dGeometry& o, const Tensor& y, const Tensor& x, const Tensor& weight,
            const Tensor& bias) {
  if (!is_floating(x.dtype())) return false;
  if (y.numel() == 0) return true;
  if (x.numel() == 0) {  // no channels
    fill(y, 0);
  } else {
    run(Direction::forward, o, x,
        [&](cudnnHandle_t handle, const Plan& plan, const Algorithm& algorithm, void* workspace,
            const void* one, const void* zero) {
          return cudnnConvolutionForward(
              handle, one, plan.x.get(), x.raw(), plan.weight.get(), weight.raw(),
              plan.convolution.get(), static_cast<cudnnConvolutionFwdAlgo_t>(algorithm.number),
              workspace, algorithm.workspace, zero, plan.y.get(), y.raw());
        });
  }
  if (!bias.defined()) return true;
  return binary(Binary::add, planes(y), planes(y), bias.detach({o.out_channels, 1}));
}

bool conv2d_backward(const Conv2dGeometry& o, const Tensor& dx, const Tensor& dweight,
                     const Tensor& dbias, const Tensor& dy, const Tensor& x, const Tensor& weight) {
  if (!is_floating(x.dtype())) return false;
  if (dbias.defined()) sum(dbias, planes(dy), 0b101, 1);
  const bool empty = dy.numel() == 0 || x.numel() == 0;
  if (dx.defined() && empty) fill(dx, 0);
  if (dweight.defined() && empty) fill(dweight, 0);
  if (empty) return true;
  if (dx.defined()) {
    run(Direction::backward_data, o, x,
        [&](cudnnHandle_t handle, const Plan& plan, const Algorithm& algorithm, void* workspace,
            const void* one, const void* zero) {
          return cudnnConvolutionBackwardData(
              handle, one, plan.weight.get(), weight.raw(), plan.y.get(), dy.raw(),
              plan.convolution.get(), static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm.number),
              workspace, algorithm.workspace, zero, plan.x.get(), dx.raw());
        });
  }
  if (dweight.defined()) {
    run(Direction::backward_filter, o, x,
        [&](cudnnHandle_t handle, const Plan& plan, const Algorithm& algorithm, void* workspace,
            const void* one, const void* zero) {
          return cudnnConvolutionBackwardFilter(
              handle, one, plan.x.get(), x.raw(), plan.y.get(), dy.raw(), plan.convolution.get(),
              static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm.number), workspace,
              algorithm.workspace, zero, plan.weight.get(), dweight.raw());
        });
  }
  return true;
}

}  // namespace peal::cuda

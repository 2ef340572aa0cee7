// SPDX-License-Identifier: Apache-2.0
// cuDNN's convolutions: plain sums on the simulated stream, and heuristics whose first answers a
// careful caller must pass over.
#include "cudnn_state.h"

#include <chrono>
#include <cstring>
#include <vector>

using namespace cuda_host;

namespace {

thread_local int last_algorithm = -1;
thread_local int refused = 0, slow = 0;  // a bit for each algorithm

Number number_of(cudnnDataType_t type) {
  return type == CUDNN_DATA_DOUBLE     ? Number::f64
         : type == CUDNN_DATA_HALF     ? Number::f16
         : type == CUDNN_DATA_BFLOAT16 ? Number::bf16
                                       : Number::f32;
}

enum class Direction { forward, data, filter };

// y = conv(x, w), or one of its gradients.
struct Problem {
  Direction direction;
  cudnnTensorStruct x, y;
  cudnnFilterStruct w;
  cudnnConvolutionStruct o;
  Number type() const { return number_of(x.type); }
  // The algorithm that wants too much workspace.
  int fft() const {
    switch (direction) {
      case Direction::forward:
        return CUDNN_CONVOLUTION_FWD_ALGO_FFT;
      case Direction::data:
        return CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT;
      case Direction::filter:
        break;
    }
    return CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT;
  }
  bool tf32() const { return x.type == CUDNN_DATA_FLOAT && o.math != CUDNN_FMA_MATH; }
};

cudnnStatus_t check(Direction direction, cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                    cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t convolution,
                    cudnnTensorDescriptor_t y, Problem& problem) {
  if (handle == nullptr) return refuse(CUDNN_STATUS_NOT_INITIALIZED, "the handle is null");
  if (handle->device != current_device()) return bad("the handle is another device's");
  if (!x || !w || !convolution || !y) return bad("a descriptor is null");
  problem = {direction, *x, *y, *w, *convolution};
  const cudnnConvolutionStruct& o = *convolution;
  if (x->type != y->type || x->type != w->type) return bad("types differ");
  if (extent(*x) <= 0 || extent(*y) <= 0 || extent(*w) <= 0) return bad("something is empty");
  const bool wide = x->type == CUDNN_DATA_DOUBLE;
  if (o.compute != (wide ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT)) {
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "computed in another type");
  }
  if (x->c != w->c * o.groups || y->c != w->k || w->k % o.groups != 0 || x->n != y->n) {
    return bad("channels, groups or batches do not fit");
  }
  const auto size = [&](std::int64_t in, std::int64_t kernel, int d) {
    const std::int64_t room = in + 2 * o.padding[d] - (kernel - 1) * o.dilation[d] - 1;
    return room < 0 ? 0 : room / o.stride[d] + 1;
  };
  if (y->h != size(x->h, w->h, 0) || y->w != size(x->w, w->w, 1)) {
    return bad("the output is not cudnnGetConvolution2dForwardOutputDim's");
  }
  return CUDNN_STATUS_SUCCESS;
}

// The algorithms of the stand-in, in the order of its heuristics. Number 1 is the good one.
constexpr std::size_t too_much = std::size_t{3} << 30;
bool is_supported(int algorithm, const Problem& o) {
  if (algorithm == 1) return true;
  if (algorithm == 0) return o.x.type != CUDNN_DATA_BFLOAT16;
  return o.x.type == CUDNN_DATA_FLOAT && o.o.groups == 1;
}
std::size_t workspace_of(int algorithm, const Problem& o) {
  if (algorithm == o.fft()) return too_much;
  return algorithm == 1 && o.w.h > 1 ? 1000 + 8 * static_cast<std::size_t>(o.w.k) : 0;
}
// Nothing of forward is random; number 0 of the gradients adds in any order.
cudnnDeterminism_t determinism_of(int algorithm, const Problem& o) {
  return algorithm == 0 && o.direction != Direction::forward ? CUDNN_NON_DETERMINISTIC
                                                             : CUDNN_DETERMINISTIC;
}

template <class Performance>
cudnnStatus_t list(const Problem& o, int requested, int* found, Performance* results) {
  if (requested < 1 || found == nullptr || results == nullptr) return bad("no room for results");
  *found = 0;
  const int order[] = {o.fft(), 0, 1};
  // What is not supported is listed all the same, and comes first now and then.
  for (const int algorithm : order) {
    if (*found == requested) break;
    Performance& result = results[(*found)++];
    result = {};
    result.algo = static_cast<decltype(result.algo)>(algorithm);
    result.status = is_supported(algorithm, o) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
    result.time = -1;
    result.memory = workspace_of(algorithm, o);
    result.determinism = determinism_of(algorithm, o);
    // The caller's choice of math is a wish: the first that works would take TF32.
    result.mathType = bytes_of(o.type()) == 2 ? CUDNN_TENSOR_OP_MATH
                      : algorithm == 0        ? CUDNN_DEFAULT_MATH
                                              : o.o.math;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t size(const Problem& o, int algorithm, std::size_t* bytes) {
  if (bytes == nullptr) return bad("nowhere to put the size");
  if (!is_supported(algorithm, o)) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "the algorithm");
  *bytes = workspace_of(algorithm, o);
  return CUDNN_STATUS_SUCCESS;
}

struct Data {
  const void *first, *second;
  void* out;
  void* workspace;
  std::size_t workspace_bytes;
  double alpha, beta;
};

// f(x's element, y's element, w's element) for each product of the sums.
template <class F>
void each_product(const Problem& p, F&& f) {
  const cudnnConvolutionStruct& o = p.o;
  const std::int64_t outputs = p.w.k / o.groups;
  for (std::int64_t n = 0; n < p.x.n; ++n) {
    for (std::int64_t k = 0; k < p.w.k; ++k) {
      for (std::int64_t c = 0; c < p.w.c; ++c) {
        const std::int64_t plane = n * p.x.c + k / outputs * p.w.c + c;
        for (std::int64_t r = 0; r < p.w.h; ++r) {
          for (std::int64_t s = 0; s < p.w.w; ++s) {
            const std::int64_t weight = ((k * p.w.c + c) * p.w.h + r) * p.w.w + s;
            for (std::int64_t i = 0; i < p.y.h; ++i) {
              const std::int64_t h = i * o.stride[0] - o.padding[0] + r * o.dilation[0];
              if (h < 0 || h >= p.x.h) continue;
              for (std::int64_t j = 0; j < p.y.w; ++j) {
                const std::int64_t w = j * o.stride[1] - o.padding[1] + s * o.dilation[1];
                if (w < 0 || w >= p.x.w) continue;
                f((plane * p.x.h + h) * p.x.w + w, ((n * p.y.c + k) * p.y.h + i) * p.y.w + j,
                  weight);
              }
            }
          }
        }
      }
    }
  }
}

void run(const Problem& p, const Data& data) {
  if (data.workspace_bytes > 0) std::memset(data.workspace, 0xa5, data.workspace_bytes);
  const Number type = p.type();
  const auto numbers = [&](const void* from, std::int64_t n) {
    std::vector<double> values(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) {
      const double value = load(from, type, i);
      values[static_cast<std::size_t>(i)] = p.tf32() ? to_tf32(value) : value;
    }
    return values;
  };
  const std::int64_t x = extent(p.x), y = extent(p.y), w = extent(p.w);
  std::vector<double> first, second, out;
  switch (p.direction) {
    case Direction::forward:
      first = numbers(data.first, x), second = numbers(data.second, w);
      out.resize(static_cast<std::size_t>(y));
      each_product(p,
                   [a = first.data(), b = second.data(), to = out.data()](
                       std::int64_t i, std::int64_t j, std::int64_t k) { to[j] += a[i] * b[k]; });
      break;
    case Direction::data:
      first = numbers(data.first, w), second = numbers(data.second, y);
      out.resize(static_cast<std::size_t>(x));
      each_product(p,
                   [a = first.data(), b = second.data(), to = out.data()](
                       std::int64_t i, std::int64_t j, std::int64_t k) { to[i] += a[k] * b[j]; });
      break;
    case Direction::filter:
      first = numbers(data.first, x), second = numbers(data.second, y);
      out.resize(static_cast<std::size_t>(w));
      each_product(p,
                   [a = first.data(), b = second.data(), to = out.data()](
                       std::int64_t i, std::int64_t j, std::int64_t k) { to[k] += a[i] * b[j]; });
      break;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    double value = data.alpha * out[i];
    if (data.beta != 0) value += data.beta * load(data.out, type, at);
    store(data.out, type, at, value);
  }
}

// Operands and result as the function of this direction has them.
cudnnStatus_t queue(cudnnHandle_t handle, const Problem& p, int algorithm, const void* alpha,
                    const void* beta, Data data) {
  std::size_t needed = 0;
  const cudnnStatus_t status = size(p, algorithm, &needed);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if ((refused >> algorithm & 1) != 0) {
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "refused, as the test wants it");
  }
  if (alpha == nullptr || beta == nullptr) return bad("alpha or beta is null");
  // double for double, float for all others.
  const Number factor = p.type() == Number::f64 ? Number::f64 : Number::f32;
  data.alpha = load(alpha, factor, 0);
  data.beta = load(beta, factor, 0);
  const std::int64_t bytes = bytes_of(p.type());
  std::string wrong = wrong_with(handle->stream, handle->device);
  const auto look = [&](const char* name, const void* x, std::int64_t n, std::uint64_t aligned) {
    if (wrong.empty()) wrong = wrong_with(name, x, n, handle->device);
    if (wrong.empty() && alignment_of(x) < aligned) wrong = std::string(name) + " is misaligned";
  };
  const std::int64_t x = extent(p.x), y = extent(p.y), w = extent(p.w);
  const std::int64_t first = p.direction == Direction::data ? w : x,
                     second = p.direction == Direction::forward ? w : y,
                     out = p.direction == Direction::forward ? y
                           : p.direction == Direction::data  ? x
                                                             : w;
  look("the first operand", data.first, first * bytes, static_cast<std::uint64_t>(bytes));
  look("the second operand", data.second, second * bytes, static_cast<std::uint64_t>(bytes));
  look("the result", data.out, out * bytes, static_cast<std::uint64_t>(bytes));
  if (data.workspace_bytes < needed) {
    return refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "the workspace is too small");
  }
  if (needed > 0) look("the workspace", data.workspace, static_cast<std::int64_t>(needed), 16);
  data.workspace_bytes = needed;
  if (!wrong.empty()) return bad(wrong);
  last_algorithm = algorithm;
  const Lock guard;
  const std::chrono::hours taken((slow >> algorithm & 1) != 0 ? 1 : 0);
  const auto work = [p, data, taken] {
    run(p, data);
    take_time(taken);
  };
  const cudaError_t queued =
      enqueue(stream_of(handle->stream), {.run = work, .devices = reach_of(handle->device)});
  if (queued == cudaSuccess) return CUDNN_STATUS_SUCCESS;
  return refuse(CUDNN_STATUS_EXECUTION_FAILED, cudaGetErrorString(queued));
}

// f(problem), where there is one.
template <class F>
cudnnStatus_t with_problem(Direction direction, cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                           cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t convolution,
                           cudnnTensorDescriptor_t y, F&& f) {
  Problem problem;
  const cudnnStatus_t status = check(direction, handle, x, w, convolution, y, problem);
  return status == CUDNN_STATUS_SUCCESS ? f(problem) : status;
}

}  // namespace

int cuda_host::last_convolution_algorithm() { return last_algorithm; }
void cuda_host::refuse_convolutions(int algorithms) { refused = algorithms; }
void cuda_host::slow_convolutions(int algorithms) { slow = algorithms; }

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
    cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t y, int requested, int* found,
    cudnnConvolutionFwdAlgoPerf_t* results) {
  return with_problem(Direction::forward, handle, x, w, convolution, y,
                      [&](const Problem& p) { return list(p, requested, found, results); });
}
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
    cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t y,
    cudnnConvolutionFwdAlgo_t algorithm, std::size_t* bytes) {
  return with_problem(Direction::forward, handle, x, w, convolution, y,
                      [&](const Problem& p) { return size(p, algorithm, bytes); });
}
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      cudnnTensorDescriptor_t x, const void* x_data,
                                      cudnnFilterDescriptor_t w, const void* w_data,
                                      cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace,
                                      std::size_t workspace_bytes, const void* beta,
                                      cudnnTensorDescriptor_t y, void* y_data) {
  return with_problem(Direction::forward, handle, x, w, convolution, y, [&](const Problem& p) {
    return queue(handle, p, algorithm, alpha, beta,
                 {x_data, w_data, y_data, workspace, workspace_bytes, 0, 0});
  });
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t dx, int requested, int* found,
    cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return with_problem(Direction::data, handle, dx, w, convolution, dy,
                      [&](const Problem& p) { return list(p, requested, found, results); });
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t handle, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t dx,
    cudnnConvolutionBwdDataAlgo_t algorithm, std::size_t* bytes) {
  return with_problem(Direction::data, handle, dx, w, convolution, dy,
                      [&](const Problem& p) { return size(p, algorithm, bytes); });
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           cudnnFilterDescriptor_t w, const void* w_data,
                                           cudnnTensorDescriptor_t dy, const void* dy_data,
                                           cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           std::size_t workspace_bytes, const void* beta,
                                           cudnnTensorDescriptor_t dx, void* dx_data) {
  return with_problem(Direction::data, handle, dx, w, convolution, dy, [&](const Problem& p) {
    return queue(handle, p, algorithm, alpha, beta,
                 {w_data, dy_data, dx_data, workspace, workspace_bytes, 0, 0});
  });
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t convolution, cudnnFilterDescriptor_t dw, int requested, int* found,
    cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return with_problem(Direction::filter, handle, x, dw, convolution, dy,
                      [&](const Problem& p) { return list(p, requested, found, results); });
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t convolution, cudnnFilterDescriptor_t dw,
    cudnnConvolutionBwdFilterAlgo_t algorithm, std::size_t* bytes) {
  return with_problem(Direction::filter, handle, x, dw, convolution, dy,
                      [&](const Problem& p) { return size(p, algorithm, bytes); });
}
cudnnStatus_t cudnnConvolutionBackwardFilter(
    cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t x, const void* x_data,
    cudnnTensorDescriptor_t dy, const void* dy_data, cudnnConvolutionDescriptor_t convolution,
    cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace, std::size_t workspace_bytes,
    const void* beta, cudnnFilterDescriptor_t dw, void* dw_data) {
  return with_problem(Direction::filter, handle, x, dw, convolution, dy, [&](const Problem& p) {
    return queue(handle, p, algorithm, alpha, beta,
                 {x_data, dy_data, dw_data, workspace, workspace_bytes, 0, 0});
  });
}

// SPDX-License-Identifier: Apache-2.0
#include "library.h"

#include <cudnn.h>

#include <algorithm>
#include <cstring>
#include <vector>

using namespace cuda_host;

struct cudnnContext {
  int device;
  cudaStream_t stream;
};
struct cudnnTensorStruct {
  cudnnDataType_t type;
  std::int64_t n, c, h, w;
};
struct cudnnFilterStruct {
  cudnnDataType_t type;
  std::int64_t k, c, h, w;
};
struct cudnnConvolutionStruct {
  std::int64_t padding[2], stride[2], dilation[2], groups = 1;
  cudnnDataType_t compute;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

namespace {

thread_local std::string reason;
thread_local int last_algorithm = -1;

cudnnStatus_t refuse(cudnnStatus_t status, std::string why) {
  reason = std::move(why);
  return status;
}
cudnnStatus_t bad(std::string why) { return refuse(CUDNN_STATUS_BAD_PARAM, std::move(why)); }

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
  bool tf32() const { return x.type == CUDNN_DATA_FLOAT && o.math != CUDNN_FMA_MATH; }
};

std::int64_t extent(const cudnnTensorStruct& x) { return x.n * x.c * x.h * x.w; }
std::int64_t extent(const cudnnFilterStruct& x) { return x.k * x.c * x.h * x.w; }

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
std::size_t workspace_of(int algorithm, int fft, const Problem& o) {
  if (algorithm == fft) return too_much;
  return algorithm == 1 && o.w.h > 1 ? 1000 + 8 * static_cast<std::size_t>(o.w.k) : 0;
}
// Nothing of forward is random; number 0 of the gradients adds in any order.
cudnnDeterminism_t determinism_of(int algorithm, const Problem& o) {
  return algorithm == 0 && o.direction != Direction::forward ? CUDNN_NON_DETERMINISTIC
                                                             : CUDNN_DETERMINISTIC;
}

template <class Performance>
cudnnStatus_t list(const Problem& o, int fft, int requested, int* found, Performance* results) {
  if (requested < 1 || found == nullptr || results == nullptr) return bad("no room for results");
  *found = 0;
  const int order[] = {fft, 0, 1};
  // What is not supported is listed all the same, and comes first now and then.
  for (const int algorithm : order) {
    if (*found == requested) break;
    Performance& result = results[(*found)++];
    result = {};
    result.algo = static_cast<decltype(result.algo)>(algorithm);
    result.status = is_supported(algorithm, o) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
    result.time = -1;
    result.memory = workspace_of(algorithm, fft, o);
    result.determinism = determinism_of(algorithm, o);
    // The caller's choice of math is a wish: the first that works would take TF32.
    result.mathType = bytes_of(o.type()) == 2 ? CUDNN_TENSOR_OP_MATH
                      : algorithm == 0        ? CUDNN_DEFAULT_MATH
                                              : o.o.math;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t size(const Problem& o, int algorithm, int fft, std::size_t* bytes) {
  if (bytes == nullptr) return bad("nowhere to put the size");
  if (!is_supported(algorithm, o)) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "the algorithm");
  *bytes = workspace_of(algorithm, fft, o);
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

cudnnStatus_t queue(cudnnHandle_t handle, const Problem& p, int algorithm, int fft,
                    const void* alpha, const void* beta, std::int64_t first, std::int64_t second,
                    std::int64_t out, Data data) {
  std::size_t needed = 0;
  const cudnnStatus_t status = size(p, algorithm, fft, &needed);
  if (status != CUDNN_STATUS_SUCCESS) return status;
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
  const cudaError_t queued =
      enqueue(stream_of(handle->stream),
              {.run = [p, data] { run(p, data); }, .devices = reach_of(handle->device)});
  if (queued == cudaSuccess) return CUDNN_STATUS_SUCCESS;
  return refuse(CUDNN_STATUS_EXECUTION_FAILED, cudaGetErrorString(queued));
}

}  // namespace

int cuda_host::last_convolution_algorithm() { return last_algorithm; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT:
      return "CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_EXECUTION_FAILED:
      return "CUDNN_STATUS_EXECUTION_FAILED";
  }
  return "CUDNN_UNKNOWN_STATUS";
}

void cudnnGetLastErrorString(char* message, std::size_t room) {
  if (room == 0) return;
  const std::size_t n = std::min(room - 1, reason.size());
  std::memcpy(message, reason.data(), n);
  message[n] = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (handle == nullptr) return bad("nowhere to put the handle");
  const int device = current_device();
  if (device < 0) return refuse(CUDNN_STATUS_NOT_INITIALIZED, "there is no device");
  *handle = new cudnnContext{device, nullptr};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) return refuse(CUDNN_STATUS_NOT_INITIALIZED, "the handle is null");
  const std::string wrong = wrong_with(stream, handle->device);
  if (!wrong.empty()) return bad(wrong);
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
  *tensor = new cudnnTensorStruct{};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  delete tensor;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  if (tensor == nullptr || n < 1 || c < 1 || h < 1 || w < 1) return bad("a size is below 1");
  if (format != CUDNN_TENSOR_NCHW) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "only NCHW");
  *tensor = {type, n, c, h, w};
  return extent(*tensor) <= INT32_MAX ? CUDNN_STATUS_SUCCESS
                                      : refuse(CUDNN_STATUS_NOT_SUPPORTED, "over 2^31 elements");
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) {
  *filter = new cudnnFilterStruct{};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  delete filter;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  if (filter == nullptr || k < 1 || c < 1 || h < 1 || w < 1) return bad("a size is below 1");
  if (format != CUDNN_TENSOR_NCHW) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "only KCRS");
  *filter = {type, k, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convolution) {
  *convolution = new cudnnConvolutionStruct{};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
  delete convolution;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h,
                                              int pad_w, int u, int v, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
  if (pad_h < 0 || pad_w < 0 || u < 1 || v < 1 || dilation_h < 1 || dilation_w < 1) {
    return bad("a padding below 0, or a stride or dilation below 1");
  }
  if (mode != CUDNN_CROSS_CORRELATION) {
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "the kernel would be turned around");
  }
  *convolution = {{pad_h, pad_w}, {u, v}, {dilation_h, dilation_w}, 1, compute, CUDNN_DEFAULT_MATH};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups) {
  if (groups < 1) return bad("groups below 1");
  convolution->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution,
                                          cudnnMathType_t math) {
  convolution->math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
    cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t y, int requested, int* found,
    cudnnConvolutionFwdAlgoPerf_t* results) {
  Problem p;
  const cudnnStatus_t status = check(Direction::forward, handle, x, w, convolution, y, p);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  return list(p, CUDNN_CONVOLUTION_FWD_ALGO_FFT, requested, found, results);
}
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
    cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t y,
    cudnnConvolutionFwdAlgo_t algorithm, std::size_t* bytes) {
  Problem p;
  const cudnnStatus_t status = check(Direction::forward, handle, x, w, convolution, y, p);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  return size(p, algorithm, CUDNN_CONVOLUTION_FWD_ALGO_FFT, bytes);
}
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      cudnnTensorDescriptor_t x, const void* x_data,
                                      cudnnFilterDescriptor_t w, const void* w_data,
                                      cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace,
                                      std::size_t workspace_bytes, const void* beta,
                                      cudnnTensorDescriptor_t y, void* y_data) {
  Problem p;
  const cudnnStatus_t status = check(Direction::forward, handle, x, w, convolution, y, p);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  return queue(handle, p, algorithm, CUDNN_CONVOLUTION_FWD_ALGO_FFT, alpha, beta, extent(*x),
               extent(*w), extent(*y), {x_data, w_data, y_data, workspace, workspace_bytes, 0, 0});
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t dx, int requested, int* found,
    cudnnConvolutionBwdDataAlgoPerf_t* results) {
  Problem p;
  const cudnnStatus_t status = check(Direction::data, handle, dx, w, convolution, dy, p);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  return list(p, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, requested, found, results);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t handle, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t dx,
    cudnnConvolutionBwdDataAlgo_t algorithm, std::size_t* bytes) {
  Problem p;
  const cudnnStatus_t status = check(Direction::data, handle, dx, w, convolution, dy, p);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  return size(p, algorithm, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, bytes);
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           cudnnFilterDescriptor_t w, const void* w_data,
                                           cudnnTensorDescriptor_t dy, const void* dy_data,
                                           cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           std::size_t workspace_bytes, const void* beta,
                                           cudnnTensorDescriptor_t dx, void* dx_data) {
  Problem p;
  const cudnnStatus_t status = check(Direction::data, handle, dx, w, convolution, dy, p);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  return queue(handle, p, algorithm, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, alpha, beta, extent(*w),
               extent(*dy), extent(*dx),
               {w_data, dy_data, dx_data, workspace, workspace_bytes, 0, 0});
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t convolution, cudnnFilterDescriptor_t dw, int requested, int* found,
    cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  Problem p;
  const cudnnStatus_t status = check(Direction::filter, handle, x, dw, convolution, dy, p);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  return list(p, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT, requested, found, results);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t convolution, cudnnFilterDescriptor_t dw,
    cudnnConvolutionBwdFilterAlgo_t algorithm, std::size_t* bytes) {
  Problem p;
  const cudnnStatus_t status = check(Direction::filter, handle, x, dw, convolution, dy, p);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  return size(p, algorithm, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT, bytes);
}
cudnnStatus_t cudnnConvolutionBackwardFilter(
    cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t x, const void* x_data,
    cudnnTensorDescriptor_t dy, const void* dy_data, cudnnConvolutionDescriptor_t convolution,
    cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace, std::size_t workspace_bytes,
    const void* beta, cudnnFilterDescriptor_t dw, void* dw_data) {
  Problem p;
  const cudnnStatus_t status = check(Direction::filter, handle, x, dw, convolution, dy, p);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  return queue(handle, p, algorithm, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT, alpha, beta, extent(*x),
               extent(*dy), extent(*dw),
               {x_data, dy_data, dw_data, workspace, workspace_bytes, 0, 0});
}

// SPDX-License-Identifier: Apache-2.0
// What NVIDIA's libraries are asked, held by their stand-ins: the switches, sizes and addresses
// that the table of ops does not reach. Numbers are small integers, so results are equal.
#include <peal/autograd/core/graph.h>
#include <peal/autograd/core/stream.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/ops.h>
#include <peal/tests/autograd/arrays.h>
#include <peal/tests/errors.h>

#include "library.h"
#include "on_device.h"

#include <cublasLt.h>

#include <thread>
#include <utility>

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::test;
using testing::error_of;

namespace {

constexpr Device gpu{DeviceType::cuda, 0};

Tensor integers(const Shape& shape, int seed, DType dtype = DType::f32) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(seed)) % 5) - 2;
  }
  return cast(Tensor::from(values, shape, Device{}), dtype);
}

std::vector<double> numbers(const Tensor& x) {
  return cast(x.to(Device{}), DType::f64).to_vector<double>();
}

// f on the device gives what it gives on the CPU.
template <class F>
void check_equal(F&& f, const Tensors& x) {
  Tensors there;
  for (const Tensor& operand : x) there.push_back(operand.to(gpu));
  CHECK(numbers(f(there)) == numbers(f(x)));
}

// The same elements at an address that only their own size divides.
Tensor misaligned(const Tensor& x) {
  const Tensor room = Tensor::empty({x.numel() + 1}, x.dtype(), gpu);
  const Tensor there = room.detach(x.shape(), 1);
  there.copy_(x);
  return there;
}

}  // namespace

TEST_CASE("operands and biases at any address") {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    CAPTURE(concat(dtype));
    const Tensor x = integers({3, 8}, 1, dtype), w = integers({4, 8}, 2, dtype);
    const Tensor bias = integers({4}, 3, dtype);
    const auto expected = numbers(linear(x, w, bias));
    const Tensors there = {x.to(gpu), w.to(gpu), bias.to(gpu)};
    for (int which = 0; which < 8; ++which) {
      const auto at = [&](int i) {
        return (which >> i & 1) != 0 ? misaligned(there[static_cast<std::size_t>(i)])
                                     : there[static_cast<std::size_t>(i)];
      };
      CHECK(numbers(linear(at(0), at(1), at(2))) == expected);
    }
    // And on: the plan of one address is not that of another.
    CHECK(numbers(linear(there[0], there[1], there[2])) == expected);
  }
}

TEST_CASE("every call has its own bias") {
  const Tensor x = integers({3, 8}, 1), w = integers({4, 8}, 2);
  Tensors biases;
  for (int i = 0; i < 3; ++i) biases.push_back(integers({4}, i).to(gpu));
  for (const Tensor& bias : biases) {
    CHECK(numbers(linear(x.to(gpu), w.to(gpu), bias)) == numbers(linear(x, w, bias.to(Device{}))));
  }
}

TEST_CASE("a product with the sums of its first operand's rows") {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        for (const std::int64_t k : {0, 5, 8}) {
          const Tensor a = integers(ta ? Shape{k, 3} : Shape{3, k}, 1, dtype);
          const Tensor b = integers(tb ? Shape{4, k} : Shape{k, 4}, 2, dtype);
          const auto product = numbers(matmul(a, b, ta, tb));
          const auto expected = numbers(sum(cast(a, DType::f64), {ta ? 0 : 1}));
          const Tensor aligned = Tensor::zeros({3}, dtype, gpu);
          for (const Tensor& sums : {aligned, misaligned(aligned)}) {
            const Tensor out = Tensor::empty({3, 4}, dtype, gpu), there = a.to(gpu);
            kernels(gpu).matmul_and_sums("linear", out, out, there, b.to(gpu), ta, tb, sums);
            CHECK(numbers(out) == product);
            CHECK(numbers(sums) == expected);
          }
        }
      }
    }
  }
}

TEST_CASE("gelu and its gradient within products of low precision, where the library has them") {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    CAPTURE(concat(dtype));
    const bool within = dtype != DType::f32;
    const double bound = dtype == DType::f32 ? 1e-6 : dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
    const auto empty = [&](const Shape& shape) { return Tensor::empty(shape, dtype, gpu); };
    const Tensor x = integers({3, 8}, 1, dtype).to(gpu), up = integers({16, 8}, 2, dtype).to(gpu);
    const Tensor g = integers({3, 8}, 4, dtype).to(gpu), down = integers({8, 16}, 5, dtype).to(gpu);
    const Tensor bias = integers({16}, 3, dtype).to(gpu), sums = empty({16});
    const Tensor slope = empty({3, 16}), out = empty({3, 16}), kept = empty({3, 16});
    const auto forward = [&](const Tensor& to, const Tensor& add) {
      kernels(gpu).matmul_gelu("feed_forward", x, out, to, x, up, add);
      return cuda_host::last_product_epilogue();
    };
    const auto backward = [&](const Tensor& total, const Tensor& from) {
      kernels(gpu).matmul_gelu_backward("feed_forward", x, slope, total, g, down, from);
      return cuda_host::last_product_epilogue();
    };
    CHECK(forward(kept, bias) ==
          (within ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_BIAS));
    CHECK(backward(sums, kept) == (within ? CUBLASLT_EPILOGUE_DGELU : CUBLASLT_EPILOGUE_DEFAULT));
    const auto expected = numbers(out), input = numbers(kept), slopes = numbers(slope);
    CHECK(input == numbers(linear(x, up, bias)));
    const Tensor wide = cast(kept.to(Device{}), DType::f64);
    CHECK(distance(expected, numbers(gelu(wide, GeluApproximation::tanh))) < bound);
    CHECK(distance(numbers(sum(cast(slope, DType::f32), {0})), numbers(sums)) < bound);
    CHECK(forward({}, bias) == (within ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_BIAS));
    CHECK(numbers(out) == expected);
    CHECK(forward(kept, {}) == (within ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_DEFAULT));
    CHECK(forward({}, {}) == (within ? CUBLASLT_EPILOGUE_GELU : CUBLASLT_EPILOGUE_DEFAULT));
    CHECK(forward(misaligned(kept), bias) == CUBLASLT_EPILOGUE_BIAS);
    CHECK(distance(numbers(out), expected) < bound);
    CHECK(forward(kept, misaligned(bias)) == CUBLASLT_EPILOGUE_DEFAULT);
    CHECK(distance(numbers(out), expected) < bound);
    CHECK(backward({}, kept) == (within ? CUBLASLT_EPILOGUE_DGELU : CUBLASLT_EPILOGUE_DEFAULT));
    CHECK(numbers(slope) == slopes);
    CHECK(backward({}, misaligned(kept)) == CUBLASLT_EPILOGUE_DEFAULT);
    CHECK(distance(numbers(slope), slopes) < bound);
  }
}

TEST_CASE("empty products") {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const Shape& shape : {Shape{3, 0}, Shape{0, 4}, Shape{0, 0}}) {
      const Tensor bias = integers({2}, 1, dtype);
      const Tensor x = integers(shape, 1, dtype), w = integers({2, shape[1]}, 1, dtype);
      check_equal([](const Tensors& t) { return linear(t[0], t[1], t[2]); }, {x, w, bias});
      check_equal([](const Tensors& t) { return linear(t[0], t[1]); }, {x, w});
    }
    check_equal([](const Tensors& t) { return matmul(t[0], t[1]); },
                {integers({2, 3, 0}, 1, dtype), integers({2, 0, 4}, 1, dtype)});
  }
}

TEST_CASE("a batch beyond the grid's") {
  check_equal([](const Tensors& t) { return matmul(t[0], t[1]); },
              {integers({65537, 1, 2}, 1), integers({65537, 2, 1}, 2)});
}

TEST_CASE("integers have no product there") {
  const Tensor x = Tensor::zeros({2, 2}, DType::i32, gpu);
  CHECK(error_of([&] { matmul(x, x); }) == "matmul: no cuda kernel for i32");
}

TEST_CASE("sums of low precision are f32") {
  const Tensor ones = full({1, 4099}, 1, DType::f16, gpu);
  CHECK(matmul(ones, ones, false, true).item<float>() == 4100);  // f16's neighbour of 4099
}

TEST_CASE("TF32 where it is allowed, and only there") {
  const float x = 1 + 0x1p-12f;
  const Tensor a = Tensor::from(std::vector<float>{x}, {1, 1}, gpu);
  const Tensor image = a.detach({1, 1, 1, 1});
  for (const bool allowed : {false, true, false}) {
    context().allow_tf32 = allowed;
    CHECK(matmul(a, full({1, 1}, 1, DType::f32, gpu)).item<float>() == (allowed ? 1 : x));
    CHECK(conv2d(image, full({1, 1, 1, 1}, 1, DType::f32, gpu)).item<float>() == (allowed ? 1 : x));
  }
}

TEST_CASE("streams have workspace of their own") {
  const Tensor x = integers({4, 6}, 1), w = integers({6, 6}, 2);
  const auto twice = [](const Tensor& a, const Tensor& b) { return matmul(matmul(a, b), b); };
  const auto expected = numbers(twice(x, w));
  const Tensor there = x.to(gpu), weight = w.to(gpu);
  const Stream streams[] = {Stream::create(gpu), Stream::create(gpu)};
  Tensor results[2];
  for (int i = 0; i < 2; ++i) {
    const StreamGuard guard(streams[i]);
    results[i] = twice(there, weight);
  }
  for (int i : {1, 0}) {
    const StreamGuard guard(streams[i]);
    CHECK(numbers(results[i]) == expected);
  }
}

TEST_CASE("devices have handles of their own") {
  for (const int index : {1, 0, 1}) {
    const Device device{DeviceType::cuda, index};
    const Tensor x = integers({2, 2}, 1), image = x.detach({1, 1, 2, 2});
    const Tensor there = x.to(device), image_there = image.to(device);
    CHECK(numbers(matmul(there, there)) == numbers(matmul(x, x)));
    CHECK(numbers(conv2d(image_there, image_there)) == numbers(conv2d(image, image)));
  }
}

// Handles are a thread's own while it lives, and the next one's then.
TEST_CASE("threads multiply and convolve at once") {
  const Tensor x = integers({1, 1, 4, 4}, 1), w = integers({1, 1, 3, 3}, 2);
  const auto run = [&](const Device& device) {
    const Tensor y = conv2d(x.to(device), w.to(device));
    return numbers(matmul(y, y));
  };
  const auto expected = run(Device{});
  std::vector<double> got[4];
  for (int i = 0; i < 4; i += 2) {
    std::thread one([&, i] { got[i] = run(gpu); }), two([&, i] { got[i + 1] = run(gpu); });
    one.join();
    two.join();
  }
  for (const auto& result : got) CHECK(result == expected);
}

TEST_CASE("attention over rows of any length, its batches either way round") {
  struct Case {
    std::int64_t batch, heads, queries, keys;
  };
  for (const Case& c : {Case{3, 2, 4, 5}, Case{2, 3, 4, 5}, Case{1, 1, 3, 1100}}) {
    for (const bool causal : {false, true}) {
      const std::int64_t row = c.heads * 2;
      Tensors x, there;
      for (const std::int64_t length : {c.queries, c.keys, c.keys}) {
        x.push_back(normal<float>({c.batch, length, row}, static_cast<unsigned>(x.size()) + 1));
        there.push_back(x.back().to(gpu));
        x.back().set_requires_grad();
        there.back().set_requires_grad();
      }
      const auto run = [&](const Tensors& t) {
        const Tensor y = scaled_dot_product_attention(t[0], t[1], t[2], c.heads, causal);
        y.backward(normal<float>(y.shape(), 9).to(y.device()));
        return y;
      };
      CHECK(distance(run(there).to(Device{}), run(x)) < 1e-5);
      for (std::size_t i = 0; i < 3; ++i) {
        CHECK(distance(there[i].grad().to(Device{}), x[i].grad()) < 1e-5);
      }
    }
  }
}

TEST_CASE("deterministic algorithms where they are wanted") {
  const Tensor x = integers({2, 4, 5, 5}, 1).to(gpu), w = integers({4, 4, 3, 3}, 2).to(gpu);
  x.set_requires_grad();
  w.set_requires_grad();
  for (const bool wanted : {false, true, false}) {
    context().deterministic = wanted;
    conv2d(x, w).backward(integers({2, 4, 3, 3}, 3).to(gpu));
    CHECK(cuda_host::last_convolution_algorithm() == (wanted ? 1 : 0));
  }
  // The CPU's order, in numbers whose sums depend on it.
  std::vector<std::int64_t> places(1000);
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<std::int64_t>(i * i % 3);
  const Tensor at = Tensor::from(places, {1000}), addends = normal<float>({1000}, 4);
  const auto sums = [](const Tensor& x, const Tensor& index) {
    const Tensor out = Tensor::zeros({3}, DType::f32, x.device());
    kernels(x.device()).scatter_add("scatter_add", x, out, x, index, 0);
    return numbers(out);
  };
  context().deterministic = true;
  CHECK(sums(addends.to(gpu), at.to(gpu)) == sums(addends, at));
  context().deterministic = false;
}

TEST_CASE("a convolution that is refused goes to the next algorithm") {
  const Tensor x = integers({2, 3, 6, 7}, 1), w = integers({4, 3, 3, 3}, 2);
  const Tensor there = x.to(gpu), weight = w.to(gpu), dy = integers({2, 4, 4, 5}, 3);
  weight.set_requires_grad();
  there.set_requires_grad();
  w.set_requires_grad();
  x.set_requires_grad();
  conv2d(x, w).backward(dy);
  cuda_host::refuse_convolutions(0b001);
  const Tensor y = conv2d(there, weight);
  CHECK(cuda_host::last_convolution_algorithm() == 1);
  y.backward(dy.to(gpu));
  CHECK(cuda_host::last_convolution_algorithm() == 1);
  cuda_host::refuse_convolutions(0);
  CHECK(numbers(y) == numbers(conv2d(x, w)));
  CHECK(numbers(weight.grad()) == numbers(w.grad()));
  CHECK(numbers(there.grad()) == numbers(x.grad()));
  conv2d(there, weight);
  CHECK(cuda_host::last_convolution_algorithm() == 1);  // and stays there
  cuda_host::refuse_convolutions(0b011);
  const Tensor other = integers({1, 3, 6, 7}, 1).to(gpu);
  const std::string text = error_of([&] { conv2d(other, weight); });
  CAPTURE(text);
  for (const char* part : {"cuDNN runs none of its algorithms, for f32 input [1, 3, 6, 7]",
                           "; algorithm 0 with 0 bytes of workspace: CUDNN_STATUS_NOT_SUPPORTED",
                           "; algorithm 1 with 1032 bytes of workspace: CUDNN_STATUS_NOT_SUPPORTED",
                           "as the test wants it"}) {
    CHECK(text.find(part) != std::string::npos);
  }
  cuda_host::refuse_convolutions(0);
  conv2d(other, weight);
  CHECK(cuda_host::last_convolution_algorithm() == 0);  // a plan is not spoilt by a failure
}

TEST_CASE("the fastest algorithm where convolutions are timed") {
  const Tensor x = integers({2, 4, 5, 6}, 1), w = integers({4, 4, 3, 3}, 2);
  const Tensor dy = integers({2, 4, 3, 4}, 3);
  const Tensor there = x.to(gpu), weight = w.to(gpu);
  for (const Tensor& each : {x, w, there, weight}) each.set_requires_grad();
  conv2d(x, w).backward(dy);
  const auto run = [&] {  // the algorithm of forward, and of the gradient that comes last
    weight.zero_grad();
    there.zero_grad();
    const Tensor y = conv2d(there, weight);
    const int forward = cuda_host::last_convolution_algorithm();
    y.backward(dy.to(gpu));
    CHECK(numbers(y) == numbers(conv2d(x, w)));
    CHECK(numbers(weight.grad()) == numbers(w.grad()));
    CHECK(numbers(there.grad()) == numbers(x.grad()));
    return std::pair(forward, cuda_host::last_convolution_algorithm());
  };
  cuda_host::slow_convolutions(0b001);
  CHECK(run() == std::pair(0, 0));  // nobody asked
  context().cudnn_benchmark = true;
  CHECK(run() == std::pair(1, 1));
  cuda_host::slow_convolutions(0b010);
  CHECK(run() == std::pair(1, 1));  // timed once
  context().deterministic = true;
  CHECK(run() == std::pair(0, 1));  // the other one's sums of gradients come in any order
  context().deterministic = false;
  // What does not run is not the fastest.
  const Tensor other = integers({1, 4, 5, 6}, 1).to(gpu);
  cuda_host::refuse_convolutions(0b001);
  conv2d(other, weight);
  CHECK(cuda_host::last_convolution_algorithm() == 1);
  cuda_host::refuse_convolutions(0);
  context().cudnn_benchmark = false;
  cuda_host::slow_convolutions(0);
}

TEST_CASE("what a thread has timed is known to the threads after it") {
  const Tensor x = integers({5, 4, 5, 6}, 1).to(gpu), w = integers({4, 4, 3, 3}, 2).to(gpu);
  const auto algorithm = [&](int slow) {  // of a thread that DataParallel makes for a step
    int taken = -1;
    std::thread([&] {
      context().cudnn_benchmark = true;
      cuda_host::slow_convolutions(slow);
      conv2d(x, w);
      taken = cuda_host::last_convolution_algorithm();
    }).join();
    return taken;
  };
  CHECK(algorithm(0b001) == 1);
  CHECK(algorithm(0b010) == 1);
}

TEST_CASE("a capture times no convolution") {
  const Tensor x = integers({3, 4, 5, 6}, 1), w = integers({4, 4, 3, 3}, 2);
  const Tensor there = x.to(gpu), weight = w.to(gpu);
  context().cudnn_benchmark = true;
  cuda_host::slow_convolutions(0b001);
  Graph graph(gpu, 1);
  Tensor y;
  bool called = false;
  for (int i = 0; i < 2; ++i) {
    graph.run([&] {  // of this geometry for the first time when it is captured
      if (std::exchange(called, true)) y = conv2d(there, weight);
    });
  }
  REQUIRE(graph.captured());
  CHECK(cuda_host::last_convolution_algorithm() == 0);
  CHECK(numbers(y) == numbers(conv2d(x, w)));
  conv2d(there, weight);
  CHECK(cuda_host::last_convolution_algorithm() == 1);
  context().cudnn_benchmark = false;
  cuda_host::slow_convolutions(0);
}

TEST_CASE("a convolution of nothing") {
  const auto run = [](const Tensors& t) { return conv2d(t[0], t[1], t[2]); };
  const Tensor bias = integers({2}, 1);
  check_equal(run, {integers({0, 3, 4, 4}, 1), integers({2, 3, 3, 3}, 1), bias});
  const Tensor x = integers({0, 3, 4, 4}, 1).to(gpu), w = integers({2, 3, 3, 3}, 1).to(gpu);
  w.set_requires_grad();
  const Tensor y = conv2d(x, w);
  y.backward(Tensor::zeros(y.shape(), y.dtype(), gpu));
  CHECK(numbers(w.grad()) == std::vector<double>(54, 0.0));
}

// The stand-in is all that tests the calls, so it is tested itself.
TEST_CASE("the stand-in of cuBLASLt refuses what the library would") {
  const Tensor x = integers({4, 4}, 1).to(gpu), out = Tensor::empty({4, 4}, DType::f32, gpu);
  cublasLtHandle_t handle = nullptr;
  REQUIRE(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  struct Call {
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a, b, d;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t result;
  } call{};
  float factors[] = {1, 0};
  int found = 0;
  const auto describe = [&](cublasComputeType_t compute, cudaDataType scale, cudaDataType out_type,
                            std::int64_t leading) {
    cublasLtMatmulDescInit(&call.operation, compute, scale);
    cublasLtMatrixLayoutInit(&call.a, CUDA_R_32F, 4, 4, leading);
    cublasLtMatrixLayoutInit(&call.b, CUDA_R_32F, 4, 4, 4);
    cublasLtMatrixLayoutInit(&call.d, out_type, 4, 4, 4);
    cublasLtMatmulPreferenceInit(&call.preference);
    const std::uint64_t bytes = 1 << 20;
    cublasLtMatmulPreferenceSetAttribute(&call.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &bytes, sizeof bytes);
  };
  const auto heuristic = [&] {
    return cublasLtMatmulAlgoGetHeuristic(handle, &call.operation, &call.a, &call.b, &call.d,
                                          &call.d, &call.preference, 1, &call.result, &found);
  };
  const auto multiply = [&](void* to, std::size_t workspace_bytes) {
    const Tensor workspace = Tensor::empty({8192}, DType::u8, gpu);
    return cublasLtMatmul(handle, &call.operation, &factors[0], x.raw(), &call.a, x.raw(), &call.b,
                          &factors[1], to, &call.d, to, &call.d, &call.result.algo, workspace.raw(),
                          workspace_bytes, nullptr);
  };
  describe(CUBLAS_COMPUTE_32F, CUDA_R_64F, CUDA_R_32F, 4);
  CHECK(heuristic() == CUBLAS_STATUS_NOT_SUPPORTED);  // alpha's type
  describe(CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, 4);
  CHECK(heuristic() == CUBLAS_STATUS_NOT_SUPPORTED);  // f32 to f16
  describe(CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, 3);
  CHECK(heuristic() == CUBLAS_STATUS_INVALID_VALUE);  // columns overlap
  describe(CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, 4);
  REQUIRE(heuristic() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(found == 1);
  REQUIRE(call.result.workspaceSize > 0);
  CHECK(multiply(out.raw(), 8192) == CUBLAS_STATUS_SUCCESS);
  CHECK(multiply(out.raw(), 1) == CUBLAS_STATUS_INVALID_VALUE);  // little workspace
  CHECK(multiply(static_cast<float*>(out.raw()) + 1, 8192) ==
        CUBLAS_STATUS_INVALID_VALUE);                             // address, end
  CHECK(multiply(factors, 8192) == CUBLAS_STATUS_INVALID_VALUE);  // the host's memory
  const std::int32_t batch = 2;
  CHECK(cublasLtMatrixLayoutSetAttribute(&call.a, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, 8) ==
        CUBLAS_STATUS_INVALID_VALUE);  // the attribute's size
  CHECK(cublasLtMatrixLayoutSetAttribute(&call.a, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, 4) ==
        CUBLAS_STATUS_SUCCESS);
  CHECK(multiply(out.raw(), 8192) == CUBLAS_STATUS_INVALID_VALUE);  // batches differ
  describe(CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, 4);
  const std::uint32_t gelu = CUBLASLT_EPILOGUE_GELU_AUX;
  cublasLtMatmulDescSetAttribute(&call.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &gelu, 4);
  CHECK(heuristic() == CUBLAS_STATUS_INVALID_VALUE);  // no address for its input
  const void* input = out.raw();
  cublasLtMatmulDescSetAttribute(&call.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &input,
                                 sizeof input);
  for (const std::int64_t leading : {0, 4, 12, 8}) {  // a multiple of 8, and not below the rows
    cublasLtMatmulDescSetAttribute(&call.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &leading,
                                   sizeof leading);
    CHECK(heuristic() == (leading == 8 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE));
  }
  describe(CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, 5);
  CHECK(multiply(out.raw(), 8192) == CUBLAS_STATUS_INVALID_VALUE);  // another problem's algorithm
  synchronize(gpu);
  cublasLtDestroy(handle);
}

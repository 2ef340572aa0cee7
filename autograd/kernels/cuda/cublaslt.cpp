// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/tensor.h>
#include <peal/autograd/kernels/cuda/cublaslt.h>
#include <peal/autograd/kernels/cuda/handles.h>

#include <cublasLt.h>

#include <algorithm>

namespace peal::cuda {
namespace {

constexpr std::uint64_t most_product_workspace = 32u << 20;  // what NVIDIA recommends for Hopper
constexpr std::int64_t most_in_batch = 65535;                // the grid's third dimension

std::string text_of(const RowProduct& o, ProductTypes types) {
  return concat(types.operands, " [", o.m, ", ", o.k, "] x [", o.k, ", ", o.n, "] to ", types.out,
                o.transpose_a ? ", first transposed" : "",
                o.transpose_b ? ", second transposed" : "", ", rows ", o.row_a, ", ", o.row_b,
                " and ", o.row_out, " apart, batch ", o.batch);
}

// What was asked of cuBLASLt, for which product, and its answer.
#define PEAL_CUBLAS_CHECK(call, ...)                                                           \
  do {                                                                                         \
    const cublasStatus_t peal_status = (call);                                                 \
    PEAL_CHECK(peal_status == CUBLAS_STATUS_SUCCESS, "cuda: ", name_of_call(#call), ": ",      \
               cublasLtGetStatusName(peal_status), ", ", cublasLtGetStatusString(peal_status), \
               __VA_ARGS__);                                                                   \
  } while (false)

cublasLtHandle_t create_handle() {
  cublasLtHandle_t handle = nullptr;
  PEAL_CUBLAS_CHECK(cublasLtCreate(&handle), " (is the device's memory full?)");
  return handle;
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

// Descriptors and the chosen algorithm. Nothing of it has to be destroyed.
struct ProductPlan {
  bool possible = false;
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t first, second, out;
  cublasLtMatmulAlgo_t algorithm;
  std::size_t workspace;
};

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t which, T value) {
  PEAL_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(operation, which, &value, sizeof value),
                    ", attribute ", static_cast<int>(which));
}
template <class T>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which, T value) {
  PEAL_CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(layout, which, &value, sizeof value),
                    ", attribute ", static_cast<int>(which));
}
template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t which,
         T value) {
  PEAL_CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, which, &value, sizeof value),
                    ", attribute ", static_cast<int>(which));
}

void describe(cublasLtMatrixLayoutOpaque_t& layout, const ColumnMatrix& x, std::int64_t batch,
              DType dtype) {
  PEAL_CUBLAS_CHECK(
      cublasLtMatrixLayoutInit(&layout, type_of(dtype), static_cast<std::uint64_t>(x.rows),
                               static_cast<std::uint64_t>(x.columns), x.leading),
      ", for a matrix [", x.rows, ", ", x.columns, "], leading ", x.leading);
  if (batch == 1) return;
  set(&layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batch));
  set(&layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, x.step);
}

// The largest power of two, up to 256, that divides every address that a batch begins at.
std::uint32_t alignment_of(const void* data, const ColumnMatrix& x, std::int64_t batch,
                           DType dtype) {
  auto bits = reinterpret_cast<std::uintptr_t>(data) | 256u;
  if (batch > 1) bits |= static_cast<std::uintptr_t>(x.step) * size_of(dtype);
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

struct Alignments {
  std::uint32_t first, second, out;
};

// What is done beside the product, and with which vector and matrix. a is the library's second
// matrix.
struct Epilogue {
  cublasLtEpilogue_t kind = CUBLASLT_EPILOGUE_DEFAULT;
  const void *vector, *matrix;
  explicit Epilogue(const ProductData& data)
      : vector(data.bias != nullptr ? data.bias : data.sums), matrix(data.gelu_input) {
    const bool biased = data.bias != nullptr;
    switch (data.gelu) {
      case Gelu::none:
        if (biased) kind = CUBLASLT_EPILOGUE_BIAS;
        if (data.sums != nullptr) kind = CUBLASLT_EPILOGUE_BGRADB;
        break;
      case Gelu::made:
        kind = biased ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
        if (matrix == nullptr) break;
        kind = biased ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
        break;
      case Gelu::slope:
        kind = CUBLASLT_EPILOGUE_DGELU;
        break;
    }
  }
  // The addresses, which the plan's first call and every other one has its own of.
  void point(cublasLtMatmulDesc_t operation) const {
    if (vector != nullptr) set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
    if (matrix != nullptr) set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, matrix);
  }
};

void make_plan(ProductPlan& plan, const RowProduct& o, ProductTypes types, Device device,
               const Epilogue& epilogue, const Alignments& aligned) {
  const ColumnProduct product = column_major(o);
  const bool wide = types.operands == DType::f64;
  cublasComputeType_t compute = wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
  if (types.operands == DType::f32 && context().allow_tf32) compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  PEAL_CUBLAS_CHECK(
      cublasLtMatmulDescInit(&plan.operation, compute, wide ? CUDA_R_64F : CUDA_R_32F), "");
  const auto flag = [](const ColumnMatrix& x) {
    return static_cast<std::int32_t>(x.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  };
  set(&plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, flag(product.first));
  set(&plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, flag(product.second));
  const bool plain = epilogue.kind == CUBLASLT_EPILOGUE_DEFAULT;
  if (!plain) {
    set(&plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(epilogue.kind));
  }
  epilogue.point(&plan.operation);
  if (epilogue.matrix != nullptr) {
    if (o.row_out % 8 != 0) return;  // what cuBLASLt wants of such a matrix
    set(&plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, o.row_out);
  }
  describe(plan.first, product.first, o.batch, types.operands);
  describe(plan.second, product.second, o.batch, types.operands);
  describe(plan.out, product.out, o.batch, types.out);

  cublasLtMatmulPreferenceOpaque_t preference;
  PEAL_CUBLAS_CHECK(cublasLtMatmulPreferenceInit(&preference), "");
  set(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most_product_workspace);
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned.first);
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned.second);
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned.out);
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned.out);
  if (is_low_precision(types.out)) {
    // Where k is split, partial sums are added in f32, not in out's type.
    set(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  }
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_on<cublasLtHandle_t, create_handle>(device), &plan.operation, &plan.first,
      &plan.second, &plan.out, &plan.out, &preference, 1, &result, &found);
  plan.possible =
      status == CUBLAS_STATUS_SUCCESS && found > 0 && result.state == CUBLAS_STATUS_SUCCESS;
  if (plain) {
    PEAL_CHECK(plan.possible,
               "cuda: cublasLtMatmulAlgoGetHeuristic: ", cublasLtGetStatusName(status), ", and ",
               found, " algorithms, for ", text_of(o, types));
  }
  plan.algorithm = result.algo;
  plan.workspace = result.workspaceSize;
}

// A thread's, for a device: by everything that a plan depends on.
using ProductPlans = PlanCache<21, ProductPlan>;
ProductPlans* new_product_plans() { return new ProductPlans; }

ProductPlans::Key key_of(const RowProduct& o, ProductTypes types, const Epilogue& epilogue,
                         const Alignments& aligned) {
  const auto number = [](auto value) { return static_cast<std::int64_t>(value); };
  return {o.m,
          o.n,
          o.k,
          number(o.transpose_a),
          number(o.transpose_b),
          o.row_a,
          o.row_b,
          o.row_out,
          o.batch,
          o.step_a,
          o.step_b,
          o.step_out,
          number(types.operands),
          number(types.out),
          number(epilogue.kind),
          number(epilogue.vector == nullptr ? 0 : alignment_of(epilogue.vector, {}, 1, types.out)),
          number(epilogue.matrix == nullptr ? 0 : alignment_of(epilogue.matrix, {}, 1, types.out)),
          number(aligned.first),
          number(aligned.second),
          number(aligned.out),
          number(context().allow_tf32)};
}

// A batch that the grid holds.
bool multiply_batch(const RowProduct& o, ProductTypes types, Device device, const ProductData& data,
                    double alpha, bool add, cudaStream_t stream) {
  const ColumnProduct product = column_major(o);
  const Alignments aligned{alignment_of(data.b, product.first, o.batch, types.operands),
                           alignment_of(data.a, product.second, o.batch, types.operands),
                           alignment_of(data.out, product.out, o.batch, types.out)};
  ProductPlans& plans = *handle_on<ProductPlans*, new_product_plans>(device);
  const Epilogue epilogue(data);
  ProductPlan& plan = plans.get(key_of(o, types, epilogue, aligned), [&](ProductPlan& made) {
    make_plan(made, o, types, device, epilogue, aligned);
  });
  if (!plan.possible) return false;
  epilogue.point(&plan.operation);
  Tensor workspace;  // goes back at the end, to the stream that still uses it
  if (plan.workspace > 0) {
    workspace = Tensor::empty({static_cast<std::int64_t>(plan.workspace)}, DType::u8, device);
  }
  const double wide[] = {alpha, add ? 1.0 : 0.0};
  const float narrow[] = {static_cast<float>(alpha), add ? 1.0f : 0.0f};
  const auto factor = [&](int i) -> const void* {
    if (types.operands == DType::f64) return &wide[i];
    return &narrow[i];
  };
  PEAL_CUBLAS_CHECK(
      cublasLtMatmul(handle_on<cublasLtHandle_t, create_handle>(device), &plan.operation, factor(0),
                     data.b, &plan.first, data.a, &plan.second, factor(1), data.out, &plan.out,
                     data.out, &plan.out, &plan.algorithm,
                     plan.workspace > 0 ? workspace.raw() : nullptr, plan.workspace, stream),
      ", for ", text_of(o, types));
  return true;
}

}  // namespace

bool has_product(DType dtype) { return is_floating(dtype); }

bool multiply(const RowProduct& o, ProductTypes types, Device device, const ProductData& data,
              double alpha, bool add) {
  if (o.m == 0 || o.n == 0 || o.batch == 0) return true;
  const cudaStream_t stream = stream_on(device);
  const auto at = [](const void* first, std::int64_t elements, DType dtype) {
    return static_cast<const std::byte*>(first) +
           elements * static_cast<std::int64_t>(size_of(dtype));
  };
  for (std::int64_t begin = 0; begin < o.batch; begin += most_in_batch) {
    RowProduct part = o;
    part.batch = std::min(most_in_batch, o.batch - begin);
    const ProductData here{const_cast<std::byte*>(at(data.out, begin * o.step_out, types.out)),
                           at(data.a, begin * o.step_a, types.operands),
                           at(data.b, begin * o.step_b, types.operands),
                           data.bias,
                           data.sums,
                           data.gelu,
                           data.gelu_input};
    if (!multiply_batch(part, types, device, here, alpha, add, stream)) return false;
  }
  return true;
}

}  // namespace peal::cuda

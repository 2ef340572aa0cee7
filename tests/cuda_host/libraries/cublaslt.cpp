// SPDX-License-Identifier: Apache-2.0
// cuBLASLt's handles and descriptors.
#include "cublaslt_state.h"

using namespace cuda_host;

namespace {

thread_local std::string reason;

template <class T, class State, class Opaque>
cublasStatus_t take(Opaque* opaque, State& state, T State::*member, const void* value,
                    std::size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) {
    return invalid("an attribute of " + std::to_string(sizeof(T)) + " bytes is given as " +
                   std::to_string(bytes));
  }
  std::memcpy(&(state.*member), value, sizeof(T));
  put(opaque, state);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasStatus_t cuda_host::refuse(cublasStatus_t status, std::string why) {
  reason = std::move(why);
  return status;
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "CUBLAS_STATUS_UNKNOWN";
  }
}

const char* cublasLtGetStatusString(cublasStatus_t) { return reason.c_str(); }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (handle == nullptr) return invalid("nowhere to put the handle");
  const int device = current_device();
  if (device < 0) return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "there is no device");
  *handle = new cublasLtContext{device};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType type,
                                        std::uint64_t rows, std::uint64_t columns,
                                        std::int64_t leading) {
  put(layout, Layout{mark, type, rows, columns, leading, 1, 0});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t bytes) {
  Layout x = get<Layout>(layout);
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return take(layout, x, &Layout::batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return take(layout, x, &Layout::offset, value, bytes);
  }
  return invalid("no such attribute");
}

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t operation, cublasComputeType_t compute,
                                      cudaDataType_t scale) {
  put(operation, Operation{mark, compute, scale, CUBLAS_OP_N, CUBLAS_OP_N,
                           CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, 0});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  Operation o = get<Operation>(operation);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(operation, o, &Operation::transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(operation, o, &Operation::transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(operation, o, &Operation::epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(operation, o, &Operation::bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return take(operation, o, &Operation::aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return take(operation, o, &Operation::aux_leading, value, bytes);
  }
  return invalid("no such attribute");
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t preference) {
  put(preference, Preference{mark, 0, CUBLASLT_REDUCTION_SCHEME_MASK, 256, 256, 256, 256});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  Preference x = get<Preference>(preference);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(preference, x, &Preference::workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(preference, x, &Preference::reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return take(preference, x, &Preference::aligned_a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return take(preference, x, &Preference::aligned_b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return take(preference, x, &Preference::aligned_c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return take(preference, x, &Preference::aligned_d, value, bytes);
  }
  return invalid("no such attribute");
}

# cuDNN 9 as CuDnn::CuDnn, beside the CUDA toolkit or where the system has its libraries. It loads its parts when it
# is first used.
find_path(CuDnn_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
# PyTorch's packages have no name without a version.
find_library(CuDnn_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR})
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CuDnn REQUIRED_VARS CuDnn_LIBRARY CuDnn_INCLUDE_DIR)
if(CuDnn_FOUND AND NOT TARGET CuDnn::CuDnn)
  add_library(CuDnn::CuDnn UNKNOWN IMPORTED)
  set_target_properties(CuDnn::CuDnn PROPERTIES IMPORTED_LOCATION "${CuDnn_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${CuDnn_INCLUDE_DIR}")
endif()
mark_as_advanced(CuDnn_INCLUDE_DIR CuDnn_LIBRARY)

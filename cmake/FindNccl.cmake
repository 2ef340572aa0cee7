# NCCL as Nccl::Nccl: beside the CUDA toolkit, where NVIDIA's packages put it, or in the system's folders.
find_path(Nccl_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
# PyTorch's packages have no name without a version.
find_library(Nccl_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR})
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Nccl REQUIRED_VARS Nccl_LIBRARY Nccl_INCLUDE_DIR)
if(Nccl_FOUND AND NOT TARGET Nccl::Nccl)
  add_library(Nccl::Nccl UNKNOWN IMPORTED)
  set_target_properties(Nccl::Nccl PROPERTIES IMPORTED_LOCATION "${Nccl_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Nccl_INCLUDE_DIR}")
endif()
mark_as_advanced(Nccl_INCLUDE_DIR Nccl_LIBRARY)

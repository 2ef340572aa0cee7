# The headers of nvidia-cudnn-frontend (MIT), CuDnnFrontend_INCLUDE_DIR: beside cuDNN's, or where pip put them. Header-only C++
# over cuDNN's graph API, of which one part, unused here, calls NVRTC.
find_package(Python3 QUIET COMPONENTS Interpreter)
if(Python3_Interpreter_FOUND)
  execute_process(COMMAND "${Python3_EXECUTABLE}" -c "import sysconfig; print(sysconfig.get_path('purelib'))"
    OUTPUT_VARIABLE CuDnnFrontend_site OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
find_path(CuDnnFrontend_INCLUDE_DIR cudnn_frontend.h HINTS ${CuDnn_INCLUDE_DIR} "${CuDnnFrontend_site}/include")
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CuDnnFrontend REQUIRED_VARS CuDnnFrontend_INCLUDE_DIR)
mark_as_advanced(CuDnnFrontend_INCLUDE_DIR)

# The headers of nvidia-cudnn-frontend (MIT), CuDnnFrontend_INCLUDE_DIR: where pip put them, or beside cuDNN's. Header-only C++
# over cuDNN's graph API, of which one part, unused here, calls NVRTC.
find_package(Python3 QUIET COMPONENTS Interpreter)
if(Python3_Interpreter_FOUND)
  execute_process(COMMAND "${Python3_EXECUTABLE}" -c "import sysconfig; print(sysconfig.get_path('purelib'))"
    OUTPUT_VARIABLE CuDnnFrontend_site OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
find_path(CuDnnFrontend_INCLUDE_DIR cudnn_frontend.h HINTS "${CuDnnFrontend_site}/include" ${CuDnn_INCLUDE_DIR})
if(CuDnnFrontend_INCLUDE_DIR)
  set(CuDnnFrontend_VERSION 0)  # one that does not say it is older than any that is asked for
  if(EXISTS "${CuDnnFrontend_INCLUDE_DIR}/cudnn_frontend_version.h")
    file(STRINGS "${CuDnnFrontend_INCLUDE_DIR}/cudnn_frontend_version.h" CuDnnFrontend_lines
      REGEX "#define CUDNN_FRONTEND_(MAJOR|MINOR|PATCH)_VERSION +[0-9]+")
    list(TRANSFORM CuDnnFrontend_lines REPLACE "^[^0-9]*([0-9]+).*$" "\\1")
    list(JOIN CuDnnFrontend_lines "." CuDnnFrontend_VERSION)
  endif()
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CuDnnFrontend REQUIRED_VARS CuDnnFrontend_INCLUDE_DIR VERSION_VAR CuDnnFrontend_VERSION)
mark_as_advanced(CuDnnFrontend_INCLUDE_DIR)

# peal_library(NAME SOURCES ... [LINKS public...] [PRIVATE private...]) makes the static library peal_NAME, alias
# peal::NAME, with the project's one include spelling: <peal/folder/file.h>, through a link to the source root.
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/include")
file(CREATE_LINK "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/include/peal" SYMBOLIC)

add_library(peal_options INTERFACE)
target_compile_features(peal_options INTERFACE cxx_std_20)
target_compile_options(peal_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic $<$<BOOL:${PEAL_WERROR}>:-Werror>>
  # GCC 12 sees overlaps in std::string that are not there (PR105651), and with precompiled headers ends too, where a
  # literal becomes a std::string that is moved: StateReader::fault("a key comes twice"). The preset tsan precompiles
  # nothing, and has all three as errors.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict
    $<$<NOT:$<BOOL:${CMAKE_DISABLE_PRECOMPILE_HEADERS}>>:-Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds>>
  # GCC looks for memory that it no longer needs whenever it has twice as much as at the last look, from 128 MB on: an
  # eighth of its time, for what ends in seconds. From half a gigabyte on, then.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288>)
# Links in half of the time; it is beside GCC on Debian, but not everywhere.
find_program(PEAL_GOLD ld.gold)
if(PEAL_GOLD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  target_link_options(peal_options INTERFACE $<$<LINK_LANGUAGE:CXX>:-fuse-ld=gold>)
endif()
if(PEAL_SANITIZE)
  set(sanitize -fsanitize=${PEAL_SANITIZE} -fno-omit-frame-pointer -g1)  # lines are all that reports need
  if(PEAL_SANITIZE MATCHES undefined)
    list(APPEND sanitize -fno-sanitize-recover=undefined)
  endif()
  target_compile_options(peal_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${sanitize}>)
  target_link_options(peal_options INTERFACE ${sanitize})
endif()
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_EXTENSIONS OFF)

# peal_precompile(TARGET [HEADERS ...]) precompiles the standard library's headers that most sources include, and these;
# peal_precompile(TARGET FROM other) takes those of a target that is compiled alike. It must be quite alike (given a header
# made with another -O, GCC 12 crashes), so who has options of its own has headers of its own. Never a header of the tree,
# whose every edit would compile all again.
set(peal_standard_headers <algorithm> <array> <atomic> <bit> <chrono> <cmath> <condition_variable> <cstddef> <cstdint>
  <cstdlib> <cstring> <exception> <functional> <initializer_list> <limits> <map> <memory> <mutex> <numeric> <optional>
  <set> <span> <sstream> <stdexcept> <string> <string_view> <thread> <tuple> <type_traits> <unordered_map> <utility>
  <vector>)
function(peal_precompile target)
  cmake_parse_arguments(arg "" "FROM" "HEADERS" ${ARGN})
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    return()  # others want the same -D of who takes and who makes
  endif()
  if(arg_FROM)
    target_precompile_headers(${target} REUSE_FROM ${arg_FROM})
  else()
    target_precompile_headers(${target} PRIVATE ${peal_standard_headers} ${arg_HEADERS})
  endif()
endfunction()

# peal_compile_lightly(SOURCES ...): what runs once, and takes long to compile for what it includes (CLI11, JSON).
function(peal_compile_lightly)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O1> SKIP_PRECOMPILE_HEADERS ON)
endfunction()

include(GNUInstallDirs)
set_property(GLOBAL PROPERTY peal_libraries)
function(peal_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS;PRIVATE" ${ARGN})
  add_library(peal_${name} STATIC ${arg_SOURCES})
  add_library(peal::${name} ALIAS peal_${name})
  target_include_directories(peal_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(peal_${name} PUBLIC cxx_std_20)
  target_link_libraries(peal_${name} PUBLIC ${arg_LINKS} PRIVATE $<BUILD_INTERFACE:peal_options> ${arg_PRIVATE})
  if(PEAL_SANITIZE)
    target_link_options(peal_${name} INTERFACE -fsanitize=${PEAL_SANITIZE})
  endif()
  set_target_properties(peal_${name} PROPERTIES EXPORT_NAME ${name}
    UNITY_BUILD ${PEAL_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  set_property(GLOBAL APPEND PROPERTY peal_libraries peal_${name})
endfunction()

# peal_vector_levels(TARGET PREFIX) adds PREFIX_baseline.cpp and, on x86-64, PREFIX_avx2.cpp and PREFIX_avx512.cpp, each
# with the instructions of its level (autograd/core/cpu_level.h). Nothing in one may have a linker symbol that another
# file shares: peal_symbols_test() looks.
function(peal_vector_levels target prefix)
  set(options -O3 -fopenmp-simd -fno-math-errno -fno-trapping-math)
  if(PEAL_SANITIZE MATCHES thread)
    list(REMOVE_ITEM options -O3) # loops of one thread each, slow to compile with checks
  endif()
  set(sources ${prefix}_baseline.cpp)
  set_source_files_properties(${prefix}_baseline.cpp PROPERTIES COMPILE_OPTIONS "${options}")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND sources ${prefix}_avx2.cpp ${prefix}_avx512.cpp)
    set_source_files_properties(${prefix}_avx2.cpp PROPERTIES COMPILE_OPTIONS "${options};-march=x86-64-v3")
    # GCC 12 warns about its own header (avx512fintrin.h, _mm512_undefined).
    set_source_files_properties(${prefix}_avx512.cpp PROPERTIES
      COMPILE_OPTIONS "${options};-march=x86-64-v4;-mprefer-vector-width=512;-Wno-maybe-uninitialized")
  endif()
  set_source_files_properties(${sources} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  target_sources(${target} PRIVATE ${sources})
endfunction()

# How nvcc compiles a library's kernels. fmt 9 checks format strings at compile time in a way that nvcc does not get
# through.
function(peal_cuda_options target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --expt-relaxed-constexpr
    -DFMT_USE_CONSTEXPR=1 -DFMT_CONSTEVAL= -Xcompiler=-Wall,-Wextra $<$<BOOL:${PEAL_WERROR}>:-Werror=all-warnings>>)
endfunction()

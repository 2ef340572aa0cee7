# peal_test(NAME SOURCES ... [LINKS ...] [LABELS ...] [TIMEOUT s] [ENV ...]) builds a doctest program and registers it.
# peal_mpi_test(NAME RANKS 1 2 ... SOURCES ... [LINKS ...] [TIMEOUT s]) registers one ctest a world size, under
# mpirun; its main (tests/mpi/mpi_main.cpp) makes the group. Every test has a deadline: a hang is a failure with a name.
# peal_symbols_test(NAME LIBRARY LOOPS NAMESPACE [LABELS ...]): the vector levels of LOOPS_*.cpp, which a library compiles
# with NAMESPACE::LEVEL inside, share no symbol with anybody.
set(peal_timeout_factor 1)
if(PEAL_SANITIZE)
  set(peal_timeout_factor 5)  # instrumented code, and the slow unwinder that leaks of Open MPI need
endif()
# For tests that are registered by hand.
math(EXPR peal_minute "60 * ${peal_timeout_factor}")
math(EXPR peal_two_minutes "120 * ${peal_timeout_factor}")

function(peal_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LINKS;LABELS;ENV" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * ${peal_timeout_factor}")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE peal_options ${arg_LINKS} peal_test_main)
  if(NOT "OpenMP::OpenMP_CXX" IN_LIST arg_LINKS)  # compiled otherwise
    peal_precompile(${name} FROM peal_test_main)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}"
    ENVIRONMENT "OMP_NUM_THREADS=1;${arg_ENV}")
  if(PEAL_SANITIZE AND NOT "${arg_LINKS}" MATCHES "launch|mpi")
    # tests/run.sh asks for the slow unwinder; without Open MPI the quick one, several times as quick, sees as much.
    set_tests_properties(${name} PROPERTIES
      ENVIRONMENT_MODIFICATION "ASAN_OPTIONS=path_list_append:fast_unwind_on_malloc=1")
  endif()
endfunction()

function(peal_mpi_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LINKS;RANKS;LABELS;ENV" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * ${peal_timeout_factor}")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE peal_options ${arg_LINKS} peal_mpi_main)
  peal_precompile(${name} FROM peal_test_main)
  foreach(ranks ${arg_RANKS})
    add_test(NAME ${name}_np${ranks}
      COMMAND "${PROJECT_SOURCE_DIR}/launch/tools/peal-mpirun" -n ${ranks} $<TARGET_FILE:${name}>)
    set_tests_properties(${name}_np${ranks} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "mpi;${arg_LABELS}"
      PROCESSORS 2 ENVIRONMENT "OMP_NUM_THREADS=1;PEAL_TIMEOUT=30;PEAL_LOG=warning;${arg_ENV}")
  endforeach()
endfunction()

function(peal_symbols_test name library loops namespace)
  cmake_parse_arguments(arg "" "" "LABELS" ${ARGN})
  if(NOT PEAL_SANITIZE AND CMAKE_BUILD_TYPE STREQUAL Release)
    add_test(NAME ${name}
      COMMAND "${PROJECT_SOURCE_DIR}/tests/symbols_test.sh" $<TARGET_FILE:${library}> ${loops} ${namespace})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${peal_minute} LABELS "${arg_LABELS}")
  endif()
endfunction()

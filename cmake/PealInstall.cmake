# cmake --install: every library, the public headers, the tools, and a package: find_package(peal) gives peal::peal, which
# links to all of peal, and peal::core, peal::comm ... for those who want less. tests/install holds it.
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY peal_libraries)
add_library(peal INTERFACE)
add_library(peal::peal ALIAS peal)
target_link_libraries(peal INTERFACE ${libraries})

# Before anything is copied: what is not built would end an installation half way.
set(whole ${libraries} peal-run)
if(PEAL_TOOLS)
  list(APPEND whole peal-schedule peal-command peal-estimate-memory peal-test)
endif()
list(TRANSFORM whole REPLACE "(.+)" "[[$<TARGET_FILE:\\1>]]")  # paths may hold spaces
list(JOIN whole " " whole)
install(CODE "
  foreach(file ${whole})
    if(NOT EXISTS \"\${file}\")
      message(FATAL_ERROR \"peal is not built: there is no \${file}. Nothing has been installed; build it whole first: \"
        \"cmake --build '${PROJECT_BINARY_DIR}'\")
    endif()
  endforeach()")

install(TARGETS peal ${libraries} EXPORT pealTargets)
install(EXPORT pealTargets NAMESPACE peal:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/peal)

# Only what is public, as it is when it is installed.
install(CODE "
  set(ROOT [[${PROJECT_SOURCE_DIR}]])
  set(PEAL_MPI [[${PEAL_MPI}]])
  set(PEAL_CUDA [[${PEAL_CUDA}]])
  include(\"\${ROOT}/cmake/PublicHeaders.cmake\")
  foreach(header \${public_headers})
    get_filename_component(folder \"\${header}\" DIRECTORY)
    file(INSTALL \"\${ROOT}/\${header}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/peal/\${folder}\")
  endforeach()")
install(TARGETS peal-run RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(PROGRAMS "${PROJECT_SOURCE_DIR}/launch/tools/peal-mpirun" DESTINATION ${CMAKE_INSTALL_BINDIR})

configure_package_config_file(cmake/pealConfig.cmake.in "${PROJECT_BINARY_DIR}/pealConfig.cmake"
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/peal)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/pealConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/pealConfig.cmake" "${PROJECT_BINARY_DIR}/pealConfigVersion.cmake"
  cmake/FindCuDnn.cmake cmake/FindNccl.cmake cmake/FindOneDnn.cmake cmake/FindParquet.cmake cmake/FindSentencePiece.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/peal)

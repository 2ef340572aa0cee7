# Writes OUTPUT, a source that knows the commit of ROOT, where it says something else than before.
#   cmake -DROOT=. -DOUTPUT=commit.cpp -P commit.cmake
find_program(git git)
set(commit "")
if(git AND EXISTS "${ROOT}/.git")
  execute_process(COMMAND "${git}" -C "${ROOT}" describe --always --dirty --abbrev=12 --match none
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT commit)
  set(commit unknown)
endif()
set(text "#include <peal/launch/tools/peal/build.h>\n
std::string peal::launch::build::commit() { return \"${commit}\"; }\n")
set(before "")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" before)
endif()
if(NOT text STREQUAL before)
  file(WRITE "${OUTPUT}" "${text}")
endif()

# What the machine lacks, in one line each, before anything is built. Included after project(... LANGUAGES NONE), which
# needs no compiler, and before the standard is set. A message that begins with a blank is not broken into lines.

set(compiler_need " livegnn needs a compiler for C++20 (GCC 11, Clang 14, or newer)")

include(CheckLanguage)
check_language(CXX)
if(NOT CMAKE_CXX_COMPILER)
  if(DEFINED ENV{CXX})
    message(FATAL_ERROR "${compiler_need}, CXX names $ENV{CXX}, which does not compile: name another, or leave CXX unset")
  endif()
  message(FATAL_ERROR "${compiler_need}, found none: install one (on Debian and Ubuntu the package g++), or name it with CXX=...")
endif()
enable_language(CXX)

# The compiler itself says whether it is new enough: toolchain/machine.py asks it the same.
if(NOT LIVEGNN_CXX20)
  try_compile(LIVEGNN_CXX20 ${CMAKE_BINARY_DIR}/cxx20 ${CMAKE_CURRENT_LIST_DIR}/cxx20.cc COMPILE_DEFINITIONS -std=c++20
    OUTPUT_VARIABLE said)
endif()
if(NOT LIVEGNN_CXX20)
  unset(LIVEGNN_CXX20 CACHE) # it is asked again next time: what was killed, or had no room, may compile then
  string(REGEX MATCH "[^\n]*error[^\n]*" said "${said}") # of a compiler that was killed, toolchain/failures.py knows more
  message(FATAL_ERROR "${compiler_need}, found ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, which says '${said}': install a newer one, or name it with CXX=...")
endif()

# After find_package(Python), for the module alone: nanobind would name a target that is not there.
function(require_python_headers)
  if(NOT Python_Development.Module_FOUND)
    message(FATAL_ERROR " livegnn needs the headers of Python ${Python_VERSION}, found none for ${Python_EXECUTABLE}: install them (on Debian and Ubuntu the package python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}-dev)")
  endif()
endfunction()

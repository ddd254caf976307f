# nanobind's sources, copied into the build folder. pip installs them into a new folder for each build: compiled from
# there, every file would have another command each time, and be compiled again.

execute_process(COMMAND ${Python_EXECUTABLE} -c "import nanobind; print(nanobind.include_dir() + '/..')"
                OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE nanobind_INSTALLED COMMAND_ERROR_IS_FATAL ANY)
set(nanobind_ROOT ${CMAKE_CURRENT_BINARY_DIR}/nanobind)
file(GLOB_RECURSE nanobind_files RELATIVE ${nanobind_INSTALLED} ${nanobind_INSTALLED}/cmake/* ${nanobind_INSTALLED}/ext/*
     ${nanobind_INSTALLED}/include/* ${nanobind_INSTALLED}/src/*)
foreach(name ${nanobind_files})
  get_filename_component(folder ${name} DIRECTORY)
  file(MAKE_DIRECTORY ${nanobind_ROOT}/${folder})
  # A file that is equal keeps its time.
  file(COPY_FILE ${nanobind_INSTALLED}/${name} ${nanobind_ROOT}/${name} ONLY_IF_DIFFERENT)
endforeach()

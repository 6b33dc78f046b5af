# SPDX-License-Identifier: Apache-2.0
# The library built for the wheel: beside the extension, with the shared libraries that it needs and a
# machine may lack.
set(TILEOPS_TESTS OFF CACHE BOOL "" FORCE)
set(TILEOPS_BENCH OFF CACHE BOOL "" FORCE)
set(TILEOPS_UNITY ON CACHE BOOL "")
add_subdirectory(${CMAKE_CURRENT_SOURCE_DIR}/.. tileops EXCLUDE_FROM_ALL)
set_target_properties(tileops PROPERTIES INSTALL_RPATH "$ORIGIN" VERSION "${PROJECT_VERSION_MAJOR}")
install(TARGETS tileops LIBRARY DESTINATION tileops_cpp COMPONENT python NAMELINK_SKIP)
install(CODE [[
  file(GET_RUNTIME_DEPENDENCIES LIBRARIES "$<TARGET_FILE:tileops>" RESOLVED_DEPENDENCIES_VAR needs
       PRE_INCLUDE_REGEXES "^lib(yaml-cpp|xxhash|gomp)\\." PRE_EXCLUDE_REGEXES ".*")
  foreach(need IN LISTS needs)
    get_filename_component(name ${need} NAME)
    file(REAL_PATH ${need} file)  # a wheel holds no symbolic links
    file(COPY_FILE ${file} "${CMAKE_INSTALL_PREFIX}/tileops_cpp/${name}")
  endforeach()
]] COMPONENT python)

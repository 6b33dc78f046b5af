# SPDX-License-Identifier: Apache-2.0
# The library built for the wheel, beside the extension.
set(TILEOPS_TESTS OFF CACHE BOOL "")
set(TILEOPS_BENCH OFF CACHE BOOL "")
add_subdirectory(${CMAKE_CURRENT_SOURCE_DIR}/.. tileops EXCLUDE_FROM_ALL)
set_target_properties(tileops PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS tileops LIBRARY DESTINATION tileops_cpp COMPONENT python NAMELINK_SKIP)

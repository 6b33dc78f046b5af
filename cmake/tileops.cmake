# SPDX-License-Identifier: Apache-2.0
# Rules for every target of the project; nothing here knows a single op.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

include(${CMAKE_CURRENT_LIST_DIR}/../build/local.cmake OPTIONAL)  # a developer's own settings

find_package(fmt REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
if(TILEOPS_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
if(TILEOPS_BENCH)
  find_package(benchmark REQUIRED)
endif()

# What every source of ours is compiled with.
add_library(tileops_flags INTERFACE)
target_compile_features(tileops_flags INTERFACE cxx_std_20)
target_compile_options(tileops_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers -fno-semantic-interposition)
if(TILEOPS_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)  # no garbage collection below 1 GB
  target_compile_options(tileops_flags INTERFACE --param=ggc-min-heapsize=1048576)
endif()
target_include_directories(tileops_flags INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)

# fmt, compiled once: header-only it would double what every file costs to compile.
add_library(tileops_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt.cc)
target_compile_features(tileops_fmt PUBLIC cxx_std_20)
target_compile_options(tileops_fmt PRIVATE -fvisibility=hidden)

set_property(GLOBAL PROPERTY TILEOPS_LAYERS "")
set_property(GLOBAL PROPERTY TILEOPS_OPS "")

# tileops_unite(TARGET): its files are compiled five at a time under TILEOPS_UNITY (the presets for developers), since
# what most of them cost is the headers that all include. Names in their unnamed namespaces must then differ.
function(tileops_unite target)
  if(TILEOPS_UNITY AND TARGET ${target})
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 5)
  endif()
endfunction()

# tileops_group_by_role(FILES...): files of an op are compiled with those of the same role of three other ops; within an
# op the kernels and the reference state the same rules apart, in one namespace.
function(tileops_group_by_role)
  get_property(num_ops GLOBAL PROPERTY TILEOPS_NUM_OPS)
  math(EXPR next "0${num_ops} + 1")
  set_property(GLOBAL PROPERTY TILEOPS_NUM_OPS ${next})
  math(EXPR group "${next} / 4")
  foreach(file ${ARGN})
    string(REGEX REPLACE ".*_([a-z0-9]+)\\.cc$" "\\1" role ${file})
    set_source_files_properties(${file} TARGET_DIRECTORY tileops_ops PROPERTIES UNITY_GROUP ${role}${group})
  endforeach()
endfunction()

# tileops_add_layer(NAME SOURCES... [LINK ...] [PRIVATE_LINK ...]): one static library per folder,
# all of which make up the shared library `tileops`.
function(tileops_add_layer name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(tileops_${name} STATIC ${arg_SOURCES})
  target_link_libraries(tileops_${name} PUBLIC tileops_flags ${arg_LINK}
                        PRIVATE tileops_fmt ${arg_PRIVATE_LINK})
  set_property(GLOBAL APPEND PROPERTY TILEOPS_LAYERS tileops_${name})
endfunction()

# Builds what ./test --gpu runs.
add_custom_target(gpu_tests)

# tileops_add_test(NAME SOURCES... LINK...): a GoogleTest program, one ctest test with a watchdog. Those named
# *_gpu_test skip themselves where there is no GPU; they carry the label gpu, and TILEOPS_GPU_TESTS leaves them out.
function(tileops_add_test name)
  if(NOT TILEOPS_TESTS OR (name MATCHES "_gpu_test$" AND NOT TILEOPS_GPU_TESTS))
    return()
  endif()
  cmake_parse_arguments(arg "" "" "SOURCES;LINK;ENV" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINK} tileops_fmt GTest::gmock_main tileops_flags)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 ENVIRONMENT "${arg_ENV}")
  if(name MATCHES "_gpu_test$")
    set_tests_properties(${name} PROPERTIES LABELS gpu RESOURCE_LOCK gpu)
    add_dependencies(gpu_tests ${name})
  endif()
endfunction()

# tileops_add_bench(NAME SOURCES... LINK...): a Google Benchmark program; built, never a test.
function(tileops_add_bench name)
  if(NOT TILEOPS_BENCH)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINK} benchmark::benchmark_main tileops_flags)
endfunction()

# tileops_embed(TARGET SYMBOL FILES...): the files' text as `std::span<const EmbeddedFile> SYMBOL()`
# in namespace tileops::embedded (declared in tileops/core/embedded.h by the user of the symbol).
function(tileops_embed target symbol)
  set(out ${PROJECT_BINARY_DIR}/generated/${symbol}.cc)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DSYMBOL=${symbol} -DROOT=${PROJECT_SOURCE_DIR}
            "-DFILES=${ARGN}" -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${ARGN} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
  target_sources(${target} PRIVATE ${out})
  set_source_files_properties(${out} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)  # all name their tables alike
endfunction()

# tileops_add_op(NAME SPEC f SOURCES f... [DEVICE f...] TEST f... BENCH f...): an op's folder.
function(tileops_add_op name)
  cmake_parse_arguments(arg "" "SPEC" "SOURCES;DEVICE;TEST;BENCH" ${ARGN})
  foreach(role SPEC SOURCES TEST BENCH)
    if(NOT arg_${role})
      message(FATAL_ERROR "tileops_add_op(${name}): ${role} is missing")
    endif()
  endforeach()
  set(dir ${CMAKE_CURRENT_SOURCE_DIR})
  foreach(role SOURCES DEVICE)
    list(TRANSFORM arg_${role} PREPEND ${dir}/)
  endforeach()
  target_sources(tileops_ops PRIVATE ${arg_SOURCES})
  tileops_group_by_role(${arg_SOURCES})
  set_property(GLOBAL APPEND PROPERTY TILEOPS_SPEC_FILES ${dir}/${arg_SPEC})
  set_property(GLOBAL APPEND PROPERTY TILEOPS_DEVICE_FILES ${arg_DEVICE})
  tileops_add_test(${name}_test SOURCES ${arg_TEST} LINK tileops)
  tileops_add_bench(${name}_bench SOURCES ${arg_BENCH} LINK tileops)
endfunction()

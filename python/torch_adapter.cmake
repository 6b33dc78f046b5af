# SPDX-License-Identifier: Apache-2.0
# torch.ops.tileops_cpp, where torch >= 2.11 is beside the interpreter: its headers alone are needed. A wheel
# that is built without torch says so when operators are asked for. -DTILEOPS_TORCH=<site-packages/torch> names one.
set(TILEOPS_TORCH "" CACHE PATH "torch's folder; empty: that of the interpreter; OFF: none")
set(torch "${TILEOPS_TORCH}")
if(torch STREQUAL "")
  execute_process(  # -I: the environment's own packages, also where the build is isolated from them
    COMMAND ${Python_EXECUTABLE} -I -c
            "import importlib.util as u; s = u.find_spec('torch'); print(*(s.submodule_search_locations if s else ()))"
    OUTPUT_VARIABLE torch OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endif()
if(NOT torch OR NOT EXISTS ${torch}/version.py)
  message(STATUS "torch operators: left out, there is no torch beside ${Python_EXECUTABLE}")
  return()
endif()
file(STRINGS ${torch}/version.py version REGEX "^__version__")
string(REGEX MATCH "[0-9]+\\.[0-9]+" version "${version}")
if(version VERSION_LESS 2.11)
  message(STATUS "torch operators: left out, torch ${version} is older than 2.11")
  return()
endif()
message(STATUS "torch operators: against the headers of torch ${version} in ${torch}")

add_library(_torch_adapter MODULE src/torch_adapter.cc src/torch_adapter_schema.cc)
target_compile_features(_torch_adapter PRIVATE cxx_std_20)
target_compile_options(_torch_adapter PRIVATE -Wall -Wextra -Wno-missing-field-initializers)
target_include_directories(_torch_adapter SYSTEM PRIVATE ${torch}/include)
# By name alone: at run time the library is the one that is in the process.
target_link_options(_torch_adapter PRIVATE -L${torch}/lib -Wl,--allow-shlib-undefined)
target_link_libraries(_torch_adapter PRIVATE tileops::tileops -l:libtorch_cpu.so ${CMAKE_DL_LIBS})
set_target_properties(_torch_adapter PROPERTIES
  PREFIX "" INSTALL_RPATH "$ORIGIN" BUILD_RPATH_USE_ORIGIN ON CXX_VISIBILITY_PRESET hidden)
add_dependencies(python _torch_adapter)
install(TARGETS _torch_adapter LIBRARY DESTINATION tileops_cpp COMPONENT python)

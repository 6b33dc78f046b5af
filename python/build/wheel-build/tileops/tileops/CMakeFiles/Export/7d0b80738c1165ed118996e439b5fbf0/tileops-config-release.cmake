#----------------------------------------------------------------
# Generated CMake target import file for configuration "Release".
#----------------------------------------------------------------

# Commands may need to know the format version.
set(CMAKE_IMPORT_FILE_VERSION 1)

# Import target "tileops::tileops" for configuration "Release"
set_property(TARGET tileops::tileops APPEND PROPERTY IMPORTED_CONFIGURATIONS RELEASE)
set_target_properties(tileops::tileops PROPERTIES
  IMPORTED_LINK_DEPENDENT_LIBRARIES_RELEASE "yaml-cpp"
  IMPORTED_LOCATION_RELEASE "${_IMPORT_PREFIX}/lib/libtileops.so.0.1.0"
  IMPORTED_SONAME_RELEASE "libtileops.so.0"
  )

list(APPEND _cmake_import_check_targets tileops::tileops )
list(APPEND _cmake_import_check_files_for_tileops::tileops "${_IMPORT_PREFIX}/lib/libtileops.so.0.1.0" )

# Commands beyond this point should not need to know the version.
set(CMAKE_IMPORT_FILE_VERSION)

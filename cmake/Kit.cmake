# The kit: what a transport needs that is built outside this tree (docs/adding-a-transport.md). Installed as the
# component `kit`; it holds no path of this machine. Modules fit the engine of the same build alone, so the kit says
# which compiler and which sanitizer that was.
include_guard(GLOBAL)

set(kit_rooms base os transport transport/framed)
set(kit_objects "")
foreach(room IN LISTS kit_rooms)
    incast_target_of("${room}" target)
    list(APPEND kit_objects $<TARGET_OBJECTS:${target}>)
    file(GLOB kit_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${room}/*.h")
    install(FILES ${kit_headers} DESTINATION "include/incast-kit/${room}" COMPONENT kit)
endforeach()
add_library(incast-kit STATIC ${kit_objects})
set_target_properties(incast-kit PROPERTIES LINKER_LANGUAGE CXX ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/kit")

file(GLOB kit_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/incast/*.h")
install(FILES ${kit_headers} "${INCAST_ABI_ROOT}/incast/abi.h" DESTINATION include/incast-kit/incast COMPONENT kit)
install(FILES $<TARGET_FILE:incast-kit> DESTINATION lib/incast-kit COMPONENT kit)
string(REGEX MATCH "^[0-9]+" INCAST_COMPILER_MAJOR "${CMAKE_CXX_COMPILER_VERSION}")
configure_file("${CMAKE_CURRENT_LIST_DIR}/incast-kit-config.cmake.in" kit/incast-kit-config.cmake @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/kit/incast-kit-config.cmake" DESTINATION lib/cmake/incast-kit COMPONENT kit)
if(TARGET conformance)
    # Failures of its checks name sources as they are called within the tree.
    target_compile_options(conformance PRIVATE "-fmacro-prefix-map=${PROJECT_BINARY_DIR}/="
                                               "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
    install(PROGRAMS $<TARGET_FILE:conformance> DESTINATION bin RENAME incast-conformance COMPONENT kit OPTIONAL)
endif()

# Where things are installed. In a wheel everything that Headroom loads lies inside its Python package, and what people look for
# (manual pages, shell completion) where the environment has such things. Without one, `cmake --install build --component rpipe`
# installs the pipes alone, for C and C++ programs, as GNUInstallDirs says.
include(GNUInstallDirs)
if(SKBUILD)
  set(HEADROOM_LIBRARIES headroom/lib)
  set(HEADROOM_HEADERS headroom/include)
  set(HEADROOM_DATA headroom)
  set(RPIPE_LIBRARIES headroom/lib)
  set(HEADROOM_SHARE ${SKBUILD_DATA_DIR}/share)
else()
  set(HEADROOM_LIBRARIES ${CMAKE_INSTALL_LIBDIR}/headroom)
  set(HEADROOM_HEADERS ${CMAKE_INSTALL_INCLUDEDIR})
  set(HEADROOM_DATA ${CMAKE_INSTALL_DATADIR}/headroom)
  set(RPIPE_LIBRARIES ${CMAKE_INSTALL_LIBDIR})
  set(HEADROOM_SHARE ${CMAKE_INSTALL_DATADIR})
endif()

// CMake wants one source of its own in a shared library; all else comes from the static one (cmake/install.cmake).

# The CUDA compiler and toolkit, as cuda.cmake needs them.
# CMake before 3.25.2 does not know nvcc's C++20.
if(CMAKE_VERSION VERSION_LESS 3.25.2)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(GALVANI_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT GALVANI_NVCC)
    message(FATAL_ERROR "GALVANI_CUDA=ON, and no nvcc was found on the PATH, in CUDA_PATH or in /usr/local/cuda; "
      "install a CUDA toolkit (12.4 or newer), name it by -DCMAKE_CUDA_COMPILER=.../nvcc, or set GALVANI_CUDA=OFF")
  endif()
  set(CMAKE_CUDA_COMPILER ${GALVANI_NVCC})
endif()
if(NOT CMAKE_CUDA_HOST_COMPILER)
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
endif()
# Each object library sets its own; nothing is compiled for an architecture that nobody asked for.
set(CMAKE_CUDA_ARCHITECTURES OFF)
enable_language(CUDA)
# CMake reads no include paths from an nvcc of 12.4 that was put together from packages, and would then pass /usr/include
# as -isystem, which hides <math.h> from libstdc++.
if(NOT CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES)
  set(CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
if(GALVANI_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${GALVANI_CCACHE}")
endif()
find_package(CUDAToolkit REQUIRED)
list(GET CUDAToolkit_INCLUDE_DIRS 0 GALVANI_CUDA_INCLUDE)

#pragma once
/// Version of the library, semver on the public headers and the C API.
#define GALVANI_VERSION_MAJOR 0
#define GALVANI_VERSION_MINOR 1
#define GALVANI_VERSION_PATCH 0
#define GALVANI_VERSION_STRING "0.1.0"

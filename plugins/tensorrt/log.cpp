#include "log.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <dlfcn.h>

using namespace nvinfer1;

namespace star
{
namespace
{

constexpr size_t kLONGEST_LINE{256};

//! TensorRT owns it. Engines may be built on several threads.
std::atomic<ILoggerFinder*> gFinder{nullptr};

//! The major version of the TensorRT whose object this is; the one compiled for, where that cannot be told.
int32_t majorVersionOf(void const* object) noexcept
{
    Dl_info library{};
    void const* const virtualFunctions = *static_cast<void const* const*>(object); // They lie in its library.
    void* const handle
        = dladdr(virtualFunctions, &library) == 0 ? nullptr : dlopen(library.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (handle == nullptr)
    {
        return NV_TENSORRT_MAJOR;
    }
    auto const major = reinterpret_cast<int32_t (*)()>(dlsym(handle, "getInferLibMajorVersion"));
    int32_t const version = major == nullptr ? NV_TENSORRT_MAJOR : major();
    dlclose(handle);
    return version;
}

} // namespace

void setLogFinder(ILoggerFinder* finder) noexcept
{
    // TensorRT 11 lays its loggers out in another way than 10. Called across versions, one would end the process.
    bool const fits = finder != nullptr && majorVersionOf(finder) == NV_TENSORRT_MAJOR;
    gFinder = fits ? finder : nullptr;
}

void logError(char const* format, ...) noexcept
{
    ILoggerFinder* const finder = gFinder;
    ILogger* const logger = finder == nullptr ? nullptr : finder->findLogger();
    if (logger == nullptr)
    {
        return;
    }
    char line[kLONGEST_LINE];
    int const start = std::snprintf(line, sizeof(line), "star: ");
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line + start, sizeof(line) - start, format, arguments);
    va_end(arguments);
    logger->log(ILogger::Severity::kERROR, line);
}

} // namespace star

#ifndef STAR_LOG_H
#define STAR_LOG_H

#include <NvInferRuntime.h>

namespace star
{

//! Where errors go: the logger that TensorRT gave through setLoggerFinder(), or nowhere. A finder of another major
//! version than the one compiled for is left alone.
void setLogFinder(nvinfer1::ILoggerFinder* finder) noexcept;

//! Log one line: what it is about | what came | what is needed.
[[gnu::format(printf, 1, 2)]] void logError(char const* format, ...) noexcept;

} // namespace star

#endif // STAR_LOG_H

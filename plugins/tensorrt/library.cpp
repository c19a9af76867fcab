//! The entry points of the library: two through which TensorRT loads it, and one for star-export.

#include "cdf_retain_creator.h"
#include "log.h"

using namespace nvinfer1;

#define STAR_EXPORT extern "C" __attribute__((visibility("default")))

//! Whose headers this was built with; star-export asks before it hands the library to TensorRT.
STAR_EXPORT int32_t cdfRetainTensorRtMajor()
{
    return NV_TENSORRT_MAJOR;
}

STAR_EXPORT IPluginCreatorInterface* const* getCreators(int32_t& nbCreators)
{
    static star::CdfRetainCreator retain;
    static IPluginCreatorInterface* const creators[]{&retain};
    nbCreators = 1;
    return creators;
}

STAR_EXPORT void setLoggerFinder(ILoggerFinder* finder)
{
    star::setLogFinder(finder);
}

//! The entry points of the library: two through which TensorRT loads it, and one for star-export.

#include "cdf_retain_creator.h"
#include "log.h"
#include "select_top_k_plugin.h"

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
    static star::SelectTopKCreator select;
    static IPluginCreatorInterface* const creators[]{&retain, &select};
    nbCreators = 2;
    return creators;
}

STAR_EXPORT void setLoggerFinder(ILoggerFinder* finder)
{
    star::setLogFinder(finder);
}

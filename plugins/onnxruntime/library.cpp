//! The entry points: ONNX Runtime's, and the version of its API that the library asks for.

#include "choose_top_k.h"
#include "pack_survivors.h"
#include "retain.h"

#define STAR_VISIBLE extern "C" __attribute__((visibility("default")))

STAR_VISIBLE int32_t starOpsApiVersion()
{
    return static_cast<int32_t>(star::kAPI_VERSION);
}

STAR_VISIBLE OrtStatus* RegisterCustomOps(OrtSessionOptions* options, OrtApiBase const* base)
{
    static star::Operator<star::ChooseTopK> chooseTopK;
    static star::Operator<star::ChooseByMass> chooseByMass;
    static star::Operator<star::CdfRetain> cdfRetain;
    static star::Operator<star::PackSurvivors> packSurvivors;
    OrtApi const* const api = base->GetApi(star::kAPI_VERSION);
    if (api == nullptr)
    {
        return nullptr; // A runtime that is too old: it then finds no operator.
    }
    return star::statusOf(*api, [&] {
        OrtCustomOpDomain* domain{nullptr};
        star::check(api->CreateCustomOpDomain("star", &domain));
        std::initializer_list<OrtCustomOp const*> const all{&chooseTopK, &chooseByMass, &cdfRetain, &packSurvivors};
        for (OrtCustomOp const* op : all)
        {
            star::check(api->CustomOpDomain_Add(domain, op));
        }
        star::check(api->AddCustomOpDomain(options, domain)); // Domains live as long as the process.
    });
}

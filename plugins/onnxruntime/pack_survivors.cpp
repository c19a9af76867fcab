#include "pack_survivors.h"

#include <algorithm>
#include <numeric>

namespace star
{

PackSurvivors::PackSurvivors(Attributes const& attributes)
    : mPrefix(attributes.whole("num_prefix_tokens"))
{
    require(mPrefix >= 0, "a number of prefix tokens");
}

void PackSurvivors::compute(Call const& call) const
{
    auto const slots = call.input<int64_t>(0);
    auto const index = call.input<int64_t>(1);
    auto const count = call.input<int64_t>(2);
    require(slots.shape.size() == 2 && index.shape.size() == 2, "slots [batch, tokens] and survivors [batch, k]");
    int64_t const batch = index.shape[0];
    int64_t const kept = index.shape[1];
    int64_t const width = mPrefix + kept;
    int64_t const tokens = slots.shape[1];
    require(slots.shape[0] == batch && count.shape == std::vector<int64_t>{batch}, "as many images in each input");
    bool const areThere = std::all_of(index.values, index.values + batch * kept,
        [&](int64_t patch) { return patch >= 0 && mPrefix + patch < tokens; });
    bool const areCounts = std::all_of(
        count.values, count.values + batch, [&](int64_t each) { return each > 0 && each <= kept; });
    require(mPrefix < tokens && areThere && areCounts, "survivors among the patches, and at least one");
    int64_t const total = std::accumulate(count.values, count.values + batch, mPrefix * batch);

    int64_t* row = call.output(0, {total});
    bool* live = call.output<bool>(1, {batch, width});
    int64_t* slot = call.output(2, {batch, width});
    int64_t* place = call.output(3, {total});
    int64_t start{0};
    for (int64_t image = 0; image < batch; ++image)
    {
        int64_t const own = mPrefix + count.values[image];
        int64_t const* const from = slots.values + image * tokens;
        int64_t const* const patches = index.values + image * kept;
        for (int64_t i = 0; i < width; ++i)
        {
            *live++ = i < own;
            *slot++ = start + std::min(i, own - 1);
        }
        for (int64_t i = 0; i < own; ++i)
        {
            *row++ = from[i < mPrefix ? i : mPrefix + patches[i - mPrefix]];
            *place++ = image * width + i;
        }
        start += own;
    }
}

} // namespace star

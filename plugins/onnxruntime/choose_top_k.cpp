#include "choose_top_k.h"
#include "ranking.h"

#include <numeric>

namespace star
{
namespace
{

//! The positions of the `count` patches that rank first, ascending.
void chooseRow(float const* scores, int64_t patches, int64_t count, int64_t* survivors)
{
    std::vector<uint64_t> standings(static_cast<size_t>(patches));
    for (int64_t i = 0; i < patches; ++i)
    {
        standings[i] = standingOf(scores[i], i);
    }
    writeSurvivors(scores, lastOf(standings.data(), count, patches), count, survivors);
}

} // namespace

ChooseTopK::ChooseTopK(Attributes const& attributes)
    : mScoring(attributes)
    , mCount(attributes.whole("k"))
{
    require(mCount > 0, "a positive k");
}

void ChooseTopK::compute(Call const& call) const
{
    ClassScores const of(mScoring, call);
    int64_t const batch = of.batch();
    int64_t const width = mScoring.prefix + mCount;
    require(mCount <= of.patches(), "at most as many survivors as patches");
    int64_t* const keep = call.output(0, {batch, mCount});
    int64_t* const rows = call.output(1, {batch, width, 1});
    int64_t* const positions = call.output(2, {batch, mCount});
    std::vector<float> room(of.room() * static_cast<size_t>(batch));
    call.forEach(batch, [&](int64_t image) {
        float const* const scores = of.scores(image, of.patches(), room.data() + of.room() * static_cast<size_t>(image));
        int64_t* const survivors = keep + image * mCount;
        chooseRow(scores, of.patches(), mCount, survivors);
        int64_t* const row = rows + image * width;
        std::iota(row, row + mScoring.prefix, 0);
        for (int64_t i = 0; i < mCount; ++i)
        {
            row[mScoring.prefix + i] = mScoring.prefix + survivors[i];
        }
        writePositions(survivors, mCount, of.positionsOf(image), positions + image * mCount);
    });
}

} // namespace star

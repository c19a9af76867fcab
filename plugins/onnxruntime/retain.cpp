#include "retain.h"
#include "ranking.h"

namespace star
{
namespace
{

//! The survivors of each row of a batch, which are known before the width of the output is.
class Survivors
{
public:
    Survivors(int64_t batch, int64_t patches)
        : mPatches(patches)
        , mIndices(static_cast<size_t>(batch * patches))
        , mCounts(static_cast<size_t>(batch))
    {
    }

    //! \param scores Of the row's valid patches; rule 1 is applied to them.
    void chooseRow(int64_t row, float* scores, int32_t valid, float mass)
    {
        std::vector<uint64_t> standings(static_cast<size_t>(valid));
        for (int32_t i = 0; i < valid; ++i)
        {
            scores[i] = usableScore(scores[i]);
            standings[i] = standingOf(scores[i], i);
        }
        int64_t const count = countByMass(standings.data(), valid, mass);
        uint64_t const last = *std::min_element(standings.begin(), standings.begin() + count);
        writeSurvivors(scores, last, count, mIndices.data() + row * mPatches);
        mCounts[static_cast<size_t>(row)] = count;
    }

    int64_t width() const
    {
        return *std::max_element(mCounts.begin(), mCounts.end());
    }

    void write(int64_t* keepIndex, int64_t* keepCount) const
    {
        std::copy(mCounts.begin(), mCounts.end(), keepCount);
        for (size_t row = 0; row < mCounts.size(); ++row)
        {
            int64_t const* const from = mIndices.data() + row * static_cast<size_t>(mPatches);
            keepIndex = std::copy(from, from + width(), keepIndex); // What lies behind the survivors is zero.
        }
    }

private:
    int64_t mPatches;
    std::vector<int64_t> mIndices;
    std::vector<int64_t> mCounts;
};

float massIn(Attributes const& attributes)
{
    float const mass = attributes.real("mass");
    require(isMass(mass), "a mass in (0, 1]");
    return mass;
}

} // namespace

CdfRetain::CdfRetain(Attributes const& attributes)
    : mMass(massIn(attributes))
{
}

void CdfRetain::compute(Call const& call) const
{
    auto const score = call.input<float>(0);
    auto const valid = call.input<int64_t>(1);
    require(score.shape.size() == 2 && isDefined(score.shape[0], score.shape[1], mMass), "scores [images, 1 to 4096 patches]");
    int64_t const batch = score.shape[0];
    int64_t const patches = score.shape[1];
    require(valid.shape == std::vector<int64_t>{batch}, "a count for each row of the scores");
    std::vector<float> room(score.values, score.values + batch * patches);
    Survivors survivors(batch, patches);
    call.forEach(batch, [&](int64_t row) {
        int32_t const count = clampCount(valid.values[row], static_cast<int32_t>(patches));
        survivors.chooseRow(row, room.data() + row * patches, count, mMass);
    });
    survivors.write(call.output(0, {batch, survivors.width()}), call.output(1, {batch}));
    *call.output(2, {}) = survivors.width();
}

ChooseByMass::ChooseByMass(Attributes const& attributes)
    : mScoring(attributes)
    , mMass(massIn(attributes))
{
}

void ChooseByMass::compute(Call const& call) const
{
    ClassScores const of(mScoring, call);
    auto const valid = call.input<int64_t>(4);
    int64_t const batch = of.batch();
    int64_t const patches = of.patches();
    require(isDefined(batch, patches, mMass), "1 to 4096 patches");
    require(valid.values == nullptr || valid.shape == std::vector<int64_t>{batch}, "a count for each image");
    std::vector<float> room(of.room() * static_cast<size_t>(batch));
    Survivors survivors(batch, patches);
    call.forEach(batch, [&](int64_t image) {
        int64_t const count = valid.values == nullptr ? patches : valid.values[image];
        int32_t const within = clampCount(count, static_cast<int32_t>(patches));
        float* const scores = of.scores(image, within, room.data() + of.room() * static_cast<size_t>(image));
        survivors.chooseRow(image, scores, within, mMass);
    });
    int64_t const width = survivors.width();
    int64_t* const keep = call.output(0, {batch, width});
    int64_t* const positions = call.output(2, {batch, width});
    survivors.write(keep, call.output(1, {batch}));
    for (int64_t image = 0; image < batch; ++image)
    {
        writePositions(keep + image * width, width, of.positionsOf(image), positions + image * width);
    }
}

} // namespace star

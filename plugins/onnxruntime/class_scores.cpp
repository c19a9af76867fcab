#include "class_scores.h"
#include "class_score_row.h"

#include <algorithm>

// One version for each kind of vectors, chosen when the library is loaded.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__)
#define STAR_EVERY_CPU __attribute__((flatten, target_clones("avx512f", "avx2", "default")))
#else
#define STAR_EVERY_CPU
#endif

namespace star
{
namespace
{

//! One image's part of queries or keys, in either layout.
HeadsOfTokens headsOf(Tensor<float> const& tensor, int64_t heads, int64_t image)
{
    std::vector<int64_t> const& shape = tensor.shape;
    if (shape.size() == 3)
    {
        return {tensor.values + image * shape[1] * shape[2], shape[2], shape[2] / heads};
    }
    return {tensor.values + image * shape[1] * shape[2] * shape[3], shape[3], shape[2] * shape[3]};
}

//! Whether all positions, or those of `patches` that are in their places, are less than `end`.
bool areWithin(Tensor<int64_t> const& positions, int64_t patches, int64_t end)
{
    if (positions.values == nullptr)
    {
        return patches <= end;
    }
    int64_t const* const last = positions.values + positions.shape[0] * positions.shape[1];
    return std::all_of(positions.values, last, [=](int64_t each) { return each >= 0 && each < end; });
}

STAR_EVERY_CPU void writeScores(ClassAttention const& of, float* logits, float* mean)
{
    writeMeanAttention(of, logits, mean);
}

STAR_EVERY_CPU void weighScores(
    float* attention, int64_t patches, float alpha, float const* weights, int64_t const* positions)
{
    weigh(attention, patches, alpha, weights, positions);
}

} // namespace

Scoring::Scoring(Attributes const& attributes)
    : heads(attributes.whole("heads"))
    , classTokens(attributes.whole("num_class_tokens"))
    , prefix(attributes.whole("num_prefix_tokens"))
    , scale(attributes.real("scale"))
    , alpha(attributes.real("alpha"))
{
    require(heads > 0 && classTokens > 0 && classTokens <= prefix, "heads, and class tokens within the prefix");
}

ClassScores::ClassScores(Scoring const& scoring, Call const& call)
    : mScoring(scoring)
    , mQuery(call.input<float>(0))
    , mKey(call.input<float>(1))
    , mWeights(call.input<float>(2))
    , mPositions(call.input<int64_t>(3))
{
    std::vector<int64_t> const& shape = mKey.shape;
    bool const isSplit = shape.size() == 4 && shape[1] == scoring.heads;
    bool const isWhole = shape.size() == 3 && shape[2] % scoring.heads == 0;
    require(isSplit || isWhole, "keys [batch, tokens, dim] or [batch, heads, tokens, channels]");
    require(mQuery.shape == shape, "queries as many as keys");
    require(patches() > 0, "patches after the prefix tokens");
    bool const isWhere = mPositions.values == nullptr || mPositions.shape == std::vector<int64_t>{batch(), patches()};
    require(isWhere, "positions [batch, patches]");
    require(mWeights.values == nullptr || areWithin(mPositions, patches(), mWeights.shape.front()), "a weight for each position");
}

int64_t ClassScores::batch() const
{
    return mKey.shape[0];
}

int64_t ClassScores::patches() const
{
    return mKey.shape[mKey.shape.size() - 2] - mScoring.prefix;
}

int64_t const* ClassScores::positionsOf(int64_t image) const
{
    return mPositions.values == nullptr ? nullptr : mPositions.values + image * patches();
}

size_t ClassScores::room() const
{
    return static_cast<size_t>((mScoring.heads * mScoring.classTokens + 1) * (mScoring.prefix + patches()));
}

float* ClassScores::scores(int64_t image, int64_t valid, float* room) const
{
    ClassAttention const attention{headsOf(mQuery, mScoring.heads, image), headsOf(mKey, mScoring.heads, image),
        mScoring.heads, mKey.shape.size() == 3 ? mKey.shape[2] / mScoring.heads : mKey.shape[3], mScoring.classTokens,
        mScoring.prefix + valid, mScoring.scale};
    float* const mean = room + attention.rows() * attention.tokens;
    writeScores(attention, room, mean);
    weighScores(mean + mScoring.prefix, valid, mScoring.alpha, mWeights.values, positionsOf(image));
    return mean + mScoring.prefix;
}

void writePositions(int64_t const* survivors, int64_t count, int64_t const* positions, int64_t* standing)
{
    for (int64_t i = 0; i < count; ++i)
    {
        standing[i] = positions == nullptr ? survivors[i] : positions[survivors[i]];
    }
}

} // namespace star

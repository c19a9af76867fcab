#ifndef STAR_CLASS_SCORE_ROW_H
#define STAR_CLASS_SCORE_ROW_H

//! The fused score of one image's patches, as exporter/pruning/scores.py defines it: the attention of the class tokens, its mean over
//! heads and tokens, and the inter-layer weights. Loops are plain, so that a compiler vectorises them; sums have a fixed order, so that
//! every CPU gives the same scores, and equal keys equal ones.

#include <cstdint>
#include <cstring>

namespace star
{

//! Attention below this counts as this: SCORE_FLOOR.
constexpr float kSCORE_FLOOR{1e-30F};

//! Partial sums of a long sum: as many as the widest vectors have lanes.
constexpr int64_t kLANES{16};

//! One image's queries or keys: where a head of a token starts.
struct HeadsOfTokens
{
    float const* values;
    int64_t tokenStride;
    int64_t headStride;

    float const* at(int64_t token, int64_t head) const
    {
        return values + token * tokenStride + head * headStride;
    }
};

//! Whose attention to which tokens is read.
struct ClassAttention
{
    HeadsOfTokens query;
    HeadsOfTokens key;
    int64_t heads;
    int64_t channels;
    int64_t classTokens;
    int64_t tokens;
    float scale;

    int64_t rows() const
    {
        return heads * classTokens;
    }
};

//! Adds up the lanes, in halves.
inline float sumOf(float (&lanes)[kLANES])
{
    for (int64_t width = kLANES / 2; width > 0; width /= 2)
    {
        for (int64_t i = 0; i < width; ++i)
        {
            lanes[i] += lanes[i + width];
        }
    }
    return lanes[0];
}

inline float sumOf(float const* values, int64_t count)
{
    float lanes[kLANES]{};
    int64_t i{0};
    for (; i + kLANES <= count; i += kLANES)
    {
        for (int64_t j = 0; j < kLANES; ++j)
        {
            lanes[j] += values[i + j];
        }
    }
    for (; i < count; ++i)
    {
        lanes[i % kLANES] += values[i];
    }
    return sumOf(lanes);
}

inline float productOf(float const* a, float const* b, int64_t count)
{
    float lanes[kLANES]{};
    int64_t i{0};
    for (; i + kLANES <= count; i += kLANES)
    {
        for (int64_t j = 0; j < kLANES; ++j)
        {
            lanes[j] += a[i + j] * b[i + j];
        }
    }
    for (; i < count; ++i)
    {
        lanes[i % kLANES] += a[i] * b[i];
    }
    return sumOf(lanes);
}

//! e^x for x <= 0, to the last bit but one; what would be less than e^-87, subnormal or nearly so, is e^-87. The polynomial is Cephes'.
inline float exponentialOf(float x)
{
    constexpr float kWHOLE{12582912.0F}; // 1.5 · 2^23: a sum with it has no fraction.
    float const bounded = x > -87.0F ? x : -87.0F;
    float const power = (bounded * 1.44269504F + kWHOLE) - kWHOLE;
    float const rest = (bounded - power * 0.693359375F) - power * -2.12194440e-4F;
    float sum = 1.9875691500e-4F;
    sum = sum * rest + 1.3981999507e-3F;
    sum = sum * rest + 8.3334519073e-3F;
    sum = sum * rest + 4.1665795894e-2F;
    sum = sum * rest + 1.6666665459e-1F;
    sum = sum * rest + 5.0000001201e-1F;
    sum = sum * rest * rest + rest + 1.0F;
    int32_t const bits = (static_cast<int32_t>(power) + 127) << 23;
    float scale;
    std::memcpy(&scale, &bits, sizeof(scale));
    return sum * scale;
}

//! The natural logarithm of a normal positive number, to the last bits. The polynomial is Cephes'.
inline float logarithmOf(float x)
{
    int32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    int32_t const half = (bits & 0x007FFFFF) | 0x3F000000; // The mantissa, in [0.5, 1).
    float mantissa;
    std::memcpy(&mantissa, &half, sizeof(mantissa));
    bool const isSmall = mantissa < 0.707106781F;
    float const rest = isSmall ? mantissa + mantissa - 1.0F : mantissa - 1.0F;
    auto const power = static_cast<float>((bits >> 23) - (isSmall ? 127 : 126));
    float const square = rest * rest;
    float sum = 7.0376836292e-2F;
    sum = sum * rest - 1.1514610310e-1F;
    sum = sum * rest + 1.1676998740e-1F;
    sum = sum * rest - 1.2420140846e-1F;
    sum = sum * rest + 1.4249322787e-1F;
    sum = sum * rest - 1.6668057665e-1F;
    sum = sum * rest + 2.0000714765e-1F;
    sum = sum * rest - 2.4999993993e-1F;
    sum = sum * rest + 3.3333331174e-1F;
    sum = sum * rest * square + power * -2.12194440e-4F - 0.5F * square;
    return rest + sum + power * 0.693359375F;
}

//! Writes each row's logits, scale · query · key, [rows, tokens].
inline void writeLogits(ClassAttention const& of, float* logits)
{
    for (int64_t token = 0; token < of.tokens; ++token)
    {
        for (int64_t row = 0; row < of.rows(); ++row)
        {
            int64_t const head = row / of.classTokens;
            float const* const query = of.query.at(row % of.classTokens, head);
            logits[row * of.tokens + token] = of.scale * productOf(query, of.key.at(token, head), of.channels);
        }
    }
}

//! Adds a row's softmax over all tokens to `mean`, divided by the number of rows; the logits are lost.
inline void addSoftmax(float* logits, int64_t tokens, int64_t rows, float* mean)
{
    float top{logits[0]};
    for (int64_t i = 1; i < tokens; ++i)
    {
        top = logits[i] > top ? logits[i] : top;
    }
    for (int64_t i = 0; i < tokens; ++i)
    {
        logits[i] = exponentialOf(logits[i] - top);
    }
    float const share = 1.0F / (sumOf(logits, tokens) * static_cast<float>(rows));
    for (int64_t i = 0; i < tokens; ++i)
    {
        mean[i] += logits[i] * share;
    }
}

//! Writes the mean attention to each token, [tokens].
//! \param logits Room for [rows, tokens].
inline void writeMeanAttention(ClassAttention const& of, float* logits, float* mean)
{
    writeLogits(of, logits);
    for (int64_t i = 0; i < of.tokens; ++i)
    {
        mean[i] = 0.0F;
    }
    for (int64_t row = 0; row < of.rows(); ++row)
    {
        addSoftmax(logits + row * of.tokens, of.tokens, of.rows(), mean);
    }
}

//! Turns each patch's attention into attention^alpha · weight.
//! \param weights By position, or nullptr for ones.
//! \param positions Of the patches, or nullptr where each is still in its place.
inline void weigh(float* attention, int64_t patches, float alpha, float const* weights, int64_t const* positions)
{
    for (int64_t i = 0; i < patches; ++i)
    {
        attention[i] = attention[i] > kSCORE_FLOOR ? attention[i] : kSCORE_FLOOR;
    }
    if (alpha != 1.0F)
    {
        for (int64_t i = 0; i < patches; ++i)
        {
            attention[i] = exponentialOf(alpha * logarithmOf(attention[i]));
        }
    }
    for (int64_t i = 0; weights != nullptr && i < patches; ++i)
    {
        attention[i] *= weights[positions == nullptr ? i : positions[i]];
    }
}

} // namespace star

#endif // STAR_CLASS_SCORE_ROW_H

#ifndef STAR_CASE_FILE_H
#define STAR_CASE_FILE_H

//! Cases of CdfRetain, and their results, as two flat files of little-endian numbers: tests/plugins/gpu_check.py
//! writes the one and compares the other with the reference implementation.

#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace star
{

//! batch, patches, mass and a word of padding; score; valid_count.
struct Case
{
    int64_t batch;
    int64_t patches;
    float mass;
    std::vector<float> score;
    std::vector<int64_t> validCount;
};

//! width; keep_count; keep_index.
struct Result
{
    int64_t width;
    std::vector<int64_t> keepCount;
    std::vector<int64_t> keepIndex;
};

template <typename T>
void readInto(std::ifstream& file, T* values, size_t count)
{
    if (!file.read(reinterpret_cast<char*>(values), static_cast<std::streamsize>(count * sizeof(T))))
    {
        throw std::runtime_error("cases | got a file that ends early | need whole cases");
    }
}

template <typename T>
void write(std::ofstream& file, T const* values, size_t count)
{
    file.write(reinterpret_cast<char const*>(values), static_cast<std::streamsize>(count * sizeof(T)));
}

//! \return Whether there was another case.
inline bool readCase(std::ifstream& file, Case& read)
{
    if (file.peek() == std::ifstream::traits_type::eof())
    {
        return false;
    }
    float padding{};
    readInto(file, &read.batch, 1);
    readInto(file, &read.patches, 1);
    readInto(file, &read.mass, 1);
    readInto(file, &padding, 1);
    read.score.resize(read.batch * read.patches);
    read.validCount.resize(read.batch);
    readInto(file, read.score.data(), read.score.size());
    readInto(file, read.validCount.data(), read.validCount.size());
    return true;
}

//! Call `retain` for each case of a file, in order, and write what it returns to another.
template <typename Retain>
void runCases(std::string const& casesPath, std::string const& resultsPath, Retain retain)
{
    std::ifstream cases(casesPath, std::ios::binary);
    std::ofstream results(resultsPath, std::ios::binary);
    if (!cases || !results)
    {
        throw std::runtime_error("files | got one that cannot be opened | need cases to read, results to write");
    }
    Case next{};
    while (readCase(cases, next))
    {
        Result const result = retain(next);
        write(results, &result.width, 1);
        write(results, result.keepCount.data(), result.keepCount.size());
        write(results, result.keepIndex.data(), result.keepIndex.size());
    }
}

} // namespace star

#endif // STAR_CASE_FILE_H

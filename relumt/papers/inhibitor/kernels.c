/* Attention of a single head in 16-bit integers. integer_attention.py says what the functions compute.

   Compiled for one instruction set and one width of the accumulators, ACCUMULATOR_BITS = 16 or 32, at a time.
   plain_*: the equations as loops; the compiler decides which instructions compute them.
   tiled_*: products of matrices in tiles of registers; the instructions are written out. A vector holds two neighbors
   (of the d components, then of the n keys) for each column, because pmaddwd sums such pairs, and because broadcasting
   32 bits takes fewer instructions than 16. Keys and values are packed accordingly: two rows of k^T or v are interleaved,
   so that k is [d/2][n][2] and v is [n/2][d][2]. */

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* Names for vectors of 16-bit integers that do not depend on the instruction set, which -march selects. */
#if defined(__AVX512BW__)
typedef __m512i vector;
#define INTRINSIC(name) _mm512_##name
#define ZERO() _mm512_setzero_si512()
#define LOAD(address) _mm512_loadu_si512(address)
#define STORE(address, x) _mm512_storeu_si512(address, x)
#elif defined(__AVX2__)
typedef __m256i vector;
#define INTRINSIC(name) _mm256_##name
#define ZERO() _mm256_setzero_si256()
#define LOAD(address) _mm256_loadu_si256((const vector *)(address))
#define STORE(address, x) _mm256_storeu_si256((vector *)(address), x)
#else
typedef __m128i vector;
#define INTRINSIC(name) _mm_##name
#define ZERO() _mm_setzero_si128()
#define LOAD(address) _mm_loadu_si128((const vector *)(address))
#define STORE(address, x) _mm_storeu_si128((vector *)(address), x)
#endif

#define LANES ((int)(sizeof(vector) / sizeof(int16_t)))

/* Stops GCC from loading a vector again for each of its uses. */
#define KEEP_IN_REGISTER(x) __asm__("" : "+x"(x))

#if ACCUMULATOR_BITS == 16
typedef int16_t accumulator;
#define WEIGHT_BITS 7
#else
typedef int32_t accumulator;
#define WEIGHT_BITS 13
#endif

#define COLUMNS 32                       /* columns of a tile; n and d are multiples of it */
#define VECTORS (2 * COLUMNS / LANES)    /* vectors per row of a tile: 8, 4 or 2 */
#define ROWS (8 / VECTORS)               /* rows of a tile, so that its sums take 8 registers */
#define MAX_ROWS 4
#define INLINE static inline __attribute__((always_inline))

typedef struct {
    const int16_t *q, *k, *v;   /* [n][d]; k and v are packed for tiled_* */
    accumulator *output;        /* [n][d] */
    int32_t *sums;              /* room for [MAX_ROWS][n or d] */
    int16_t *weights;           /* room for [MAX_ROWS][n] */
    int16_t *positive_values;   /* room for [n][d] */
    int32_t *key_sums;          /* room for [n] */
    int32_t n, d, shift, alpha;
} problem;

void repeat(void (*kernel)(const problem *), const problem *p, int32_t times) {
    while (times-- > 0)
        kernel(p);
}

INLINE int32_t larger(int32_t x, int32_t y) { return x > y ? x : y; }
INLINE int32_t smaller(int32_t x, int32_t y) { return x < y ? x : y; }

/* Integer softmax of a row: 2^-x with x = (largest score - score) / 2^shift / 16, interpolated linearly between whole x,
   then divided by the sum. The weights sum to at most 2^WEIGHT_BITS. */
INLINE void softmax(const int32_t *restrict scores, int16_t *restrict weights, int n, int shift) {
    int32_t largest = scores[0];
    for (int j = 1; j < n; j++)
        largest = larger(largest, scores[j]);
    uint32_t total = 0;
    for (int j = 0; j < n; j++) {
        uint32_t difference = ((uint32_t)largest - (uint32_t)scores[j]) >> shift;
        uint32_t x = difference < 255 ? difference : 255;
#ifdef __AVX2__
        uint32_t power = ((32 - (x & 15)) << 9) >> (x >> 4);
#else /* no instruction shifts each lane by a distance of its own */
        uint16_t power = (uint16_t)((32 - (x & 15)) << 9);
        power = x & 16 ? power >> 1 : power;
        power = x & 32 ? power >> 2 : power;
        power = x & 64 ? power >> 4 : power;
        power = x & 128 ? power >> 8 : power;
#endif
        weights[j] = (int16_t)power;
        total += power;
    }
    uint16_t inverse = (uint16_t)((1u << (16 + WEIGHT_BITS)) / total);
    for (int j = 0; j < n; j++)
        weights[j] = (int16_t)(((uint32_t)(uint16_t)weights[j] * inverse) >> 16);
}

void plain_inhibitor(const problem *p) {
    const int n = p->n, d = p->d, shift = p->shift, alpha = p->alpha;
    int32_t *restrict distances = p->sums;
    int16_t *restrict inhibitions = p->weights;
    for (int i = 0; i < n; i++) {
        const int16_t *restrict query = p->q + i * d;
        accumulator *restrict output = p->output + i * d;
        for (int j = 0; j < n; j++) {
            const int16_t *restrict key = p->k + j * d;
            accumulator sum = 0;
            for (int c = 0; c < d; c++) {
                accumulator difference = (accumulator)(query[c] - key[c]);
                sum = (accumulator)(sum + (accumulator)(difference < 0 ? -difference : difference));
            }
            distances[j] = sum;
        }
        for (int j = 0; j < n; j++)
            inhibitions[j] = (int16_t)smaller(larger((distances[j] >> shift) - alpha, 0), INT16_MAX);
        memset(output, 0, d * sizeof *output);
        for (int j = 0; j < n; j++) {
            const int16_t *restrict value = p->v + j * d;
            for (int c = 0; c < d; c++) { /* max(v - z, 0) without the step below -2^15 */
                int16_t inhibited = (int16_t)((value[c] > inhibitions[j] ? value[c] : inhibitions[j]) - inhibitions[j]);
                output[c] = (accumulator)(output[c] + inhibited);
            }
        }
    }
}

void plain_dot_product(const problem *p) {
    const int n = p->n, d = p->d;
    int32_t *restrict scores = p->sums;
    int16_t *restrict weights = p->weights;
    for (int i = 0; i < n; i++) {
        const int16_t *restrict query = p->q + i * d;
        accumulator *restrict output = p->output + i * d;
        for (int j = 0; j < n; j++) {
            const int16_t *restrict key = p->k + j * d;
            accumulator sum = 0;
            for (int c = 0; c < d; c++)
                sum = (accumulator)(sum + query[c] * key[c]);
            scores[j] = sum;
        }
        softmax(scores, weights, n, p->shift);
        memset(output, 0, d * sizeof *output);
        for (int j = 0; j < n; j++) {
            const int16_t *restrict value = p->v + j * d;
            for (int c = 0; c < d; c++)
                output[c] = (accumulator)(output[c] + weights[j] * value[c]);
        }
        for (int c = 0; c < d; c++)
            output[c] = (accumulator)(output[c] >> WEIGHT_BITS);
    }
}

/* Steps of a sum: what instructions make of a broadcast pair of the left operand and a vector of the right one. */
#if ACCUMULATOR_BITS == 16
INLINE vector add(vector sum, vector x) { return INTRINSIC(add_epi16)(sum, x); }
INLINE vector add_product(vector sum, vector x, vector y) { return add(sum, INTRINSIC(mullo_epi16)(x, y)); }
#else
INLINE vector add_product(vector sum, vector x, vector y) {
    return INTRINSIC(add_epi32)(sum, INTRINSIC(madd_epi16)(x, y));
}
INLINE vector add(vector sum, vector x) { return add_product(sum, x, INTRINSIC(set1_epi16)(1)); }
#endif
INLINE vector add_larger(vector sum, vector x, vector y) { return add(sum, INTRINSIC(max_epi16)(x, y)); }
INLINE vector add_inhibited(vector sum, vector z, vector v) { return add(sum, INTRINSIC(subs_epu16)(v, z)); }

INLINE vector broadcast_pair(const int16_t *x) {
    int32_t pair;
    memcpy(&pair, x, sizeof pair);
    return INTRINSIC(set1_epi32)(pair);
}

/* The sum of a column: lanes of 32 bits hold two sums of 16 bits, of even and of odd neighbors. They are
   added as unsigned numbers, because signed overflow is undefined; only the lower 16 bits are kept. */
INLINE accumulator total(int32_t lane) {
    return (accumulator)(ACCUMULATOR_BITS == 16 ? (uint32_t)lane + (uint32_t)(lane >> 16) : (uint32_t)lane);
}

/* ROWS rows of `result` [ROWS][columns]: sums over r of step(left[row][r], right[r][column]), with `right` packed.
   `total` makes sums of what is stored. */
INLINE void multiply(vector (*step)(vector, vector, vector), const int16_t *restrict left,
                     const int16_t *restrict right, int32_t *restrict result, int inner, int columns) {
    for (int column = 0; column < columns; column += COLUMNS) {
        vector sums[ROWS][VECTORS];
#pragma GCC unroll 8
        for (int row = 0; row < ROWS; row++)
#pragma GCC unroll 8
            for (int x = 0; x < VECTORS; x++)
                sums[row][x] = ZERO();
        for (int r = 0; r < inner; r += 2) {
            const int16_t *packed = right + r * columns + 2 * column;
            vector loaded[VECTORS];
#pragma GCC unroll 8
            for (int x = 0; x < VECTORS; x++) {
                loaded[x] = LOAD(packed + x * LANES);
#if defined(__AVX2__) /* SSE2 has too few registers */
                KEEP_IN_REGISTER(loaded[x]);
#endif
            }
#pragma GCC unroll 8
            for (int row = 0; row < ROWS; row++) {
                vector pair = broadcast_pair(left + row * inner + r);
#pragma GCC unroll 8
                for (int x = 0; x < VECTORS; x++)
                    sums[row][x] = step(sums[row][x], pair, loaded[x]);
            }
        }
#pragma GCC unroll 8
        for (int row = 0; row < ROWS; row++)
#pragma GCC unroll 8
            for (int x = 0; x < VECTORS; x++)
                STORE(result + row * columns + column + x * LANES / 2, sums[row][x]);
    }
}

/* A function of its own for each step: inlined into one, GCC copies the sums between registers in every step. */
#define DEFINE_MULTIPLICATION(name, step)                                                                            \
    static __attribute__((noinline)) void name(const int16_t *left, const int16_t *right, int32_t *result,           \
                                               int inner, int columns) {                                             \
        multiply(step, left, right, result, inner, columns);                                                         \
    }
DEFINE_MULTIPLICATION(sum_larger, add_larger)
DEFINE_MULTIPLICATION(sum_inhibited, add_inhibited)
DEFINE_MULTIPLICATION(sum_products, add_product)

/* |q - k| = 2 max(q, k) - q - k, modulo 2^ACCUMULATOR_BITS, and max(v - z, 0) = max(max(v, 0) - z, 0) because z >= 0. */
void tiled_inhibitor(const problem *p) {
    const int n = p->n, d = p->d, shift = p->shift, alpha = p->alpha;
    int32_t *restrict key_sums = p->key_sums;
    int16_t *restrict positive_values = p->positive_values;
    for (int x = 0; x < n * d; x++)
        positive_values[x] = p->v[x] > 0 ? p->v[x] : 0;
    memset(key_sums, 0, n * sizeof *key_sums);
    for (int r = 0; r < d; r += 2)
        for (int j = 0; j < n; j++)
            key_sums[j] += p->k[r * n + 2 * j] + p->k[r * n + 2 * j + 1];
    for (int i = 0; i < n; i += ROWS) {
        sum_larger(p->q + i * d, p->k, p->sums, d, n);
        for (int row = 0; row < ROWS; row++) {
            const int32_t *restrict maxima = p->sums + row * n;
            int16_t *restrict inhibitions = p->weights + row * n;
            int32_t query_sum = 0;
            for (int c = 0; c < d; c++)
                query_sum += p->q[(i + row) * d + c];
            for (int j = 0; j < n; j++) {
                accumulator distance = (accumulator)(2u * (uint32_t)total(maxima[j]) - (uint32_t)query_sum
                                                     - (uint32_t)key_sums[j]);
                inhibitions[j] = (int16_t)smaller(larger((distance >> shift) - alpha, 0), INT16_MAX);
            }
        }
        sum_inhibited(p->weights, positive_values, p->sums, n, d);
        for (int x = 0; x < ROWS * d; x++)
            p->output[i * d + x] = total(p->sums[x]);
    }
}

void tiled_dot_product(const problem *p) {
    const int n = p->n, d = p->d;
    int32_t *restrict sums = p->sums;
    for (int i = 0; i < n; i += ROWS) {
        accumulator *restrict output = p->output + i * d;
        sum_products(p->q + i * d, p->k, sums, d, n);
        for (int x = 0; x < ROWS * n; x++)
            sums[x] = total(sums[x]);
        for (int row = 0; row < ROWS; row++)
            softmax(sums + row * n, p->weights + row * n, n, p->shift);
        sum_products(p->weights, p->v, sums, n, d);
        for (int x = 0; x < ROWS * d; x++)
            output[x] = (accumulator)(total(sums[x]) >> WEIGHT_BITS);
    }
}

/* Names for vectors of 16-bit integers that do not depend on the instruction set, which -march selects. */

#include <immintrin.h>

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

// Kernels that cover the corners real programs leave open, each a plain loop: what it stresses is its name.
//
//   kernels stream MIB ROUNDS      a sweep over arrays: streaming, nothing to keep in a cache
//   kernels chase KIB STEPS        a random cycle of pointers: every load waits for the one before
//   kernels matmul N               dense matrices, blocked by the caches only: regular, floating point
//   kernels sieve N                bits of a large array: strided stores
//   kernels mix N                  integer arithmetic in registers: compute-bound
//
// and inputs for real programs, the same bytes everywhere:
//
//   kernels text BYTES | kernels video FRAMES | kernels source FUNCTIONS
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 88172645463325252ull;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void *take(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) {
        fprintf(stderr, "kernels: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return memory;
}

static uint64_t stream(size_t mib, size_t rounds) {
    size_t n = mib * (1 << 20) / sizeof(uint64_t);
    uint64_t *a = take(n * sizeof *a), *b = take(n * sizeof *b);
    memset(a, 1, n * sizeof *a);
    for (size_t r = 0; r < rounds; r++)
        for (size_t i = 0; i < n; i++) b[i] = 3 * a[i] + r;
    return b[n / 2];
}

static uint64_t chase(size_t kib, size_t steps) {
    size_t n = kib * 1024 / 64;
    uint64_t(*line)[8] = take(n * 64);
    size_t *order = take(n * sizeof *order);
    for (size_t i = 0; i < n; i++) order[i] = i;
    for (size_t i = n; i > 1; i--) {
        size_t j = next() % i, t = order[i - 1];
        order[i - 1] = order[j];
        order[j] = t;
    }
    for (size_t i = 0; i < n; i++) line[order[i]][0] = order[(i + 1) % n];
    uint64_t at = 0, sum = 0;
    for (size_t s = 0; s < steps; s++) {
        at = line[at][0];
        sum += at ^ s;
    }
    return sum;
}

static uint64_t matmul(size_t n) {
    double *a = take(n * n * sizeof *a), *b = take(n * n * sizeof *b), *c = take(n * n * sizeof *c);
    for (size_t i = 0; i < n * n; i++) {
        a[i] = (double)(next() % 100);
        b[i] = (double)(next() % 100);
        c[i] = 0;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++)
            for (size_t j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * b[k * n + j];
    return (uint64_t)c[n + 1];
}

static uint64_t sieve(size_t n) {
    uint8_t *composite = take(n);
    uint64_t primes = 0;
    memset(composite, 0, n);
    for (size_t i = 2; i < n; i++) {
        if (composite[i]) continue;
        primes++;
        for (size_t j = i * i; j < n; j += i) composite[j] = 1;
    }
    return primes;
}

static uint64_t mix(size_t n) {
    uint64_t a = 1, b = 2, c = 3, d = 4;
    for (size_t i = 0; i < n; i++) {
        a = (a ^ b) + (c >> 7) + i;
        b = b * 5 + (d << 3);
        c = (c + a) ^ (d >> 11);
        d = d + b + (a << 5);
    }
    return a ^ b ^ c ^ d;
}

// Text with the statistics of natural words: a vocabulary drawn by rank, so that compressors and sort have something to do.
static void text(size_t bytes) {
    static char words[4096][12];
    for (size_t w = 0; w < 4096; w++) {
        size_t length = 2 + next() % 9;
        for (size_t i = 0; i < length; i++) words[w][i] = (char)('a' + next() % 26 * next() % 26);
    }
    for (size_t written = 0; written < bytes;) {
        uint64_t r = next();
        size_t rank = (size_t)(4096.0 * (double)(r % 1000003 + 1) / 1000003.0 * (double)((r >> 32) % 1009 + 1) / 1009.0);
        written += (size_t)printf("%s%c", words[rank % 4096], next() % 11 ? ' ' : '\n');
    }
}

// A moving picture in YUV4MPEG: gradients that drift, with grain, so that motion search has work.
static void video(size_t frames) {
    enum { W = 352, H = 288 };
    printf("YUV4MPEG2 W%d H%d F25:1 Ip A1:1 C420\n", W, H);
    for (size_t f = 0; f < frames; f++) {
        printf("FRAME\n");
        for (size_t y = 0; y < H; y++)
            for (size_t x = 0; x < W; x++) putchar((int)((x * 2 + 3 * f + (y * y) / 97 + (next() & 7)) & 255));
        for (size_t i = 0; i < W * H / 2; i++) putchar((int)(128 + ((i + f) % 31)));
    }
}

// C functions that a compiler has to think about: loops, branches and arithmetic, no two alike.
static void source(size_t functions) {
    printf("#include <stdint.h>\n");
    for (size_t f = 0; f < functions; f++) {
        printf("uint32_t f%zu(const uint32_t *p, uint32_t n) {\n  uint32_t a = %uu, b = n;\n", f, (unsigned)next());
        for (int k = 0; k < 6; k++)
            printf("  for (uint32_t i = %d; i < n; i++) { if (p[i] & %uu) a += p[i] * %uu; else b ^= a >> %d; }\n", k,
                   (unsigned)next() & 255, (unsigned)next(), (int)(next() % 31));
        printf("  switch (a %% 7) { case 0: return b; case 3: return a * b; case 5: return a / (b | 1); }\n");
        printf("  return a ^ b%s;\n}\n", f ? " ^ n" : "");
    }
}

int main(int argc, char **argv) {
    size_t x = argc > 2 ? strtoull(argv[2], NULL, 10) : 0, y = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    const char *what = argc > 2 ? argv[1] : "";
    uint64_t result;
    if (!strcmp(what, "stream") && argc > 3) result = stream(x, y);
    else if (!strcmp(what, "chase") && argc > 3) result = chase(x, y);
    else if (!strcmp(what, "matmul")) result = matmul(x);
    else if (!strcmp(what, "sieve")) result = sieve(x);
    else if (!strcmp(what, "mix")) result = mix(x);
    else if (!strcmp(what, "text")) return text(x), 0;
    else if (!strcmp(what, "video")) return video(x), 0;
    else if (!strcmp(what, "source")) return source(x), 0;
    else {
        fprintf(stderr, "kernels: see the head of kernels.c for what it takes\n");
        return 2;
    }
    printf("%llu\n", (unsigned long long)result);
    return 0;
}

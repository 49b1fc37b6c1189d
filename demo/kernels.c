// Kernels that cover the corners real programs leave open, each a plain loop: what it stresses is its name.
//
//   kernels stream MIB ROUNDS      a sweep over arrays: streaming, nothing to keep in a cache
//   kernels chase KIB STEPS        a random cycle of pointers: every load waits for the one before
//   kernels matmul N               dense matrices, blocked by the caches only: regular, floating point
//   kernels sieve N                bits of a large array: strided stores
//   kernels mix N                  integer arithmetic in registers: compute-bound
//   kernels bodies N STEPS         forces between all pairs of bodies: floating point in registers
//   kernels stencil N STEPS        a seven-point stencil over a cube: streams of floating point
//
// and inputs for real programs, the same bytes everywhere:
//
//   kernels text BYTES | kernels video FRAMES | kernels source FUNCTIONS | kernels picture SIDE | kernels xml ITEMS
//   kernels sql ROWS | kernels sat VARIABLES | kernels transport SIDE | kernels points N | kernels beam LENGTH
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

static uint64_t bodies(size_t n, size_t steps) {
    double(*at)[3] = take(n * sizeof *at), (*speed)[3] = take(n * sizeof *speed);
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 3; k++) at[i][k] = (double)(next() % 1000), speed[i][k] = 0;
    for (size_t s = 0; s < steps; s++) {
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n; j++) {
                double d[3], square = 1.0;
                for (int k = 0; k < 3; k++) d[k] = at[j][k] - at[i][k], square += d[k] * d[k];
                double pull = 1.0 / (square * square);
                for (int k = 0; k < 3; k++) speed[i][k] += pull * d[k];
            }
        for (size_t i = 0; i < n; i++)
            for (int k = 0; k < 3; k++) at[i][k] += speed[i][k];
    }
    return (uint64_t)at[0][0];
}

static uint64_t stencil(size_t n, size_t steps) {
    size_t row = n, plane = n * n;
    double *a = take(n * plane * sizeof *a), *b = take(n * plane * sizeof *b);
    for (size_t i = 0; i < n * plane; i++) a[i] = b[i] = (double)(next() % 100);
    for (size_t s = 0; s < steps; s++) {
        for (size_t i = plane; i < n * plane - plane; i++)
            b[i] = 0.4 * a[i] + 0.1 * (a[i - 1] + a[i + 1] + a[i - row] + a[i + row] + a[i - plane] + a[i + plane]);
        double *old = a;
        a = b, b = old;
    }
    return (uint64_t)a[n * plane / 2];
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

// A picture in PPM: smooth shades with grain.
static void picture(size_t side) {
    printf("P6\n%zu %zu\n255\n", side, side);
    for (size_t y = 0; y < side; y++)
        for (size_t x = 0; x < side * 3; x++) putchar((int)((x * y / 97 + x / 3 + (next() & 15)) & 255));
}

// An orders document: elements nested three deep, with attributes and text.
static void xml(size_t items) {
    printf("<?xml version=\"1.0\"?>\n<orders>\n");
    for (size_t i = 0; i < items; i++)
        printf("<order id=\"%zu\" region=\"r%u\"><item price=\"%u\"><name>part %u</name></item><note>%x</note></order>\n", i,
               (unsigned)(next() % 17), (unsigned)(next() % 900), (unsigned)(next() % 300), (unsigned)next());
    printf("</orders>\n");
}

// A table, an index, and questions about them.
static void sql(size_t rows) {
    printf("CREATE TABLE t(a INTEGER, b INTEGER, c TEXT);\nBEGIN;\n");
    for (size_t i = 0; i < rows; i++)
        printf("INSERT INTO t VALUES(%u,%u,'name %u');\n", (unsigned)(next() % rows), (unsigned)(next() % 100), (unsigned)next());
    printf("COMMIT;\nCREATE INDEX i ON t(a);\n");
    printf("SELECT x.b, count(*), max(y.c) FROM t x JOIN t y ON x.a = y.b GROUP BY x.b ORDER BY 2;\n");
    printf("SELECT count(*) FROM t WHERE c LIKE '%%77%%';\n");
}

// Random clauses of three, a little below the density at which most have no solution.
static void sat(size_t variables) {
    size_t clauses = variables * 41 / 10;
    printf("p cnf %zu %zu\n", variables, clauses);
    for (size_t c = 0; c < clauses; c++) {
        for (int k = 0; k < 3; k++) printf("%s%zu ", next() & 1024 ? "-" : "", (size_t)(next() >> 20) % variables + 1);
        printf("0\n");
    }
}

// A transport problem in LP format: as many sources as sinks, random costs.
static void transport(size_t side) {
    printf("Minimize\n cost:");
    for (size_t i = 0; i < side; i++)
        for (size_t j = 0; j < side; j++) printf(" + %u x%zu_%zu\n", (unsigned)(next() % 97 + 1), i, j);
    printf("Subject To\n");
    for (size_t i = 0; i < side; i++) {
        for (size_t j = 0; j < side; j++) printf(" + x%zu_%zu", i, j);
        printf(" <= %zu\n", 20 + i % 7);
        for (size_t j = 0; j < side; j++) printf(" + x%zu_%zu", j, i);
        printf(" >= %zu\n", 10 + i % 5);
    }
    printf("End\n");
}

// Points in a cube, for a mesh generator.
static void points(size_t n) {
    printf("%zu 3 0 0\n", n);
    for (size_t i = 0; i < n; i++) printf("%zu %.6f %.6f %.6f\n", i + 1, next() % 1000003 / 1e6, next() % 1000003 / 1e6, next() % 1000003 / 1e6);
}

// A beam of brick elements, clamped at one end and pulled at the other, for a finite-element solver.
static void beam(size_t length) {
    enum { SIDE = 7 };
    printf("*NODE, NSET=ALL\n");
    for (size_t z = 0; z <= length; z++)
        for (size_t i = 0; i < SIDE * SIDE; i++) printf("%zu, %zu., %zu., %zu.\n", z * SIDE * SIDE + i + 1, i % SIDE, i / SIDE, z);
    printf("*ELEMENT, TYPE=C3D8, ELSET=E\n");
    for (size_t z = 0, e = 1; z < length; z++)
        for (size_t y = 0; y + 1 < SIDE; y++)
            for (size_t x = 0; x + 1 < SIDE; x++, e++) {
                size_t a = z * SIDE * SIDE + y * SIDE + x + 1, b = a + SIDE * SIDE;
                printf("%zu, %zu, %zu, %zu, %zu, %zu, %zu, %zu, %zu\n", e, a, a + 1, a + 1 + SIDE, a + SIDE, b, b + 1, b + 1 + SIDE, b + SIDE);
            }
    printf("*NSET, NSET=FIX, GENERATE\n1, %d, 1\n*BOUNDARY\nFIX, 1, 3\n", SIDE * SIDE);
    printf("*MATERIAL, NAME=M\n*ELASTIC\n210000., .3\n*SOLID SECTION, ELSET=E, MATERIAL=M\n");
    printf("*STEP\n*STATIC, SOLVER=ITERATIVE SCALING\n*CLOAD\n%zu, 1, 1.\n*NODE PRINT, NSET=FIX\nRF\n*END STEP\n", length * SIDE * SIDE + 1);
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
    else if (!strcmp(what, "bodies") && argc > 3) result = bodies(x, y);
    else if (!strcmp(what, "stencil") && argc > 3) result = stencil(x, y);
    else if (!strcmp(what, "text")) return text(x), 0;
    else if (!strcmp(what, "video")) return video(x), 0;
    else if (!strcmp(what, "source")) return source(x), 0;
    else if (!strcmp(what, "picture")) return picture(x), 0;
    else if (!strcmp(what, "xml")) return xml(x), 0;
    else if (!strcmp(what, "sql")) return sql(x), 0;
    else if (!strcmp(what, "sat")) return sat(x), 0;
    else if (!strcmp(what, "transport")) return transport(x), 0;
    else if (!strcmp(what, "points")) return points(x), 0;
    else if (!strcmp(what, "beam")) return beam(x), 0;
    else {
        fprintf(stderr, "kernels: see the head of kernels.c for what it takes\n");
        return 2;
    }
    printf("%llu\n", (unsigned long long)result);
    return 0;
}

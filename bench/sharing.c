// Threads that share data: sharing KIND THREADS KIB STEPS. Kinds: table (random reads of common data), written (the same, every
// sixteenth access is a store), grid (each thread writes its part and reads its neighbour's), own (random accesses to own data).
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char *kind;
static long threads, steps;
static size_t words;
static uint64_t *common;
static volatile uint64_t sink;

static void *work(void *number) {
    long own_number = (long)number;
    uint64_t x = own_number * 77 + 1, sum = 0, *own = NULL;
    if (*kind == 'o') {
        own = malloc(words * 8);
        memset(own, 1, words * 8);
    }
    for (long step = 0; step < steps; step++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        size_t at = x % words;
        if (*kind == 't') sum += common[at];
        else if (*kind == 'o') sum += own[at] += x;
        else if (*kind == 'w') {
            if (x >> 60 == 0) common[at] = x;
            else sum += common[at];
        } else {
            size_t part = words / threads, from = part * own_number;
            common[from + step * 8 % part] = sum + x;
            if (step % 16 == 0) sum += common[(from + part + step * 8 % 512) % words];
        }
        for (int k = 0; k < 12; k++) sum = sum * 3 + k;
    }
    sink = sum;
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t all[64];
    if (argc < 5) return 2;
    kind = argv[1], threads = atol(argv[2]), words = atol(argv[3]) * 128, steps = atol(argv[4]);
    if (threads < 1 || threads > 64 || words == 0) return 2;
    common = malloc(words * 8);
    memset(common, 1, words * 8);
    for (long i = 1; i < threads; i++) pthread_create(&all[i], NULL, work, (void *)i);
    work(NULL);
    for (long i = 1; i < threads; i++) pthread_join(all[i], NULL);
}

// Programs of known behaviour, one per word: what the profiler's tests profile.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

struct line { struct line *next; uint64_t value[7]; };
extern char **environ;
static volatile uint64_t sink;

static uint64_t random_state = 88172645463325252ull;
static uint64_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void stream(size_t lines, int passes) {
    uint64_t *all = aligned_alloc(64, lines * 64), sum = 0;
    memset(all, 1, lines * 64);
    for (int pass = 0; pass < passes; pass++)
        for (size_t i = 0; i < lines * 8; i++) sum += all[i];
    sink = sum;
}

static void chase(size_t lines, long steps) {
    struct line *all = aligned_alloc(64, lines * sizeof *all);
    uint32_t *order = malloc(lines * sizeof *order);
    for (size_t i = 0; i < lines; i++) order[i] = i;
    for (size_t i = lines - 1; i > 0; i--) {
        size_t j = next_random() % (i + 1);
        uint32_t swapped = order[i];
        order[i] = order[j], order[j] = swapped;
    }
    for (size_t i = 0; i < lines; i++) all[order[i]].next = &all[order[(i + 1) % lines]];
    struct line *at = all;
    for (long step = 0; step < steps; step++) at = at->next;
    sink = (uintptr_t)at;
}

static void matmul(int n) {
    double *a = aligned_alloc(64, n * n * 8), *b = aligned_alloc(64, n * n * 8), *c = aligned_alloc(64, n * n * 8);
    for (int i = 0; i < n * n; i++) a[i] = i % 7, b[i] = i % 5;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
    sink = (uint64_t)c[n];
}

// Random accesses, mostly to the lower part: distances of all lengths.
static void mixed(long kilo) {
    size_t lines = 1 << 15;
    uint64_t *all = aligned_alloc(64, lines * 64), sum = 0;
    memset(all, 1, lines * 64);
    for (long i = 0; i < kilo * 100; i++) {
        uint64_t r = next_random();
        size_t line = r % lines >> (r >> 40) % 12;
        sum += all[line * 8 + (r >> 20) % 8];
        if (r >> 60 == 3) all[line * 8] = sum;
    }
    sink = sum;
}

// Loads of 16 bytes, each of which overlaps the one before.
static void wide(int passes) {
    typedef uint64_t pair __attribute__((vector_size(16), aligned(8)));
    size_t words = 1 << 15;
    uint64_t *all = aligned_alloc(64, words * 8);
    memset(all, 1, words * 8);
    pair sum = {0, 0};
    for (int pass = 0; pass < passes; pass++)
        for (size_t i = 0; i + 1 < words; i++) sum += *(pair *)(all + i);
    sink = sum[0] + sum[1];
}

static void *work(void *count) {
    uint64_t x = 1;
    for (long i = 0; i < (long)count; i++) x = x * 6364136223846793005ull + 1;
    sink = x;
    return NULL;
}

static void threads(int count, long each) {
    pthread_t all[16];
    for (int i = 0; i < count; i++) pthread_create(&all[i], NULL, work, (void *)each);
    for (int i = 0; i < count; i++) pthread_join(all[i], NULL);
}

// Random accesses of each thread to lines of its own, to common lines, or to common lines of which every eighth access is a store.
static const char *lines_are;
static size_t line_count;
static long accesses;
static uint64_t *common;
static void *use(void *start) {
    uint64_t x = (uint64_t)start, sum = 0, *all = common;
    if (!strcmp(lines_are, "own")) {
        all = aligned_alloc(64, line_count * 64);
        memset(all, 1, line_count * 64);
    }
    for (long i = 0; i < accesses; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        uint64_t *at = &all[x % line_count * 8];
        if (!strcmp(lines_are, "written") && (x >> 40) % 8 == 0) *at = x;
        else sum += *at;
    }
    sink = sum;
    return NULL;
}

static void shared(const char *kind, int count, size_t lines, long each) {
    pthread_t all[16];
    lines_are = kind, line_count = lines, accesses = each;
    common = aligned_alloc(64, lines * 64);
    memset(common, 1, lines * 64);
    for (long i = 0; i < count; i++) pthread_create(&all[i], NULL, use, (void *)(i * 7919 + 88172645463325252));
    for (int i = 0; i < count; i++) pthread_join(all[i], NULL);
}

static void *wait_for_all(void *all) {
    pthread_barrier_wait(all);
    return NULL;
}

static void crowd(int count) {
    pthread_barrier_t all;
    pthread_attr_t small;
    pthread_barrier_init(&all, NULL, count + 1);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (int i = 0; i < count; i++) {
        pthread_t one;
        if (pthread_create(&one, &small, wait_for_all, &all)) exit(3);
    }
    wait_for_all(&all);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    long first = argc > 2 ? atol(argv[2]) : 0, second = argc > 3 ? atol(argv[3]) : 0;
    char *child[] = {argv[0], "stream", "512", "200", NULL};
    pid_t pid;
    if (!strcmp(what, "stream")) stream(first, second);
    else if (!strcmp(what, "chase")) chase(first, second);
    else if (!strcmp(what, "matmul")) matmul(first);
    else if (!strcmp(what, "mixed")) mixed(first);
    else if (!strcmp(what, "wide")) wide(first);
    else if (!strcmp(what, "threads")) threads(first, second);
    else if (!strcmp(what, "shared")) shared(argv[2], second, atol(argv[4]), atol(argv[5]));
    else if (!strcmp(what, "exit")) return first;
    else if (!strcmp(what, "crash")) close(2), *(volatile int *)8 = 1; // without QEMU's word about it
    else if (!strcmp(what, "forever")) for (;;) sink++;
    else if (!strcmp(what, "fork")) {
        if ((pid = fork()) == 0) stream(512, 200), _exit(0);
        waitpid(pid, NULL, 0);
    } else if (!strcmp(what, "jail")) { // a child that cannot reach the recording's files
        close(2); // without the plugin's word about it
        if (chroot(argv[2]) || chdir("/")) return 1;
        if ((pid = fork()) == 0) stream(512, second), _exit(0);
        waitpid(pid, NULL, 0);
    } else if (!strcmp(what, "kill")) { // a child that computes when it is killed, and work after that
        int ready[2];
        char byte = 0;
        if (pipe(ready)) return 1;
        if ((pid = fork()) == 0) for (sink = write(ready[1], &byte, 1);;) sink++;
        if (read(ready[0], &byte, 1) != 1) return 1;
        usleep(50000);
        kill(pid, first);
        waitpid(pid, NULL, 0);
        usleep(600000);
        work((void *)second);
    } else if (!strcmp(what, "spawn")) {
        if (posix_spawn(&pid, argv[0], NULL, NULL, child, environ)) return 1;
        waitpid(pid, NULL, 0);
    } else if (!strcmp(what, "features")) { // as libraries do that have code for several processors
#ifdef __x86_64__
        unsigned a, b, c, d;
        __cpuid_count(7, 0, a, b, c, d);
        sink = b;
#endif
    } else if (!strcmp(what, "uring")) {
        char parameters[120] = {0};
        return syscall(SYS_io_uring_setup, 4, parameters) >= 0;
    } else if (!strcmp(what, "execute")) { // a program, which may not be there, and then itself
        if ((pid = fork()) == 0) execl(argv[2], argv[2], NULL), _exit(9);
        waitpid(pid, NULL, 0);
        stream(512, 20);
    } else if (!strcmp(what, "close")) { // all descriptors, as daemons do
        close_range(0, ~0u, 0);
        threads(2, 1000000);
        stream(512, 200);
    } else if (!strcmp(what, "crowd")) { // threads that are all there at once
        crowd(first);
    } else if (!strcmp(what, "naps")) { // a family that never ends, two of which left their parent
        if ((pid = fork()) == 0) fork(), setsid();
        for (;;) pause();
    } else return 2;
    return 0;
}

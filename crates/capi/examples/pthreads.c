/*
 * Each thread has a region of its own; the sums are printed when all have ended.
 *
 *     cc -pthread pthreads.c $(pkg-config --cflags --libs countersteer) -o pthreads && ./pthreads [THREADS [PAGES]]
 */
#define _DEFAULT_SOURCE
#include <countersteer.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define EVENTS "task_clock,page_faults"
enum { CLOCK, FAULTS, COUNTS };

struct work {
    pthread_t thread;
    size_t pages;
    uint64_t sums[COUNTS];
    int failed;
};

static void touch(size_t pages) {
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    volatile char *base = mmap(NULL, pages * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return;
    madvise((void *)base, pages * size, MADV_NOHUGEPAGE);
    for (size_t page = 0; page < pages; page++)
        base[page * size] = 1;
    munmap((void *)base, pages * size);
}

static void *run(void *argument) {
    struct work *work = argument;
    cs_count counts[COUNTS];
    cs_region *region;
    /* Opened here: a region counts the thread that opens it. */
    if (cs_open(EVENTS, 0, &region) < 0 || cs_start(region) < 0) {
        fprintf(stderr, "%s\n", cs_strerror());
        work->failed = 1;
        return NULL;
    }
    touch(work->pages);
    if (cs_stop(region) < 0 || cs_read(region, counts, COUNTS) != COUNTS) {
        fprintf(stderr, "%s\n", cs_strerror());
        work->failed = 1;
    } else {
        for (int i = 0; i < COUNTS; i++)
            work->sums[i] = counts[i].value;
    }
    cs_close(region);
    return NULL;
}

int main(int argc, char **argv) {
    size_t threads = argc > 1 ? strtoul(argv[1], NULL, 0) : 4;
    size_t pages = argc > 2 ? strtoul(argv[2], NULL, 0) : 1000;
    struct work *works = calloc(threads, sizeof *works);
    uint64_t sums[COUNTS] = {0};
    size_t created = 0;
    int failed = works == NULL;
    for (; created < threads && !failed; created += !failed) {
        works[created].pages = pages;
        failed = pthread_create(&works[created].thread, NULL, run, &works[created]) != 0;
    }
    for (size_t i = 0; i < created; i++) {
        pthread_join(works[i].thread, NULL);
        failed |= works[i].failed;
        printf("thread %zu page_faults %" PRIu64 "\n", i, works[i].sums[FAULTS]);
        for (int j = 0; j < COUNTS; j++)
            sums[j] += works[i].sums[j];
    }
    if (!failed)
        printf("task_clock %" PRIu64 " ns\npage_faults %" PRIu64 "\n", sums[CLOCK], sums[FAULTS]);
    free(works);
    return failed;
}

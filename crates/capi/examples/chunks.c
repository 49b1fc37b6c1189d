/*
 * A pool of threads that divides each loop by the advice to its threads: the speed of their cores, and their shares of them.
 * Loops with equal chunks and with chunks by advice alternate; the medians of both are printed.
 *
 *     cc -pthread chunks.c $(pkg-config --cflags --libs countersteer) -o chunks && steer run -P hsf -- ./chunks [THREADS [LOOPS]]
 *
 * With OpenMP each thread of `#pragma omp parallel` calls cs_page_open, which gives a thread the same page every time.
 */
#define _GNU_SOURCE
#include <countersteer.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ITEMS 40000
#define STEPS 1000 /* per item: about a microsecond */

enum { EQUAL, ADVISED, WAYS };

struct worker {
    pthread_t thread;
    cs_page *page;
    double weight; /* part of a loop that it does while a thread on the slowest cores does 1 */
    size_t first, end;
    uint64_t sum;
};

static struct worker *workers;
static size_t threads, loops;
static pthread_barrier_t open, done;

static uint64_t work(size_t first, size_t end) {
    uint64_t value = first;
    for (size_t step = 0; step < (end - first) * STEPS; step++)
        value = value * 6364136223846793005u + 1442695040888963407u;
    return value;
}

static void *run(void *argument) {
    struct worker *me = argument;
    if (cs_page_open(&me->page) < 0)
        fprintf(stderr, "without advice: %s\n", cs_strerror());
    else
        cs_page_tell(me->page, &(cs_told){.workers = (unsigned)threads});
    pthread_barrier_wait(&open);
    for (size_t loop = 0; loop < loops; loop++) {
        pthread_barrier_wait(&open);
        me->sum += work(me->first, me->end);
        pthread_barrier_wait(&done);
    }
    pthread_barrier_wait(&done);
    cs_page_close(me->page);
    return NULL;
}

/* Divides a loop. Returns true if there was advice for every thread. */
static int share_out(int way) {
    double sum = 0, before = 0;
    int advised = 1;
    for (size_t i = 0; i < threads; i++) {
        cs_advice advice;
        int said = way == ADVISED && workers[i].page != NULL && cs_page_read(workers[i].page, &advice) == 1;
        workers[i].weight = said ? advice.speed * advice.share : 1;
        advised &= said;
    }
    for (size_t i = 0; i < threads; i++)
        sum += workers[i].weight = advised ? workers[i].weight : 1;
    for (size_t i = 0; i < threads; i++) {
        workers[i].first = (size_t)(ITEMS * (before / sum));
        before += workers[i].weight;
        workers[i].end = i + 1 == threads ? ITEMS : (size_t)(ITEMS * (before / sum));
    }
    return advised;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    threads = argc > 1 ? strtoul(argv[1], NULL, 0) : 4;
    loops = argc > 2 ? strtoul(argv[2], NULL, 0) : 40;
    workers = calloc(threads, sizeof *workers);
    double *took[WAYS] = {calloc(loops + 1, sizeof(double)), calloc(loops + 1, sizeof(double))};
    size_t counts[WAYS] = {0}, advised = 0;
    if (threads < 1 || workers == NULL || took[EQUAL] == NULL || took[ADVISED] == NULL)
        return 1;
    pthread_barrier_init(&open, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&done, NULL, (unsigned)threads + 1);
    for (size_t i = 0; i < threads; i++)
        if (pthread_create(&workers[i].thread, NULL, run, &workers[i]) != 0)
            return 1;
    pthread_barrier_wait(&open);
    for (size_t loop = 0; loop < loops; loop++) {
        int way = loop % 2 == 0 ? EQUAL : ADVISED;
        int by_advice = share_out(way);
        double start = seconds();
        pthread_barrier_wait(&open);
        pthread_barrier_wait(&done);
        /* Before the first advice both ways are equal. */
        if (way == EQUAL || by_advice)
            took[way][counts[way]++] = seconds() - start;
        advised += (size_t)by_advice;
    }
    for (size_t i = 0; i < threads; i++) {
        cs_advice advice;
        if (workers[i].page != NULL && cs_page_read(workers[i].page, &advice) == 1)
            printf("thread %zu on %s: sf %.2f speed %.2f share %.2f\n", i, advice.core_type, advice.sf, advice.speed,
                   advice.share);
    }
    pthread_barrier_wait(&done);
    for (size_t i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    for (int way = 0; way < WAYS; way++)
        qsort(took[way], counts[way], sizeof(double), by_value);
    printf("equal chunks %.2f ms\n", 1e3 * took[EQUAL][counts[EQUAL] / 2]);
    if (advised > 0)
        printf("chunks by advice %.2f ms, %.2f times as fast\n", 1e3 * took[ADVISED][advised / 2],
               took[EQUAL][counts[EQUAL] / 2] / took[ADVISED][advised / 2]);
    else
        printf("no advice: nobody steers this program\n");
    free(took[EQUAL]);
    free(took[ADVISED]);
    free(workers);
    return 0;
}

// A program whose threads wait for each other: equal shares of a fixed amount of work, with barriers between its parts.
//   barriers THREADS
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define PARTS 20
#define LOOPS 10000000L
static pthread_barrier_t barrier;
static long share;

static void *work(void *unused) {
    for (int part = 0; part < PARTS; part++) {
        for (volatile long left = share; left > 0; left--) {}
        pthread_barrier_wait(&barrier);
    }
    return unused;
}

int main(int count, char **words) {
    int threads = count == 2 ? atoi(words[1]) : 0;
    if (threads < 1 || threads > 64) return fputs("usage: barriers THREADS\n", stderr), 2;
    pthread_t others[64];
    share = LOOPS / PARTS / threads;
    pthread_barrier_init(&barrier, NULL, threads);
    for (int n = 1; n < threads; n++) pthread_create(&others[n], NULL, work, NULL);
    work(NULL);
    for (int n = 1; n < threads; n++) pthread_join(others[n], NULL);
    return 0;
}

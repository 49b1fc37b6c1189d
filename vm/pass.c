/*
 * Two threads hand each other a byte: pass MS. Prints how often they did so, per second, in the
 * second half of that time. On one CPU, that is a context switch each.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int there[2], back[2];

static void *answer(void *unused) {
    char byte;
    while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1) {}
    return unused;
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int count, char **words) {
    double begin, length = count > 1 ? atof(words[1]) * 1e-3 : 1;
    pthread_t other;
    long passed = 0;
    char byte = 'a';
    if (pipe(there) || pipe(back) || pthread_create(&other, NULL, answer, NULL)) return 1;
    for (int half = 0; half < 2; half++) {
        passed = 0;
        begin = now_s();
        while (now_s() - begin < length / 2) {
            if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) return 1;
            passed += 2;
        }
    }
    printf("%.0f\n", passed / (now_s() - begin));
    return 0;
}

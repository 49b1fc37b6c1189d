/*
 * Many threads: `crowd forks N RATE` creates N short ones, RATE per second if the machine keeps up, and prints how long
 * that took; `crowd wait N SECONDS` has N that sleep, prints "ready" when all are there, and ends after so many seconds;
 * `crowd become PROGRAM ARGUMENT...` has three, of which one starts that program in the place of all of them after a while;
 * `crowd polled MS` has the kernel make one for it that uses a CPU for so long, and goes to sleep.
 */
#include <linux/io_uring.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void *nothing(void *unused)
{
    return unused;
}

static void *sleeping(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static void *becoming(void *command)
{
    usleep(300000);
    execvp(*(char **)command, command);
    perror("crowd");
    exit(1);
}

static int polled(unsigned int ms)
{
    struct io_uring_params params = { .flags = IORING_SETUP_SQPOLL, .sq_thread_idle = ms };
    int ring = syscall(__NR_io_uring_setup, 1, &params), access = PROT_READ | PROT_WRITE;
    char *queue = mmap(NULL, 4096, access, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry = mmap(NULL, 4096, access, MAP_SHARED, ring, IORING_OFF_SQES);
    if (ring < 0 || queue == MAP_FAILED || entry == MAP_FAILED) {
        perror("crowd: io_uring");
        return 1;
    }
    /* It polls for so long after the last thing that it was given to do, which is nothing. */
    entry->opcode = IORING_OP_NOP;
    __atomic_store_n((unsigned int *)(queue + params.sq_off.tail), 1, __ATOMIC_RELEASE);
    syscall(__NR_io_uring_enter, ring, 1, 0, IORING_ENTER_SQ_WAKEUP, NULL, 0);
    return usleep(1000 * ms + 200000);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    if (argc > 2 && !strcmp(argv[1], "become")) {
        pthread_t one, other;
        if (pthread_create(&one, NULL, sleeping, NULL) || pthread_create(&other, NULL, becoming, argv + 2))
            return 1;
        sleeping(NULL);
    }
    if (argc == 3 && !strcmp(argv[1], "polled"))
        return polled(atoi(argv[2]));
    int forks = argc == 4 && !strcmp(argv[1], "forks");
    long n = argc == 4 ? atol(argv[2]) : 0, more = argc == 4 ? atol(argv[3]) : 0;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 4 * PTHREAD_STACK_MIN);
    double begun = now();
    for (long i = 0; i < n; i++) {
        pthread_t thread;
        int failed = pthread_create(&thread, &small, forks ? nothing : sleeping, NULL);
        if (failed) {
            fprintf(stderr, "crowd: thread %ld: %s\n", i, strerror(failed));
            return 1;
        }
        if (!forks)
            continue;
        pthread_join(thread, NULL);
        double early = begun + (double)(i + 1) / more - now();
        if (early > 0)
            usleep((useconds_t)(early * 1e6));
    }
    printf(forks ? "forks %ld in %.1f s\n" : "ready %ld in %.1f s\n", n, now() - begun);
    fflush(stdout);
    if (!forks)
        sleep((unsigned)more);
    return 0;
}

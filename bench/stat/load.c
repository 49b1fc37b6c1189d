/*
 * Programs to be counted: `load compute N` adds up for N million rounds in one thread; `load forks N` has N threads, one after the
 * other, that run for 20 us each; `load threads T N` has T threads at once, each N times at work for 100 us or so and asleep for 100;
 * `load team T N` has T threads that are each N times at work for 1 ms or so and then wait for all others.
 * `load sleepers T S` has T threads that wake every second for 10 us or so, for S seconds; `load churn M S` starts a process of two such
 * threads every M ms, each of which lives for a second.
 * `load timed NAME COMMAND...` prints the name and how many microseconds the command takes, whose output goes nowhere.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long rounds;

static void compute(long n)
{
    for (volatile long i = 0; i < n; i++)
        ;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

static void *brief(void *unused)
{
    for (double begun = now(); now() - begun < 20;)
        ;
    return unused;
}

static void *restless(void *unused)
{
    struct timespec pause = {0, 100000};
    for (long i = 0; i < rounds; i++) {
        compute(60000);
        nanosleep(&pause, NULL);
    }
    return unused;
}

static pthread_barrier_t meeting;

static void *member(void *unused)
{
    for (long i = 0; i < rounds; i++) {
        compute(600000);
        pthread_barrier_wait(&meeting);
    }
    return unused;
}

static void *sleeper(void *unused)
{
    struct timespec pause = {1, 0};
    for (long i = 0; i < rounds; i++) {
        compute(6000);
        nanosleep(&pause, NULL);
    }
    return unused;
}

static void churn(char *self, long milliseconds, double seconds)
{
    struct timespec pause = {0, milliseconds * 1000000};
    for (double begun = now(); now() - begun < seconds * 1e6;) {
        if (!fork()) {
            execl("/proc/self/exe", self, "sleepers", "2", "1", (char *)NULL);
            _exit(127);
        }
        nanosleep(&pause, NULL);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    }
    while (waitpid(-1, NULL, 0) > 0)
        ;
}

static int timed(const char *name, char **command)
{
    int status = 1;
    double begun = now();
    pid_t child = fork();
    if (!child) {
        dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
        execvp(command[0], command);
        _exit(127);
    }
    waitpid(child, &status, 0);
    printf("%s %.0f\n", name, now() - begun);
    return status != 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[1] : "";
    long n = argc > 2 ? atol(argv[2]) : 0;
    if (!strcmp(what, "timed") && argc > 3)
        return timed(argv[2], argv + 3);
    if (!strcmp(what, "compute"))
        compute(n * 1000000);
    for (long i = 0; i < n && !strcmp(what, "forks"); i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, brief, NULL) || pthread_join(thread, NULL))
            return 1;
    }
    if (!strcmp(what, "churn") && argc > 3)
        churn(argv[0], n, atof(argv[3]));
    void *(*work)(void *) = NULL;
    work = !strcmp(what, "threads") ? restless : !strcmp(what, "team") ? member : work;
    work = !strcmp(what, "sleepers") ? sleeper : work;
    if (work && argc > 3) {
        pthread_t *threads = calloc(n, sizeof *threads);
        rounds = atol(argv[3]);
        pthread_barrier_init(&meeting, NULL, n);
        pthread_attr_t small;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, 64 * 1024);
        for (long i = 0; i < n; i++)
            if (pthread_create(&threads[i], &small, work, NULL))
                return 1;
        for (long i = 0; i < n; i++)
            pthread_join(threads[i], NULL);
    }
    return 0;
}

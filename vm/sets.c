// Runs sets of tasks and prints what the kernel's scheduler did with each task: sets FILE SECONDS
//
// A line of FILE is a task; consecutive lines with the same set run together. Fields: set, task, process, nice, work in us, sleep in
// us, the task that starts it (or -), how that one does (pipe, futex or -), CPUs as a mask in hexadecimal (or -), and other CPUs
// from some time on (MASK@MS or -). A task works, wakes the tasks that name it, and sleeps, again and again; one that is started by
// another waits for that instead. A line of process `hotplug` is no task: its CPU (cpuN) goes offline after so many ms (work), and
// online after others (sleep). Printed per task, with tabs between: set, task, process, time on a CPU, time runnable without one
// (both ns, of schedstat), times it got a CPU, migrations, median wait for a CPU (ns), and its time on each CPU (us).
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TASKS 64
#define CPUS 64
#define WAITS 20000

struct task {
    char set[32], name[32], process[32], from[32], how[8];
    int nice, work_us, sleep_us, later_ms, pipe[2];
    unsigned long mask, later;
};
struct totals {
    int64_t ran, waited, picked;
};
// What the processes share: the start, the tasks' futexes, and the results.
struct shared {
    int ready, go, sent[TASKS], waits[TASKS];
    struct totals total[TASKS];
    int64_t migrations[TASKS], on_cpu[TASKS][CPUS];
    int32_t wait_ns[TASKS][WAITS];
} *shared;
static struct task tasks[TASKS], plugs[TASKS];
static int count, plug_count;
static int64_t length_ns;

static void fail(const char *what) {
    perror(what);
    exit(3);
}

static int64_t now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void await(int *word, int value) {
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value) syscall(SYS_futex, word, FUTEX_WAIT, value, 0, 0, 0);
}

static void wake(int *word, int most) { syscall(SYS_futex, word, FUTEX_WAKE, most, 0, 0, 0); }

static struct totals read_stat(int file) {
    char text[128];
    struct totals s;
    ssize_t n = pread(file, text, sizeof text - 1, 0);
    text[n < 0 ? 0 : n] = 0;
    if (sscanf(text, "%ld %ld %ld", &s.ran, &s.waited, &s.picked) != 3) fail("schedstat");
    return s;
}

static int64_t migrations(void) {
    FILE *file = fopen("/proc/thread-self/sched", "r");
    char line[256];
    int64_t n = -1;
    if (!file) fail("/proc/thread-self/sched");
    while (fgets(line, sizeof line, file))
        if (strstr(line, "nr_migrations")) n = atoll(strchr(line, ':') + 1);
    fclose(file);
    return n;
}

static void run_on(unsigned long mask) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < CPUS; i++)
        if (mask >> i & 1) CPU_SET(i, &set);
    if (sched_setaffinity(0, sizeof set, &set)) fail("sched_setaffinity");
}

// Computes for so long, and notes on which CPUs; ends early with the set.
static void work(int me, int64_t until) {
    int64_t cpu = now_ns(CLOCK_THREAD_CPUTIME_ID), done = cpu + tasks[me].work_us * 1000LL;
    while (cpu < done && (tasks[me].sleep_us || now_ns(CLOCK_MONOTONIC) < until)) {
        unsigned where;
        for (volatile int k = 0; k < 300; k++) {}
        syscall(SYS_getcpu, &where, 0, 0);
        int64_t then = now_ns(CLOCK_THREAD_CPUTIME_ID);
        shared->on_cpu[me][where] += then - cpu;
        cpu = then;
    }
}

static void start_others(int me, char what) {
    for (int o = 0; o < count; o++) {
        if (strcmp(tasks[o].from, tasks[me].name)) continue;
        if (!strcmp(tasks[o].how, "pipe")) {
            if (write(tasks[o].pipe[1], &what, 1) != 1) fail("write");
        } else {
            __atomic_add_fetch(&shared->sent[o], 1, __ATOMIC_SEQ_CST);
            wake(&shared->sent[o], 1);
        }
    }
}

// Waits to be started; false at the end.
static int started(int me, int *seen) {
    char what = 'a';
    if (!strcmp(tasks[me].how, "pipe")) return read(tasks[me].pipe[0], &what, 1) == 1 && what != 'x';
    await(&shared->sent[me], *seen);
    *seen = __atomic_load_n(&shared->sent[me], __ATOMIC_SEQ_CST);
    return 1;
}

static void *live(void *number) {
    int me = (int)(intptr_t)number, seen = 0;
    struct task *t = &tasks[me];
    int file = open("/proc/thread-self/schedstat", O_RDONLY);
    if (file < 0) fail("/proc/thread-self/schedstat");
    prctl(PR_SET_TIMERSLACK, 1);
    setpriority(PRIO_PROCESS, syscall(SYS_gettid), t->nice);
    if (t->mask) run_on(t->mask);
    if (__atomic_add_fetch(&shared->ready, 1, __ATOMIC_SEQ_CST) == count) {
        usleep(20000);
        __atomic_store_n(&shared->go, 1, __ATOMIC_SEQ_CST);
        wake(&shared->go, 1000);
    } else {
        await(&shared->go, 0);
    }
    int64_t moved = migrations(), begin = now_ns(CLOCK_MONOTONIC), until = begin + length_ns;
    struct totals first = read_stat(file), last = first;
    while (now_ns(CLOCK_MONOTONIC) < until) {
        if (strcmp(t->from, "-") && !started(me, &seen)) break;
        work(me, until);
        struct totals s = read_stat(file);
        if (s.picked > last.picked && shared->waits[me] < WAITS)
            shared->wait_ns[me][shared->waits[me]++] = (s.waited - last.waited) / (s.picked - last.picked);
        last = s;
        if (t->later && now_ns(CLOCK_MONOTONIC) - begin > t->later_ms * 1000000LL) {
            run_on(t->later);
            t->later = 0;
        }
        start_others(me, 'a');
        if (t->sleep_us) {
            struct timespec sleep = {t->sleep_us / 1000000, t->sleep_us % 1000000 * 1000};
            clock_nanosleep(CLOCK_MONOTONIC, 0, &sleep, 0);
        }
    }
    last = read_stat(file);
    shared->total[me] = (struct totals){last.ran - first.ran, last.waited - first.waited, last.picked - first.picked};
    shared->migrations[me] = migrations() - moved;
    start_others(me, 'x');
    return 0;
}

static int ascending(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

// One process for all tasks that name it; its first thread only waits.
static void process(int first) {
    pthread_t threads[TASKS];
    int n = 0;
    for (int i = first; i < count; i++)
        if (!strcmp(tasks[i].process, tasks[first].process) && pthread_create(&threads[n++], 0, live, (void *)(intptr_t)i)) fail("pthread_create");
    while (n) pthread_join(threads[--n], 0);
    _exit(0);
}

static void plug(const char *cpu, char online) {
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/%s/online", cpu);
    int file = open(path, O_WRONLY);
    if (file < 0 || write(file, &online, 1) != 1) fail(path);
    close(file);
}

// Takes CPUs offline and online while the tasks run.
static void plug_all(void) {
    await(&shared->go, 0);
    for (int ms = 0; ms <= length_ns / 1000000; ms++) {
        for (int i = 0; i < plug_count; i++)
            if (ms == plugs[i].work_us || ms == plugs[i].sleep_us) plug(plugs[i].name, ms == plugs[i].work_us ? '0' : '1');
        struct timespec step = {0, 1000000};
        if (plug_count) clock_nanosleep(CLOCK_MONOTONIC, 0, &step, 0);
    }
}

static void run(void) {
    memset(shared, 0, sizeof *shared);
    for (int i = 0; i < count; i++)
        if (!strcmp(tasks[i].how, "pipe") && pipe(tasks[i].pipe)) fail("pipe");
    fflush(stdout);
    for (int i = 0; i < count; i++) {
        int older = 0;
        while (strcmp(tasks[older].process, tasks[i].process)) older++;
        if (older == i && !fork()) process(i);
    }
    if (plug_count) plug_all();
    while (wait(0) > 0) {}
    int cpus = sysconf(_SC_NPROCESSORS_ONLN);
    for (int i = 0; i < count; i++) {
        int n = shared->waits[i];
        qsort(shared->wait_ns[i], n, sizeof shared->wait_ns[i][0], ascending);
        struct totals *s = &shared->total[i];
        printf("%s\t%s\t%s\t%ld\t%ld\t%ld\t%ld\t%d", tasks[i].set, tasks[i].name, tasks[i].process, s->ran, s->waited, s->picked,
               shared->migrations[i], n ? shared->wait_ns[i][n / 2] : 0);
        for (int c = 0; c < cpus; c++) printf("%s%ld", c ? "," : "\t", shared->on_cpu[i][c] / 1000);
        printf("\n");
        if (!strcmp(tasks[i].how, "pipe")) close(tasks[i].pipe[0]), close(tasks[i].pipe[1]);
    }
}

int main(int arguments, char **argument) {
    FILE *file = arguments == 3 ? fopen(argument[1], "r") : NULL;
    if (!file) return fprintf(stderr, "sets FILE SECONDS\n"), 2;
    length_ns = atof(argument[2]) * 1e9;
    shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) fail("mmap");
    for (char line[512]; fgets(line, sizeof line, file);) {
        struct task t = {0};
        char mask[32], later[32], *rest;
        if (*line == '#') continue;
        if (sscanf(line, "%31s %31s %31s %d %d %d %31s %7s %31s %31s", t.set, t.name, t.process, &t.nice, &t.work_us, &t.sleep_us,
                   t.from, t.how, mask, later) != 10)
            return fprintf(stderr, "sets: ten fields are expected in: %s", line), 2;
        t.mask = strtoul(mask, &rest, 16);
        t.later = strtoul(later, &rest, 16);
        if (*rest == '@') t.later_ms = atoi(rest + 1);
        if (count && strcmp(tasks[0].set, t.set)) run(), count = plug_count = 0;
        if (!strcmp(t.process, "hotplug")) {
            plugs[plug_count++] = t;
            continue;
        }
        if (count == TASKS) return fprintf(stderr, "sets: more than %d tasks in %s\n", TASKS, t.set), 2;
        tasks[count++] = t;
    }
    if (count) run();
}

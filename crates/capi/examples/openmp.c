/*
 * Hints of OpenMP programs without changes to them. Each thread of a parallel region states how many threads share its work. It
 * states that it spins while it waits at a barrier or for the next region.
 *
 *     cc -shared -fPIC openmp.c $(pkg-config --cflags --libs countersteer) -ldl -o libhints.so
 *     LD_PRELOAD=$PWD/libhints.so ./program
 *     OMP_TOOL_LIBRARIES=$PWD/libhints.so ./program
 *
 * The first run, under `steer run`, is with GCC's runtime, and the second with LLVM's. libgomp has no interface for tools, so its
 * functions are wrapped. Worksharing loops with a static schedule end at the barrier of the region, and others at GOMP_loop_end.
 * Nested regions have the hints of the innermost region.
 */
#define _GNU_SOURCE
#include <countersteer.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

static _Thread_local cs_page *page;
static _Thread_local bool failed;

/* Writes the hint of this thread. Without a page, the program runs as if there were no hints. */
static void tell(unsigned workers, unsigned phase) {
    if (page == NULL && !failed)
        failed = cs_page_open(&page) < 0;
    if (page != NULL)
        cs_page_tell(page, &(cs_told){.workers = workers, .phase = phase});
}

static void phase(unsigned now) {
    if (page != NULL)
        cs_page_phase(page, now);
}

/* Wrappers of libgomp. */

typedef void part(void *);

static void *original(const char *name) {
    return dlsym(RTLD_NEXT, name);
}

struct region {
    part *work;
    void *data;
};

static int team(void) {
    static int (*threads)(void);
    if (threads == NULL)
        *(void **)&threads = original("omp_get_num_threads");
    return threads == NULL ? 0 : threads();
}

static void in_region(void *data) {
    struct region *region = data;
    tell((unsigned)team(), CS_PHASE_RUNNING);
    region->work(region->data);
    phase(CS_PHASE_SPINNING);
}

void GOMP_parallel(part *work, void *data, unsigned threads, unsigned flags) {
    static void (*begin)(part *, void *, unsigned, unsigned);
    if (begin == NULL)
        *(void **)&begin = original("GOMP_parallel");
    struct region region = {work, data};
    begin(in_region, &region, threads, flags);
    tell((unsigned)team(), CS_PHASE_RUNNING);
}

#define WAITS(NAME)                                                                                                     \
    void NAME(void) {                                                                                                   \
        static void (*wait)(void);                                                                                      \
        if (wait == NULL)                                                                                               \
            *(void **)&wait = original(#NAME);                                                                          \
        phase(CS_PHASE_SPINNING);                                                                                       \
        wait();                                                                                                         \
        phase(CS_PHASE_RUNNING);                                                                                        \
    }

WAITS(GOMP_barrier)
WAITS(GOMP_loop_end)
WAITS(GOMP_sections_end)

/* Tool of OMPT (OpenMP 5.0, section 4): the parts of its header that are used here. */

typedef void any(void);
typedef any *find(const char *name);

struct tool {
    int (*initialize)(find *, int, void *);
    void (*finalize)(void *);
    uint64_t data;
};

enum { BEGIN = 1, IMPLICIT_TASK = 7, SYNC_REGION_WAIT = 16, INITIAL = 1 };

static void implicit_task(int endpoint, void *region, void *task, unsigned threads, unsigned index, int flags) {
    (void)region, (void)task, (void)index;
    if (flags & INITIAL)
        return;
    if (endpoint == BEGIN)
        tell(threads, CS_PHASE_RUNNING);
    else
        phase(index == 0 ? CS_PHASE_RUNNING : CS_PHASE_SPINNING);
}

static void waits(int kind, int endpoint, void *region, void *task, const void *code) {
    (void)kind, (void)region, (void)task, (void)code;
    phase(endpoint == BEGIN ? CS_PHASE_SPINNING : CS_PHASE_RUNNING);
}

static int initialize(find *lookup, int device, void *data) {
    (void)device, (void)data;
    int (*set)(int, any *) = (int (*)(int, any *))lookup("ompt_set_callback");
    if (set == NULL)
        return 0;
    set(IMPLICIT_TASK, (any *)implicit_task);
    set(SYNC_REGION_WAIT, (any *)waits);
    return 1;
}

static void finalize(void *data) {
    (void)data;
}

struct tool *ompt_start_tool(unsigned version, const char *runtime) {
    static struct tool tool = {initialize, finalize, 0};
    (void)version, (void)runtime;
    return &tool;
}

/*
 * Prints a line every N events of a thread, by callback.
 *
 *     cc every.c $(pkg-config --cflags --libs countersteer) -o every && ./every [EVENTS [NUMBER [PAGES [watch]]]]
 */
#define _DEFAULT_SOURCE
#include <countersteer.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, cs_strerror());
    return 1;
}

static int touch(size_t pages) {
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    volatile char *base = mmap(NULL, pages * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return -1;
    madvise((void *)base, pages * size, MADV_NOHUGEPAGE);
    for (size_t page = 0; page < pages; page++)
        base[page * size] = 1;
    return munmap((void *)base, pages * size);
}

static void tell(const cs_moment *moment, void *user) {
    printf("%s", (const char *)user);
    for (unsigned i = 0; i < moment->n; i++)
        printf(" %s %" PRIu64, moment->counts[i].name, moment->counts[i].value);
    printf("\n");
}

int main(int argc, char **argv) {
    const char *events = argc > 1 ? argv[1] : "page_faults,task_clock";
    uint64_t number = argc > 2 ? strtoull(argv[2], NULL, 0) : 100;
    size_t pages = argc > 3 ? strtoul(argv[3], NULL, 0) : 1000;
    int watched = argc > 4;
    cs_every *every;
    if (cs_every_open(events, number, 0, &every) < 0)
        return failed("cs_every_open");

    if (watched && cs_every_watch(every, tell, "watched") < 0)
        return failed("cs_every_watch");
    if (cs_every_start(every) < 0)
        return failed("cs_every_start");
    if (touch(pages) < 0) {
        perror("touching pages");
        return 1;
    }
    if (cs_every_stop(every) < 0)
        return failed("cs_every_stop");
    if (!watched && cs_every_poll(every, 0, tell, "polled") < 0)
        return failed("cs_every_poll");
    int lost = cs_every_lost(every);
    /* A watch has passed everything on when this returns. */
    cs_every_close(every);
    printf("lost %d\n", lost);
    return 0;
}

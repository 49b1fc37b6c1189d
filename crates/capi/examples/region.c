/*
 * Measures the cost of touching new pages: one thread, one region around it.
 *
 *     cc region.c $(pkg-config --cflags --libs countersteer) -o region && ./region [EVENTS [PAGES]]
 */
#define _DEFAULT_SOURCE
#include <countersteer.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 64

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

int main(int argc, char **argv) {
    const char *events = argc > 1 ? argv[1] : "task_clock,page_faults";
    size_t pages = argc > 2 ? strtoul(argv[2], NULL, 0) : 1000;
    cs_region *region;
    if (cs_open(events, 0, &region) < 0)
        return failed("cs_open");

    if (cs_start(region) < 0)
        return failed("cs_start");
    if (touch(pages) < 0) {
        perror("touching pages");
        return 1;
    }
    if (cs_stop(region) < 0)
        return failed("cs_stop");

    cs_count counts[MOST];
    int n = cs_read(region, counts, MOST);
    if (n < 0)
        return failed("cs_read");
    for (int i = 0; i < n && i < MOST; i++) {
        const char *core_type = counts[i].core_type ? counts[i].core_type : "-";
        if (counts[i].available)
            printf("%s %s %" PRIu64 " %s\n", counts[i].name, core_type, counts[i].value, counts[i].unit);
        else
            printf("%s %s - not available\n", counts[i].name, core_type);
    }
    cs_close(region);
    return 0;
}

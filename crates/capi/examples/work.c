/*
 * A program that reports its work, so that an engine learns its gain from a fast core without any counter.
 *
 *     cc work.c $(pkg-config --cflags --libs countersteer) -o work && steer run -P hsf:sf=work -- ./work ROUNDS [UNITS MS]
 *
 * A unit is ROUNDS rounds of arithmetic; after UNITS units it sleeps for MS milliseconds, as if it waited for a disk or a
 * request.
 */
#include <countersteer.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv) {
    unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    unsigned long units = argc > 3 ? strtoul(argv[2], NULL, 10) : 0;
    unsigned long ms = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
    struct timespec pause = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    volatile unsigned long value = 1;
    cs_page *page;

    if (rounds == 0) {
        fprintf(stderr, "usage: work ROUNDS [UNITS MS]\n");
        return 2;
    }
    if (cs_page_open(&page) < 0) {
        fprintf(stderr, "work: %s\n", cs_strerror());
        return 1;
    }
    for (unsigned long unit = 1;; unit++) {
        unsigned long sum = value;
        for (unsigned long round = 0; round < rounds; round++)
            sum = sum * 6364136223846793005u + 1442695040888963407u;
        value = sum;
        cs_page_work(page, 1);
        if (units && unit % units == 0)
            nanosleep(&pause, NULL);
    }
}

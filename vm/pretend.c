/* Tells work as if CPU 0 were twice as fast: pretend yes; pretend no: as if they were like the others. Runs until it is killed. */
#define _GNU_SOURCE
#include <countersteer.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

int main(int argc, char **argv)
{
    int gains = argc > 1 && !strcmp(argv[1], "yes");
    struct timespec before, now;
    cs_page *page;

    if (cs_page_open(&page) < 0) {
        fprintf(stderr, "pretend: %s\n", cs_strerror());
        return 1;
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    for (;;) {
        for (volatile int round = 0; round < 300000; round++)
            ;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        long ns = (now.tv_sec - before.tv_sec) * 1000000000 + now.tv_nsec - before.tv_nsec;
        before = now;
        cs_page_work(page, ns * (gains && sched_getcpu() == 0 ? 2 : 1));
    }
}

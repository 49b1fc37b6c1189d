/*
 * Two threads that never sleep. One works and the other spins, by their own word, until an engine has given the fast core to
 * the one that works; then they change roles. Prints the last answer to each; fails when nothing comes of it.
 */
#define _GNU_SOURCE
#include <countersteer.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define STAGES 2
#define PATIENCE_S 60

static atomic_int arrived[STAGES];
static struct timespec began;

static int is_late(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec - began.tv_sec > PATIENCE_S;
}

static void *run(void *argument) {
    int me = *(int *)argument;
    cs_page *page;
    cs_advice advice = {0};
    if (cs_page_open(&page) < 0) {
        fprintf(stderr, "%s\n", cs_strerror());
        return "";
    }
    for (int stage = 0; stage < STAGES; stage++) {
        int works = (me + stage) % 2;
        /* Before telling: the answer may come at once. */
        uint32_t epoch = cs_page_epoch(page);
        if (stage == 0)
            cs_page_tell(page, &(cs_told){.phase = works ? CS_PHASE_RUNNING : CS_PHASE_SPINNING, .workers = 2});
        else
            cs_page_phase(page, works ? CS_PHASE_RUNNING : CS_PHASE_SPINNING);
        int there = 0;
        while (atomic_load(&arrived[stage]) < 2) {
            int new = !there && (cs_page_epoch(page) != epoch || stage == 0);
            if (new && cs_page_read(page, &advice) == 1 && advice.core_types == 2 && (advice.rank == 0) == works) {
                there = 1;
                atomic_fetch_add(&arrived[stage], 1);
            }
            if (is_late()) {
                fprintf(stderr, "thread %d stage %d: rank %u of %u\n", me, stage, advice.rank, advice.core_types);
                return "";
            }
        }
    }
    printf("thread %d tid %d ends on %s, share %.2f\n", me, (int)gettid(), advice.core_type, advice.share);
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    int numbers[2] = {0, 1};
    void *failed[2];
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, run, &numbers[i]) != 0)
            return 2;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], &failed[i]);
    return failed[0] != NULL || failed[1] != NULL;
}

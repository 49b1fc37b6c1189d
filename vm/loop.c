/* Counts down in a loop of exactly two instructions a round: loop ROUNDS [THREADS]; exits with 7. */
#include <pthread.h>
#include <stdlib.h>

static void *count_down(void *rounds)
{
    long left = (long)rounds;
#if defined(__aarch64__)
    __asm__ volatile("1: subs %0, %0, #1\n b.ne 1b" : "+r"(left) : : "cc");
#elif defined(__x86_64__)
    __asm__ volatile("1: dec %0\n jnz 1b" : "+r"(left) : : "cc");
#else
#error "no loop for this processor"
#endif
    return NULL;
}

int main(int argc, char **argv)
{
    void *rounds = (void *)atol(argv[1]);
    int threads = argc > 2 ? atoi(argv[2]) : 0;
    pthread_t started[64];
    for (int i = 0; i < threads; i++)
        pthread_create(&started[i], NULL, count_down, rounds);
    count_down(rounds);
    for (int i = 0; i < threads; i++)
        pthread_join(started[i], NULL);
    return 7;
}

/* Two threads share parallel loops of which the first thread's half takes longest. */
#include <stdio.h>

static volatile unsigned long sums[2];

int main(void) {
    for (int region = 0; region < 60; region++) {
#pragma omp parallel for schedule(static) num_threads(2)
        for (int half = 0; half < 2; half++)
            for (unsigned long step = 0; step < (half == 0 ? 20000000ul : 2000000ul); step++)
                sums[half] += step;
    }
    printf("%lu\n", sums[0] + sums[1]);
    return 0;
}

/*
 * Prints the virtual counters of the machine over a time, one line per value.
 *
 *     cc meters.c $(pkg-config --cflags --libs countersteer) -o meters && ./meters [NAMES]
 */
#define _DEFAULT_SOURCE
#include <countersteer.h>
#include <stdio.h>
#include <unistd.h>

#define MOST 64

int main(int argc, char **argv) {
    const char *names = argc > 1 ? argv[1] : "energy_j,temperature_c";
    cs_meters *meters;
    if (cs_meters_open(names, &meters) < 0) {
        fprintf(stderr, "cs_meters_open: %s\n", cs_strerror());
        return 1;
    }
    cs_meters_follow(meters, (int)getpid());
    usleep(100000);
    cs_value values[MOST];
    int n = cs_meters_read(meters, values, MOST);
    for (int i = 0; i < n && i < MOST; i++)
        printf("%s %s %d %d %g %s\n", values[i].name, values[i].place, values[i].tid, values[i].cpu, values[i].value,
               values[i].unit);
    cs_meters_close(meters);
    return 0;
}

// A plugin of QEMU's that paces a machine's CPUs: -plugin pace.so,mips=60:60:30:30
//
// Each CPU executes so many million instructions a second of the host's time at most, counted in steps of a tenth of a
// millisecond. What the host keeps it from executing it makes up for within ten milliseconds; what it leaves over while it waits
// for interrupts is lost. So CPUs are unequal in speed and in nothing else, and other work on the host changes nothing as long
// as enough is left. Before the first SIGRTMIN nothing is paced.
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

// What is used of the interface that QEMU's manual describes, "QEMU TCG Plugins".
struct qemu_plugin_tb;
typedef uint64_t qemu_plugin_id_t;
typedef struct qemu_info_t qemu_info_t;
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *), int flags, void *);
void qemu_plugin_register_vcpu_resume_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, unsigned));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
__attribute__((visibility("default"))) int qemu_plugin_version = 2;

#define MOST 64
#define STEP_NS 100000
#define MOST_BEHIND_NS 10000000
static struct cpu {
    double mips;
    int64_t left;     // Instructions until the clock is looked at.
    int64_t until_ns; // What was executed is paid for up to here.
    int slack_set;
} __attribute__((aligned(64))) cpus[MOST];
static atomic_int paced;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void begin(int signal) {
    (void)signal;
    paced = 1;
}

// A step's instructions have been executed.
static void pay(struct cpu *cpu) {
    cpu->left = (int64_t)(cpu->mips * STEP_NS / 1000);
    if (!paced || cpu->left == 0) return;
    if (!cpu->slack_set) cpu->slack_set = 1, prctl(PR_SET_TIMERSLACK, 1);
    int64_t now = now_ns(), least = now - MOST_BEHIND_NS;
    cpu->until_ns = (cpu->until_ns < least ? least : cpu->until_ns) + STEP_NS;
    if (cpu->until_ns <= now) return;
    struct timespec until = {cpu->until_ns / 1000000000, cpu->until_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {}
}

static void executes(unsigned number, void *instructions) {
    struct cpu *cpu = &cpus[number % MOST];
    if ((cpu->left -= (intptr_t)instructions) <= 0) pay(cpu);
}

static void resumes(qemu_plugin_id_t id, unsigned number) {
    struct cpu *cpu = &cpus[number % MOST];
    int64_t now = now_ns();
    (void)id;
    if (cpu->until_ns < now) cpu->until_ns = now;
}

static void translates(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_cb(block, executes, 0, (void *)qemu_plugin_tb_n_insns(block));
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int count,
                                                               char **arguments) {
    (void)info;
    if (count != 1 || strncmp(arguments[0], "mips=", 5)) return 1;
    char *at = arguments[0] + 4;
    for (int n = 0; *at && n < MOST; n++) cpus[n].mips = strtod(at + 1, &at);
    struct sigaction action = {.sa_handler = begin, .sa_flags = SA_RESTART};
    sigaction(SIGRTMIN, &action, NULL);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translates);
    qemu_plugin_register_vcpu_resume_cb(id, resumes);
    return 0;
}

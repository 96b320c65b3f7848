// What the kernel keeps about a process and its threads: folder, umask, limits, niceness, policy,
// name, environment, switches, and the strings that the program was started with.
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int barriers;

static uint64_t look(void) {
    uint64_t before = sum, result;
    sum = 1;
    char text[4096], name[16] = "";
    NEED(getcwd(text, sizeof text));
    add_bytes(text, strlen(text));
    mode_t mask = umask(0);
    umask(mask);
    add(mask);
    for (int i = 0; i < 16; i++) {
        struct rlimit limit;
        CHECK(getrlimit(i, &limit) == 0);
        add(limit.rlim_cur);
        add(limit.rlim_max);
    }
    // Who restores it may ignore other signals.
    for (int signal = 1; signal < NSIG; signal++) {
        struct sigaction action = {0};
        if (sigaction(signal, NULL, &action) == 0) add(action.sa_handler == SIG_DFL);
    }
    add((uint64_t)getpriority(PRIO_PROCESS, 0));
    add((uint64_t)sched_getscheduler(0));
    prctl(PR_GET_NAME, name);
    add_bytes(name, strlen(name));
    add((uint64_t)prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    add((uint64_t)prctl(PR_GET_DUMPABLE));
    add((uint64_t)prctl(PR_GET_TIMERSLACK));
    add((uint64_t)prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
    add((uint64_t)prctl(PR_GET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, 0, 0, 0));
    // What it has registered for; 0 where it could not.
    add((uint64_t)(barriers && syscall(SYS_membarrier, 1 << 3, 0, 0) == 0));
    // Which memory it has chosen; a kernel without nodes leaves this as it is.
    int policy = -1;
    unsigned long nodes[17] = {0};
    syscall(SYS_get_mempolicy, &policy, nodes, 1025, NULL, 0);
    add((uint64_t)policy);
    add(nodes[0]);
    FILE *filter = fopen("/proc/self/coredump_filter", "r");
    if (filter) {
        NEED(fgets(text, sizeof text, filter));
        add_bytes(text, strlen(text));
        fclose(filter);
    }
    add((uint64_t)getpgrp() == (uint64_t)getpid());
    const char *start = (const char *)getauxval(AT_EXECFN);
    add(start != NULL && strstr(start, "attributes") != NULL);
    add_bytes((const void *)getauxval(AT_RANDOM), 16);
    for (const char *path = "/proc/self/cmdline"; path;
         path = strcmp(path, "/proc/self/environ") ? "/proc/self/environ" : NULL) {
        FILE *f = fopen(path, "r");
        NEED(f);
        size_t got = fread(text, 1, sizeof text, f);
        add_bytes(text, got);
        fclose(f);
    }
    result = sum;
    sum = before;
    return result;
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 1500);
    prctl(PR_SET_NAME, "strange )( name");
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, 123456);
    unsigned long node = 1;
    syscall(SYS_set_mempolicy, 3 /* MPOL_INTERLEAVE */, &node, 64);
    barriers = syscall(SYS_membarrier, 1 << 4 /* REGISTER_PRIVATE_EXPEDITED */, 0, 0) == 0;
    FILE *filter = fopen("/proc/self/coredump_filter", "w");
    if (filter) {
        fputs("0x25", filter);
        fclose(filter);
    }
    umask(037);
    setpgid(0, 0);
    mkdir("below", 0700);
    NEED(chdir("below") == 0 && setpriority(PRIO_PROCESS, 0, 7) == 0);
    struct sched_param zero = {0};
    NEED(sched_setscheduler(0, SCHED_BATCH, &zero) == 0);
    struct rlimit core = {12345, 23456}, files = {200, 300};
    NEED(setrlimit(RLIMIT_CORE, &core) == 0 && setrlimit(RLIMIT_NOFILE, &files) == 0);
    uint64_t first = look();
    for (long i = 0; i < n; i++) {
        CHECK(look() == first);
        work(5);
    }
    add((uint64_t)n);
    return finish("attributes");
}

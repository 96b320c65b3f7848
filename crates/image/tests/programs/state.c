// What the kernel keeps about a process, looked at again and again.
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char text[8192];

static void add(const char *name, unsigned long value) {
    size_t n = strlen(text);
    snprintf(text + n, sizeof text - n, "%s %lx\n", name, value);
}

static void slurp(const char *path) {
    char buffer[2048];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(buffer, 1, sizeof buffer - 1, f) : 0;
    if (f) fclose(f);
    buffer[n] = 0;
    for (size_t i = 0; i < n; i++) if (!buffer[i]) buffer[i] = ' ';
    strncat(text, buffer, sizeof text - strlen(text) - 1);
}

static void look(int same_pid) {
    text[0] = 0;
    void *head;
    size_t length;
    int *tid;
    syscall(SYS_get_robust_list, 0, &head, &length);
    prctl(PR_GET_TID_ADDRESS, &tid, 0, 0, 0);
    add("robust", (unsigned long)head);
    add("tid address", (unsigned long)tid);
    // A restore between two questions may give it another number.
    pid_t pid, group, told;
    do {
        pid = getpid();
        told = *(volatile int *)tid;
        group = getpgrp();
    } while (getpid() != pid);
    add("tid matches", told == pid);
    char exe[1024] = "";
    // Both are privileges.
    if (same_pid) {
        add("pid", getpid());
        if (readlink("/proc/self/exe", exe, sizeof exe - 1) < 0) add("no exe", 1);
        strcat(strcat(text, exe), "\n");
    }
    add("leads group", group == pid);
    add("break is ours", (unsigned long)sbrk(0) == (unsigned long)syscall(SYS_brk, 0));
    mode_t mask = umask(0);
    umask(mask);
    add("umask", mask);
    add("personality", personality(0xffffffff));
    add("dumpable", prctl(PR_GET_DUMPABLE));
    add("no new privs", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    int death = 0;
    prctl(PR_GET_PDEATHSIG, &death);
    add("death signal", death);
    for (int i = 0; i < 16; i++) {
        struct rlimit l;
        getrlimit(i, &l);
        add("limit", l.rlim_cur);
    }
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    add("cpus", CPU_COUNT(&set));
    char cwd[1024];
    strcat(strcat(text, getcwd(cwd, sizeof cwd)), "\n");
    slurp("/proc/self/comm");
    slurp("/proc/self/cmdline");
    slurp("/proc/self/environ");
    add("vdso", getauxval(AT_SYSINFO_EHDR));
    char *heap = sbrk(4096);
    add("heap grows", heap != (char *)-1 && (char *)sbrk(0) == heap + 4096);
    sbrk(-4096);
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 2000;
    int same_pid = argc > 2 && !strcmp(argv[2], "same-pid");
    prctl(PR_SET_NAME, "strange )( name");
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    umask(037);
    setpgid(0, 0);
    mkdir("sub", 0700);
    if (chdir("sub")) return 3;
    struct rlimit core = {12345, 23456};
    setrlimit(RLIMIT_CORE, &core);
    personality(personality(0xffffffff) | ADDR_NO_RANDOMIZE);
    look(same_pid);
    char first[8192];
    strcpy(first, text);
    long wrong = 0;
    for (long i = 0; i < rounds; i++) {
        look(same_pid);
        if (strcmp(first, text)) {
            if (!wrong++) fprintf(stderr, "was:\n%s\nis:\n%s\n", first, text);
        }
    }
    FILE *out = fopen("../out", "w");
    if (!out) return 1;
    fprintf(out, "%ld rounds %ld wrong\n", rounds, wrong);
    return fclose(out);
}

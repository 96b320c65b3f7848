// Has something that an image cannot bring back, named by its argument, and waits.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    long result = 0;
    if (!strcmp(what, "io_uring")) {
        unsigned params[30] = {0};
        long fd = syscall(SYS_io_uring_setup, 4, params);
        result = fd < 0 || mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, (int)fd, 0) == MAP_FAILED
                 || close((int)fd);
    } else if (!strcmp(what, "aio")) {
        unsigned long context = 0;
        result = syscall(SYS_io_setup, 4, &context);
    } else if (!strcmp(what, "secret")) {
        long fd = syscall(447, 0);
        result = fd < 0 || ftruncate((int)fd, 4096)
                 || mmap(NULL, 4096, PROT_READ, MAP_SHARED, (int)fd, 0) == MAP_FAILED;
    } else if (!strcmp(what, "seccomp")) {
        struct sock_filter code[] = {{6, 0, 0, 0x7fff0000}};
        struct sock_fprog filter = {1, code};
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        result = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0);
    } else if (!strcmp(what, "chroot")) {
        result = chroot(".");
    } else if (!strcmp(what, "rights")) {
        result = prctl(PR_CAPBSET_DROP, 25, 0, 0, 0);
    }
    int fd = open("ready.new", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const char *text = result ? "not ready: cannot\n" : "ready\n";
    if (write(fd, text, strlen(text)) < 0 || close(fd) || rename("ready.new", "ready")) return 2;
    for (;;) pause();
}

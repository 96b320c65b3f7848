// What an image cannot bring back and must therefore refuse by name; the program itself must not
// notice. Its second argument says what it has.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <mqueue.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

// This machine has no such thing.
static int lacks(const char *what) {
    fprintf(stderr, "%s (errno %d)\n", what, errno);
    exit(77);
}

static void have(const char *what) {
    enum { BYTES = 1 << 16 };
    int rw = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *area = mmap(NULL, BYTES, rw, flags, -1, 0);
    NEED(area != MAP_FAILED);
    if (!strcmp(what, "aio")) {
        aio_context_t context = 0;
        if (syscall(SYS_io_setup, 8, &context)) lacks("io_setup");
    } else if (!strcmp(what, "uring")) {
        struct io_uring_params parameters;
        memset(&parameters, 0, sizeof parameters);
        if (syscall(SYS_io_uring_setup, 8, &parameters) < 0) lacks("io_uring_setup");
    } else if (!strcmp(what, "uffd")) {
        int fd = (int)syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY | O_CLOEXEC);
        struct uffdio_api api = {.api = UFFD_API};
        struct uffdio_register whole = {.range = {(uintptr_t)area, BYTES}};
        whole.mode = UFFDIO_REGISTER_MODE_MISSING;
        if (fd < 0 || ioctl(fd, UFFDIO_API, &api)) lacks("userfaultfd");
        if (ioctl(fd, UFFDIO_REGISTER, &whole)) lacks("UFFDIO_REGISTER");
    } else if (!strcmp(what, "seccomp")) {
        struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        struct sock_fprog program = {1, &allow};
        NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) lacks("seccomp");
    } else if (!strcmp(what, "netlink")) {
        if (socket(AF_NETLINK, SOCK_RAW, 0) < 0) lacks("netlink");
    } else if (!strcmp(what, "lease")) {
        int fd = open("leased", O_RDONLY | O_CREAT, 0600);
        if (fd < 0 || fcntl(fd, F_SETLEASE, F_RDLCK)) lacks("leases");
    } else if (!strcmp(what, "mqueue")) {
        char name[64];
        snprintf(name, sizeof name, "/eyrie-matrix-%d", getpid());
        mqd_t queue = mq_open(name, O_RDWR | O_CREAT, 0600, NULL);
        if (queue < 0) lacks("message queues");
        mq_unlink(name);
        NEED(mq_send(queue, "text", 4, 0) == 0);
    } else {
        NEED(!"a known word");
    }
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 6000);
    NEED(argc > 2);
    have(argv[2]);
    ready();
    for (long i = 0; i < n; i++) add(work(1) + (uint64_t)i);
    return finish(argv[2]);
}

// One descriptor of each kind that there is: `kinds list` names them; `kinds 0 NAME` has one, says
// that it is ready, and looks at it again when a file `go` is there. What a checkpoint takes must
// come back: the kind, the flags, the offset, and what can be read there. 77: this machine has none.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <linux/vm_sockets.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { SECRET = 447, LANDLOCK = 444, FSOPEN = 430, OPEN_TREE = 428, PIDFD = 434, GUESTMEM = 0 };

static int other = -1;  // The far end, or a helper's number.

static void *sleeps(void *unused) {
    for (;;) pause();
    return unused;
}

static int filled(const char *name, int flags) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    NEED(fd >= 0 && write(fd, "0123456789abcdef", 16) == 16 && close(fd) == 0);
    fd = open(name, flags);
    if (fd >= 0 && !(flags & (O_PATH | O_DIRECT))) lseek(fd, 4, SEEK_SET);
    return fd;
}

static int half_read(const char *name) {
    char some[40];
    int fd = open(name, O_RDONLY | O_NONBLOCK);
    if (fd >= 0 && read(fd, some, sizeof some) < 0) return -1;
    return fd;
}

static int thread_file(const char *name) {
    pthread_t thread;
    char path[128];
    NEED(pthread_create(&thread, NULL, sleeps, NULL) == 0);
    DIR *tasks = opendir("/proc/self/task");
    NEED(tasks);
    int tid = 0, number;
    for (struct dirent *e; (e = readdir(tasks));)
        if ((number = atoi(e->d_name)) > 0 && number != getpid()) tid = number;
    closedir(tasks);
    snprintf(path, sizeof path, "/proc/self/task/%d%s", tid, name);
    return open(path, O_RDONLY);
}

static int child_file(int ended, const char *name) {
    char path[64];
    pid_t child = fork();
    if (child == 0) {
        if (ended) _exit(3);
        for (;;) pause();
    }
    siginfo_t info;
    if (ended) NEED(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0);
    snprintf(path, sizeof path, "/proc/%d%s", child, name);
    int fd = open(path, O_RDONLY);
    if (ended == 2) waitpid(child, NULL, 0);
    return fd;
}

static int inet(int family, int kind, int protocol, int listens) {
    int fd = socket(family, kind, protocol);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (fd >= 0 && family == AF_INET && listens) {
        NEED(bind(fd, (void *)&at, sizeof at) == 0);
        if (listens > 1) NEED(listen(fd, 5) == 0);
    }
    return fd;
}

static int connected(void) {
    int listener = inet(AF_INET, SOCK_STREAM, 0, 2), fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at;
    socklen_t n = sizeof at;
    NEED(getsockname(listener, (void *)&at, &n) == 0 && connect(fd, (void *)&at, n) == 0);
    other = accept(listener, NULL, NULL);
    NEED(other >= 0 && write(other, "waiting", 7) == 7 && close(listener) == 0);
    return fd;
}

static int named_socket(int kind, const char *name) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, kind, 0);
    snprintf(at.sun_path, sizeof at.sun_path, "%s", name);
    if (name[0] == '@') at.sun_path[0] = 0;
    socklen_t n = (socklen_t)(sizeof(sa_family_t) + strlen(name) + (name[0] != '@'));
    NEED(bind(fd, (void *)&at, n) == 0);
    if (kind != SOCK_DGRAM) NEED(listen(fd, 3) == 0);
    return fd;
}

static int pair(int kind) {
    int ends[2];
    NEED(socketpair(AF_UNIX, kind, 0, ends) == 0 && write(ends[1], "waiting", 7) == 7);
    other = ends[1];
    return ends[0];
}

static int a_pipe(int flags, int end, int keep) {
    int ends[2];
    NEED(pipe2(ends, flags) == 0 && write(ends[1], "waiting", 7) == 7);
    fcntl(ends[0], F_SETPIPE_SZ, 1 << 18);
    other = ends[!end];
    if (!keep) close(other);
    return ends[end];
}

static int memory(unsigned flags, int seals) {
    int fd = memfd_create("kinds", flags);
    if (fd >= 0 && ftruncate(fd, 4 << 20)) return -1;
    if (fd >= 0 && seals) NEED(fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static int with_lock(int how) {
    int fd = filled("locked", O_RDWR);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    if (how == 0) NEED(flock(fd, LOCK_EX) == 0);
    if (how == 1) NEED(fcntl(fd, F_SETLK, &whole) == 0);
    if (how == 2) NEED(fcntl(fd, F_OFD_SETLK, &whole) == 0);
    if (how == 3 && fcntl(fd, F_SETLEASE, F_WRLCK)) return -1;
    return fd;
}

static int bpf_map(void) {
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.map_type = BPF_MAP_TYPE_ARRAY;
    attr.key_size = attr.value_size = 4;
    attr.max_entries = 4;
    return (int)syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof attr);
}

static int perf(void) {
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.size = sizeof attr;
    attr.type = PERF_TYPE_SOFTWARE;
    attr.config = PERF_COUNT_SW_TASK_CLOCK;
    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}

static int terminal(int which) {
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0) return -1;
    NEED(grantpt(master) == 0 && unlockpt(master) == 0);
    other = open(ptsname(master), O_RDWR | O_NOCTTY);
    NEED(other >= 0);
    if (!which) return master;
    int slave = other;
    other = master;
    return slave;
}

static int watching(void) {
    int fd = epoll_create1(0), event = eventfd(1, 0);
    struct epoll_event what = {.events = EPOLLIN, .data = {.u64 = 0x1234567890abcdef}};
    NEED(epoll_ctl(fd, EPOLL_CTL_ADD, event, &what) == 0);
    // Registered under a number that means another file, or none, by now.
    int again = fcntl(event, F_DUPFD, 40);
    what.data.u64 = 7;
    NEED(epoll_ctl(fd, EPOLL_CTL_ADD, again, &what) == 0 && dup2(1, again) == again);
    int third = fcntl(event, F_DUPFD, 50);
    NEED(epoll_ctl(fd, EPOLL_CTL_ADD, third, &what) == 0 && close(third) == 0);
    return fd;
}

static int signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_NONBLOCK);
}

static int timer(int clock) {
    struct itimerspec in = {{0, 0}, {3600, 0}};
    int fd = timerfd_create(clock, TFD_NONBLOCK);
    if (fd >= 0) NEED(timerfd_settime(fd, 0, &in, NULL) == 0);
    return fd;
}

static int deleted_folder(void) {
    mkdir("gone", 0700);
    int fd = open("gone", O_RDONLY | O_DIRECTORY);
    rmdir("gone");
    return fd;
}

static int deleted_file(void) {
    int fd = filled("gone", O_RDWR);
    unlink("gone");
    return fd;
}

static int folder(void) {
    char some[64];
    int fd = open("/proc/self/cwd/..", O_RDONLY | O_DIRECTORY);
    (void)!syscall(SYS_getdents64, fd, some, sizeof some);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

static int fifo(int flags) {
    mkfifo("fifo", 0600);
    return open("fifo", flags);
}

static int dnotify(void) {
    int fd = open(".", O_RDONLY | O_DIRECTORY);
    signal(SIGIO, SIG_IGN);
    return fd >= 0 && fcntl(fd, F_NOTIFY, DN_CREATE | DN_MULTISHOT) == 0 ? fd : -1;
}

static int symbolic(void) {
    if (symlink("/dev/null", "link")) return -1;
    return open("link", O_PATH | O_NOFOLLOW);
}

static int inotify(void) {
    int fd = inotify_init1(IN_NONBLOCK);
    mkdir("watched", 0700);
    return fd >= 0 && inotify_add_watch(fd, "watched", IN_CREATE) > 0 ? fd : -1;
}

static int uring(void) {
    struct io_uring_params parameters;
    memset(&parameters, 0, sizeof parameters);
    return (int)syscall(SYS_io_uring_setup, 8, &parameters);
}

static int queue(void) {
    mqd_t fd = mq_open("/eyrie-kinds", O_RDWR | O_CREAT, 0600, NULL);
    mq_unlink("/eyrie-kinds");
    return (int)fd;
}

static int landlock(void) {
    uint64_t handled = 1;
    return (int)syscall(LANDLOCK, &handled, sizeof handled, 0);
}

static int asynchronous(void) {
    int fd = pair(SOCK_STREAM);
    signal(SIGIO, SIG_IGN);
    NEED(fcntl(fd, F_SETOWN, getpid()) == 0 && fcntl(fd, F_SETSIG, SIGRTMIN) == 0);
    signal(SIGRTMIN, SIG_IGN);
    NEED(fcntl(fd, F_SETFL, O_ASYNC) == 0);
    return fd;
}

#define KINDS(X)                                                                                   \
    X(file_read, filled("f", O_RDONLY))                                                            \
    X(file_write, filled("f", O_WRONLY))                                                           \
    X(file_append, filled("f", O_WRONLY | O_APPEND))                                               \
    X(file_cloexec, filled("f", O_RDWR | O_CLOEXEC))                                               \
    X(file_sync, filled("f", O_RDWR | O_SYNC))                                                     \
    X(file_path, filled("f", O_PATH))                                                              \
    X(folder_path, open(".", O_PATH | O_DIRECTORY))                                                \
    X(link_path, symbolic())                                                                       \
    X(null_path, open("/dev/null", O_PATH))                                                        \
    X(socket_path, (named_socket(SOCK_STREAM, "s"), open("s", O_PATH)))                            \
    X(fifo_path, (mkfifo("fifo", 0600), open("fifo", O_PATH)))                                     \
    X(folder, folder())                                                                            \
    X(folder_current, open(".", O_RDONLY | O_DIRECTORY))                                           \
    X(folder_root, open("/", O_RDONLY | O_DIRECTORY))                                              \
    X(folder_deleted, deleted_folder())                                                            \
    X(folder_dnotify, dnotify())                                                                   \
    X(file_deleted, deleted_file())                                                                \
    X(tmpfile, open(".", O_TMPFILE | O_RDWR, 0600))                                                \
    X(tmpfile_exclusive, open(".", O_TMPFILE | O_RDWR | O_EXCL, 0600))                             \
    X(fifo_read_write, fifo(O_RDWR))                                                               \
    X(fifo_read, fifo(O_RDONLY | O_NONBLOCK))                                                      \
    X(lock_flock, with_lock(0))                                                                    \
    X(lock_posix, with_lock(1))                                                                    \
    X(lock_ofd, with_lock(2))                                                                      \
    X(lock_lease, with_lock(3))                                                                    \
    X(dev_null, open("/dev/null", O_RDWR))                                                         \
    X(dev_zero, open("/dev/zero", O_RDONLY))                                                       \
    X(dev_full, open("/dev/full", O_WRONLY))                                                       \
    X(dev_urandom, open("/dev/urandom", O_RDONLY))                                                 \
    X(dev_kmsg, open("/dev/kmsg", O_RDONLY | O_NONBLOCK))                                          \
    X(dev_mem, open("/dev/mem", O_RDONLY))                                                         \
    X(dev_kvm, open("/dev/kvm", O_RDWR))                                                           \
    X(dev_fuse, open("/dev/fuse", O_RDWR))                                                         \
    X(dev_tun, open("/dev/net/tun", O_RDWR))                                                       \
    X(dev_loop, open("/dev/loop-control", O_RDWR))                                                 \
    X(dev_rtc, open("/dev/rtc0", O_RDONLY))                                                        \
    X(dev_userfaultfd, open("/dev/userfaultfd", O_RDWR))                                           \
    X(dev_shm, (other = shm_open("/eyrie-kinds", O_RDWR | O_CREAT, 0600),                          \
                shm_unlink("/eyrie-kinds"), other))                                                \
    X(terminal_master, terminal(0))                                                                \
    X(terminal_slave, terminal(1))                                                                 \
    X(proc_maps, half_read("/proc/self/maps"))                                                     \
    X(proc_smaps, half_read("/proc/self/smaps"))                                                   \
    X(proc_status, half_read("/proc/self/status"))                                                 \
    X(proc_mem, open("/proc/self/mem", O_RDWR))                                                    \
    X(proc_pagemap, open("/proc/self/pagemap", O_RDONLY))                                          \
    X(proc_clear, open("/proc/self/clear_refs", O_WRONLY))                                         \
    X(proc_oom, open("/proc/self/oom_score_adj", O_RDWR))                                          \
    X(proc_comm, open("/proc/self/comm", O_RDWR))                                                  \
    X(proc_self, open("/proc/self", O_RDONLY | O_DIRECTORY))                                       \
    X(proc_self_path, open("/proc/self", O_PATH))                                                  \
    X(proc_fds, open("/proc/self/fd", O_RDONLY | O_DIRECTORY))                                     \
    X(proc_fdinfo, half_read("/proc/self/fdinfo/0"))                                               \
    X(proc_exe, open("/proc/self/exe", O_RDONLY))                                                  \
    X(proc_exe_link, open("/proc/self/exe", O_PATH | O_NOFOLLOW))                                  \
    X(proc_thread_self, half_read("/proc/thread-self/stat"))                                       \
    X(proc_task, thread_file(""))                                                                  \
    X(proc_task_schedstat, thread_file("/schedstat"))                                              \
    X(proc_task_children, thread_file("/children"))                                                \
    X(proc_tasks, open("/proc/self/task", O_RDONLY | O_DIRECTORY))                                 \
    X(proc_net, half_read("/proc/self/net/dev"))                                                   \
    X(proc_mounts, half_read("/proc/self/mounts"))                                                 \
    X(proc_mountinfo, half_read("/proc/mounts"))                                                   \
    X(proc_namespace, open("/proc/self/ns/net", O_RDONLY))                                         \
    X(proc_namespace_pid, open("/proc/self/ns/pid", O_RDONLY))                                     \
    X(proc_child, child_file(0, "/stat"))                                                          \
    X(proc_child_folder, child_file(0, ""))                                                        \
    X(proc_ended, child_file(1, "/stat"))                                                          \
    X(proc_collected, child_file(2, "/stat"))                                                      \
    X(proc_init, half_read("/proc/1/status"))                                                      \
    X(proc_folder, open("/proc", O_RDONLY | O_DIRECTORY))                                          \
    X(proc_meminfo, half_read("/proc/meminfo"))                                                    \
    X(proc_stat, half_read("/proc/stat"))                                                          \
    X(proc_cpuinfo, half_read("/proc/cpuinfo"))                                                    \
    X(proc_pressure, open("/proc/pressure/cpu", O_RDWR | O_NONBLOCK))                              \
    X(proc_sysctl, open("/proc/sys/kernel/ostype", O_RDONLY))                                      \
    X(proc_kmsg, open("/proc/kmsg", O_RDONLY | O_NONBLOCK))                                        \
    X(proc_kcore, open("/proc/kcore", O_RDONLY))                                                   \
    X(sys_file, half_read("/sys/devices/system/cpu/online"))                                       \
    X(sys_folder, open("/sys/class/net", O_RDONLY | O_DIRECTORY))                                  \
    X(cgroup_file, half_read("/sys/fs/cgroup/cgroup.controllers"))                                 \
    X(cgroup_events, half_read("/sys/fs/cgroup/memory.stat"))                                      \
    X(cgroup_folder, open("/sys/fs/cgroup", O_RDONLY | O_DIRECTORY))                               \
    X(event, eventfd(7, 0))                                                                        \
    X(event_semaphore, eventfd(7, EFD_SEMAPHORE | EFD_NONBLOCK))                                   \
    X(timer_monotonic, timer(CLOCK_MONOTONIC))                                                     \
    X(timer_realtime, timer(CLOCK_REALTIME))                                                       \
    X(timer_boottime, timer(CLOCK_BOOTTIME))                                                       \
    X(timer_alarm, timer(CLOCK_REALTIME_ALARM))                                                    \
    X(signals, signals())                                                                          \
    X(epoll, watching())                                                                           \
    X(inotify, inotify())                                                                          \
    X(fanotify, fanotify_init(FAN_CLASS_NOTIF, O_RDONLY))                                          \
    X(pidfd_self, (int)syscall(PIDFD, getpid(), 0))                                                \
    X(pidfd_parent, (int)syscall(PIDFD, getppid(), 0))                                             \
    X(userfaultfd, (int)syscall(SYS_userfaultfd, 1 | O_CLOEXEC))                                   \
    X(io_uring, uring())                                                                           \
    X(perf, perf())                                                                                \
    X(bpf, bpf_map())                                                                              \
    X(landlock, landlock())                                                                        \
    X(memory, memory(MFD_ALLOW_SEALING, 0))                                                        \
    X(memory_sealed, memory(MFD_ALLOW_SEALING, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE))        \
    X(memory_noexec, memory(8 /* MFD_NOEXEC_SEAL */, 0))                                           \
    X(memory_secret, (int)syscall(SECRET, 0))                                                      \
    X(file_system, (int)syscall(FSOPEN, "tmpfs", 0))                                               \
    X(mount, (int)syscall(OPEN_TREE, AT_FDCWD, "/", 1 /* OPEN_TREE_CLONE */))                      \
    X(message_queue, queue())                                                                      \
    X(pipe_read, a_pipe(0, 0, 1))                                                                  \
    X(pipe_write, a_pipe(0, 1, 1))                                                                 \
    X(pipe_packets, a_pipe(O_DIRECT, 0, 1))                                                        \
    X(pipe_read_alone, a_pipe(0, 0, 0))                                                            \
    X(pipe_write_alone, a_pipe(0, 1, 0))                                                           \
    X(unix_stream, pair(SOCK_STREAM))                                                              \
    X(unix_datagram, pair(SOCK_DGRAM))                                                             \
    X(unix_packets, pair(SOCK_SEQPACKET))                                                          \
    X(unix_listens, named_socket(SOCK_STREAM, "socket"))                                           \
    X(unix_abstract, named_socket(SOCK_STREAM, "@eyrie-kinds"))                                    \
    X(unix_named, named_socket(SOCK_DGRAM, "socket"))                                              \
    X(unix_new, socket(AF_UNIX, SOCK_STREAM, 0))                                                   \
    X(unix_async, asynchronous())                                                                  \
    X(tcp_new, inet(AF_INET, SOCK_STREAM, 0, 0))                                                   \
    X(tcp_bound, inet(AF_INET, SOCK_STREAM, 0, 1))                                                 \
    X(tcp_listens, inet(AF_INET, SOCK_STREAM, 0, 2))                                               \
    X(tcp_connected, connected())                                                                  \
    X(tcp6_new, inet(AF_INET6, SOCK_STREAM, 0, 0))                                                 \
    X(tcp_multipath, inet(AF_INET, SOCK_STREAM, 262, 0))                                           \
    X(udp_new, inet(AF_INET, SOCK_DGRAM, 0, 0))                                                    \
    X(udp_bound, inet(AF_INET, SOCK_DGRAM, 0, 1))                                                  \
    X(udp_lite, inet(AF_INET, SOCK_DGRAM, 136, 0))                                                 \
    X(sctp, inet(AF_INET, SOCK_STREAM, 132, 0))                                                    \
    X(ping, inet(AF_INET, SOCK_DGRAM, 1, 0))                                                       \
    X(raw, inet(AF_INET, SOCK_RAW, 1, 0))                                                          \
    X(netlink, socket(AF_NETLINK, SOCK_RAW, 0))                                                    \
    X(packet, socket(AF_PACKET, SOCK_RAW, 0))                                                      \
    X(vsock, socket(AF_VSOCK, SOCK_STREAM, 0))                                                     \
    X(crypto, socket(AF_ALG, SOCK_SEQPACKET, 0))

typedef struct {
    long mode, device, status, flag, offset;
    char what[16];
} Look;

// What can be told of it without changing it.
static Look look(int fd) {
    Look l;
    struct stat s;
    memset(&l, 0, sizeof l);
    CHECK(fstat(fd, &s) == 0);
    l.mode = s.st_mode & S_IFMT;
    l.device = S_ISCHR(s.st_mode) && major(s.st_rdev) == 1 ? (long)s.st_rdev : 0;
    // How a file was found is of no concern to one that has it.
    l.status = fcntl(fd, F_GETFL) & ~(O_NOFOLLOW | (S_ISREG(s.st_mode) ? O_TMPFILE : 0));
    l.flag = fcntl(fd, F_GETFD);
    l.offset = lseek(fd, 0, SEEK_CUR);
    if (S_ISREG(s.st_mode) && s.st_size > 0 && !(l.status & O_PATH)) {
        (void)!pread(fd, l.what, sizeof l.what, 0);
    }
    return l;
}

static int open_kind(const char *name) {
#define OPEN(kind, expression) \
    if (!strcmp(name, #kind)) return (expression);
    KINDS(OPEN)
    NEED(!"a known kind");
    return -1;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "list")) {
#define NAME(kind, expression) puts(#kind);
        KINDS(NAME)
        return 0;
    }
    NEED(argc > 2);
    int fd = open_kind(argv[2]);
    if (fd < 0) {
        fprintf(stderr, "%s (errno %d)\n", argv[2], errno);
        exit(77);
    }
    Look before = look(fd);
    ready();
    AWAIT(access("go", F_OK) == 0);
    Look after = look(fd);
    CHECK(before.mode == after.mode);
    CHECK(before.device == after.device);
    CHECK(before.status == after.status);
    CHECK(before.flag == after.flag);
    CHECK(before.offset == after.offset);
    CHECK(!memcmp(before.what, after.what, sizeof before.what));
    if (after.offset > 0 && !(after.status & O_PATH) && (after.status & O_ACCMODE) != O_WRONLY) {
        // It can be read on from there.
        char some[8];
        CHECK(read(fd, some, sizeof some) >= 0);
    }
    if (other >= 0 && (before.mode == S_IFSOCK || before.mode == S_IFIFO) &&
        (before.status & O_ACCMODE) != O_WRONLY) {
        char some[8] = "";
        CHECK(fcntl(other, F_GETFD) < 0 || (read(fd, some, 7) == 7 && !memcmp(some, "waiting", 7)));
    }
    return finish(argv[2]);
}

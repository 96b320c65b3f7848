// Holds something in AVX-512 registers (not with -DPLAIN), with -DAMX the permission to use AMX, and
// waits.
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
#ifdef AMX
    if (syscall(SYS_arch_prctl, 0x1023, 18)) return 3;
#endif
    int fd = open("ready.new", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (write(fd, "ready\n", 6) != 6 || close(fd) || rename("ready.new", "ready")) return 2;
#ifdef PLAIN
    for (;;) pause();
#else
    __asm__ volatile("vpternlogd $0xff, %%zmm20, %%zmm20, %%zmm20\n1: jmp 1b" ::: "memory");
#endif
    return 0;
}

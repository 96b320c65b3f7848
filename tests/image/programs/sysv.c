// System V shared memory and POSIX shared memory by name.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/shm.h>

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 9000);
    enum { BYTES = 1 << 16, WORDS = BYTES / 8 };
    int id = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600);
    NEED(id >= 0);
    uint64_t *segment = shmat(id, NULL, 0);
    NEED(segment != (void *)-1);
    // Goes with the last process that has it attached.
    NEED(shmctl(id, IPC_RMID, NULL) == 0);
    for (long i = 0; i < n; i++) {
        segment[i % WORDS] += value_at((uint64_t)i);
        add(segment[(i * 7) % WORDS]);
        work(1);
    }
    add_bytes(segment, BYTES);
    return finish("sysv");
}

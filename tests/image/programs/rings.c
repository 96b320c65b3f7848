// Rings of io_uring: requests in each round, answers that are read a round later, a request that is
// prepared and not handed in, one ring with numbers of requests and one that takes them in order.
// Some memory of a ring is shared with the kernel, so the program has no library between.
#define _GNU_SOURCE
#include "check.h"
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef IORING_SETUP_NO_SQARRAY
#define IORING_SETUP_NO_SQARRAY (1u << 16)
#endif

enum { REQUESTS = 64 };

struct ring {
    int fd;
    unsigned *taken, *handed_in, *read, *answered, *numbers, mask, answers_mask;
    struct io_uring_cqe *answers;
    struct io_uring_sqe *requests;
    unsigned prepared;
};

// Whether this kernel has such rings.
static int make(struct ring *r, unsigned flags) {
    struct io_uring_params p;
    memset(&p, 0, sizeof p);
    p.flags = flags;
    r->fd = (int)syscall(SYS_io_uring_setup, REQUESTS, &p);
    if (r->fd < 0) return 0;
    size_t bytes = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    if (p.sq_off.array) bytes = p.sq_off.array + p.sq_entries * 4;
    int rw = PROT_READ | PROT_WRITE;
    char *shared = mmap(NULL, bytes, rw, MAP_SHARED, r->fd, IORING_OFF_SQ_RING);
    r->requests = mmap(NULL, p.sq_entries * 64, rw, MAP_SHARED, r->fd, IORING_OFF_SQES);
    NEED(shared != MAP_FAILED && r->requests != MAP_FAILED);
    r->taken = (unsigned *)(shared + p.sq_off.head);
    r->handed_in = (unsigned *)(shared + p.sq_off.tail);
    r->read = (unsigned *)(shared + p.cq_off.head);
    r->answered = (unsigned *)(shared + p.cq_off.tail);
    r->answers = (struct io_uring_cqe *)(shared + p.cq_off.cqes);
    r->numbers = p.sq_off.array ? (unsigned *)(shared + p.sq_off.array) : NULL;
    r->mask = p.sq_entries - 1;
    r->answers_mask = p.cq_entries - 1;
    r->prepared = 0;
    return 1;
}

static void prepare(struct ring *r, int code, int fd, void *at, unsigned n, uint64_t word) {
    unsigned i = r->prepared++ & r->mask;
    struct io_uring_sqe *request = &r->requests[i];
    memset(request, 0, sizeof *request);
    request->opcode = (unsigned char)code;
    request->fd = fd;
    request->addr = (uintptr_t)at;
    request->len = n;
    request->off = (uint64_t)-1;
    request->user_data = word;
    if (r->numbers) r->numbers[i] = i;
}

static void hand_in(struct ring *r) {
    unsigned n = r->prepared - *r->handed_in;
    __atomic_store_n(r->handed_in, r->prepared, __ATOMIC_RELEASE);
    CHECK(syscall(SYS_io_uring_enter, r->fd, n, 0, 0, NULL, 0) == (long)n);
    CHECK(__atomic_load_n(r->taken, __ATOMIC_ACQUIRE) == r->prepared);
}

static void expect(struct ring *r, uint64_t word, int result) {
    unsigned next = *r->read;
    CHECK(__atomic_load_n(r->answered, __ATOMIC_ACQUIRE) != next);
    struct io_uring_cqe *answer = &r->answers[next & r->answers_mask];
    CHECK(answer->user_data == word && answer->res == result);
    add(answer->user_data + (uint64_t)answer->res);
    __atomic_store_n(r->read, next + 1, __ATOMIC_RELEASE);
}

static void round_of(struct ring *r, const int *pipe, uint64_t i) {
    uint64_t said = value_at(i), heard = 0;
    // What the round before has left: an answer to be read, a request to be handed in.
    if (i > 0) expect(r, 3 * i - 1, 0);
    prepare(r, IORING_OP_WRITE, pipe[1], &said, 8, 3 * i);
    hand_in(r);
    if (i > 0) expect(r, 1000000000 + i, 0);
    expect(r, 3 * i, 8);
    prepare(r, IORING_OP_READ, pipe[0], &heard, 8, 3 * i + 1);
    prepare(r, IORING_OP_NOP, -1, NULL, 0, 3 * i + 2);
    hand_in(r);
    expect(r, 3 * i + 1, 8);
    CHECK(heard == said);
    prepare(r, IORING_OP_NOP, -1, NULL, 0, 1000000000 + i + 1);
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 6000);
    struct ring rings[2];
    int count = make(&rings[0], 0);
    if (!count) {
        fprintf(stderr, "no io_uring (errno %d)\n", errno);
        return 77;
    }
    count += make(&rings[1], IORING_SETUP_NO_SQARRAY);
    int ends[2];
    NEED(pipe(ends) == 0);
    for (long i = 0; i < 2; i++)
        for (int k = 0; k < count; k++) round_of(&rings[k], ends, (uint64_t)i);
    // From here on its layout can be told.
    ready();
    for (long i = 2; i < n; i++) {
        for (int k = 0; k < count; k++) round_of(&rings[k], ends, (uint64_t)i);
        work(1);
    }
    return finish("rings");
}

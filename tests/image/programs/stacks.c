// A stack that grows by recursion, handlers on an alternate stack, user-level contexts that switch,
// non-local jumps.
#define _GNU_SOURCE
#include "check.h"
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

static ucontext_t contexts[3], back;
static long switches, handled;
static char *alternate;
enum { ALTERNATE = 1 << 16 };

static uint64_t descend(long depth) {
    volatile uint64_t frame[128];
    for (int i = 0; i < 128; i++) frame[i] = value_at((uint64_t)(depth * 128 + i));
    uint64_t below = depth ? descend(depth - 1) : work(5);
    for (int i = 0; i < 128; i++) {
        CHECK(frame[i] == value_at((uint64_t)(depth * 128 + i)));
        below = below * 31 + frame[i];
    }
    return below;
}

static void coroutine(int me) {
    for (uint64_t step = 0;; step++) {
        uint64_t kept = value_at(step + (uint64_t)me);
        switches++;
        swapcontext(&contexts[me], me == 2 ? &back : &contexts[me + 1]);
        CHECK(kept == value_at(step + (uint64_t)me));
        add(kept);
    }
}

static void handler(int signal) {
    char here;
    CHECK(&here > alternate && &here < alternate + ALTERNATE);
    CHECK(signal == SIGUSR1);
    handled++;
    work(3);
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 250);
    alternate = malloc(ALTERNATE);
    stack_t stack = {.ss_sp = alternate, .ss_size = ALTERNATE}, seen;
    NEED(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    NEED(sigaction(SIGUSR1, &action, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = malloc(65536);
        contexts[i].uc_stack.ss_size = 65536;
        makecontext(&contexts[i], (void (*)(void))coroutine, 1, i);
    }
    for (volatile long i = 0; i < n; i++) {
        // Deeper and deeper, up to some 4 MiB.
        add(descend(100 + i * 3900 / n));
        swapcontext(&back, &contexts[0]);
        raise(SIGUSR1);
        jmp_buf place;
        volatile int came = setjmp(place);
        if (!came) longjmp(place, 7);
        CHECK(came == 7);
        CHECK(sigaltstack(NULL, &seen) == 0 && seen.ss_sp == alternate);
    }
    CHECK(switches == 3 * n && handled == n);
    return finish("stacks");
}

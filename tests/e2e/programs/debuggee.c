/* What a debugger is to find in a core file made from an image: threads, a list on the heap, thread-
 * local data, a call stack, a vector register, and a mapping with a pattern whose address it prints. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct node {
    struct node *next;
    long value;
};

struct node *list;
int answer = 42;
const char *message = "text in read-only data";
char zeros[100000];
static volatile __thread long mine;
static pthread_barrier_t ready;

static void *work(void *number) {
    mine = (long)number * 100;
    pthread_barrier_wait(&ready);
    for (;;) pause();
    return NULL;
}

__attribute__((noinline)) void deep(int level) {
    double marker = 3.5;
    if (level > 0) deep(level - 1);
    while (level == 0) {
        __asm__ volatile("movsd %0, %%xmm7\n mov $34, %%eax\n syscall"
                         :
                         : "m"(marker)
                         : "rax", "rcx", "r11", "xmm7", "memory");
    }
    __asm__ volatile("" ::: "memory");
}

int main(void) {
    for (long i = 0; i < 5; i++) {
        struct node *node = malloc(sizeof *node);
        if (!node) return 1;
        node->next = list;
        node->value = i * i;
        list = node;
    }
    answer = 4711;
    mine = 7;
    char *pattern = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pattern == MAP_FAILED) return 1;
    for (int i = 0; i < 1 << 15; i++) pattern[i] = (char)(i % 251);
    pthread_barrier_init(&ready, NULL, 3);
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    pthread_barrier_wait(&ready);
    printf("%p\n", (void *)pattern);
    fflush(stdout);
    deep(3);
    return 0;
}

/* Dies of its own bug. */
#include <stdio.h>

int main(void)
{
    puts("before");
    fflush(stdout);
    *(volatile int *)0 = 1;
    return 0;
}

/*
 * Functions with a variable number of arguments, which stable Rust cannot define: they hand theirs on
 * (`libc_calls/print.rs`).
 */
#include <stdarg.h>

int eyrie_libc_vdprintf(int fd, const char *format, va_list list);
int eyrie_libc___vdprintf_chk(int fd, int flag, const char *format, va_list list);

int eyrie_libc_dprintf(int fd, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int count = eyrie_libc_vdprintf(fd, format, list);
    va_end(list);
    return count;
}

int eyrie_libc___dprintf_chk(int fd, int flag, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int count = eyrie_libc___vdprintf_chk(fd, flag, format, list);
    va_end(list);
    return count;
}

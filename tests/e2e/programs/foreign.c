/* Linked to a library that calls itself liboshmem.so.40 (as Open MPI's for OpenSHMEM does); it must be
 * refused before it starts. */
extern int foreign_library(void);

int main(void)
{
    return foreign_library();
}

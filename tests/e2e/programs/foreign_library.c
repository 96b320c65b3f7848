/* Stands for Open MPI's library: only its name matters. */
int foreign_library(void)
{
    return 0;
}

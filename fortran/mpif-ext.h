! What handles failures (ULFM) is in mpif.h. This file is for programs that include it besides.

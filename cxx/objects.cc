// The objects of the C++ bindings. A linker may have moved them into the program.

#include "classes.h"

// Each is declared as well: what is constant would else be of this file alone.
#define DEFINE(Class, Handle, name, object)                  \
    extern "C" char ompi_##object[];                         \
    namespace MPI {                                          \
    extern const Class name;                                 \
    const Class name(OBJECT(Handle, object));                \
    }
#define TYPE(name, object) DEFINE(Datatype, MPI_Datatype, name, mpi_##object)
#define OPERATION(name, object) DEFINE(Op, MPI_Op, name, mpi_op_##object)
// One that the program's code may write to.
#define VARIABLE(Class, Handle, name, object)                \
    extern "C" char ompi_##object[];                         \
    namespace MPI {                                          \
    extern Class name;                                       \
    Class name(OBJECT(Handle, object));                      \
    }

TYPE(DATATYPE_NULL, datatype_null)
TYPE(CHAR, char)
TYPE(SHORT, short)
TYPE(INT, int)
TYPE(LONG, long)
TYPE(SIGNED_CHAR, signed_char)
TYPE(UNSIGNED_CHAR, unsigned_char)
TYPE(UNSIGNED_SHORT, unsigned_short)
TYPE(UNSIGNED, unsigned)
TYPE(UNSIGNED_LONG, unsigned_long)
TYPE(FLOAT, float)
TYPE(DOUBLE, double)
TYPE(LONG_DOUBLE, long_double)
TYPE(BYTE, byte)
TYPE(PACKED, packed)
TYPE(WCHAR, wchar)
TYPE(FLOAT_INT, float_int)
TYPE(DOUBLE_INT, double_int)
TYPE(LONG_INT, long_int)
TYPE(TWOINT, 2int)
TYPE(SHORT_INT, short_int)
TYPE(LONG_DOUBLE_INT, longdbl_int)
TYPE(INTEGER, integer)
TYPE(REAL, real)
TYPE(DOUBLE_PRECISION, dblprec)
TYPE(F_COMPLEX, cplex)
TYPE(LOGICAL, logical)
TYPE(CHARACTER, character)
TYPE(TWOREAL, 2real)
TYPE(TWODOUBLE_PRECISION, 2dblprec)
TYPE(TWOINTEGER, 2integer)
TYPE(INTEGER1, integer1)
TYPE(INTEGER2, integer2)
TYPE(INTEGER4, integer4)
TYPE(REAL2, real2)
TYPE(REAL4, real4)
TYPE(REAL8, real8)
TYPE(LONG_LONG, long_long_int)
TYPE(LONG_LONG_INT, long_long_int)
TYPE(UNSIGNED_LONG_LONG, unsigned_long_long)
TYPE(BOOL, cxx_bool)
TYPE(COMPLEX, cxx_cplex)
TYPE(DOUBLE_COMPLEX, cxx_dblcplex)
TYPE(F_DOUBLE_COMPLEX, dblcplex)
TYPE(LONG_DOUBLE_COMPLEX, cxx_ldblcplex)
TYPE(UB, ub)
TYPE(LB, lb)

OPERATION(OP_NULL, null)
OPERATION(MAX, max)
OPERATION(MIN, min)
OPERATION(SUM, sum)
OPERATION(PROD, prod)
OPERATION(MAXLOC, maxloc)
OPERATION(MINLOC, minloc)
OPERATION(BAND, band)
OPERATION(BOR, bor)
OPERATION(BXOR, bxor)
OPERATION(LAND, land)
OPERATION(LOR, lor)
OPERATION(LXOR, lxor)
OPERATION(REPLACE, replace)

DEFINE(Group, MPI_Group, GROUP_NULL, mpi_group_null)
DEFINE(Group, MPI_Group, GROUP_EMPTY, mpi_group_empty)
DEFINE(Win, MPI_Win, WIN_NULL, mpi_win_null)
DEFINE(Info, MPI_Info, INFO_NULL, mpi_info_null)
DEFINE(File, MPI_File, FILE_NULL, mpi_file_null)
DEFINE(Errhandler, MPI_Errhandler, ERRHANDLER_NULL, mpi_errhandler_null)
DEFINE(Errhandler, MPI_Errhandler, ERRORS_ARE_FATAL, mpi_errors_are_fatal)
DEFINE(Errhandler, MPI_Errhandler, ERRORS_RETURN, mpi_errors_return)
// Null until MPI::Init (callbacks.cc).
VARIABLE(Errhandler, MPI_Errhandler, ERRORS_THROW_EXCEPTIONS, mpi_errhandler_null)
VARIABLE(Intracomm, MPI_Comm, COMM_WORLD, mpi_comm_world)
VARIABLE(Intracomm, MPI_Comm, COMM_SELF, mpi_comm_self)
VARIABLE(Comm_Null, MPI_Comm, COMM_NULL, mpi_comm_null)
VARIABLE(Request, MPI_Request, REQUEST_NULL, request_null)

namespace MPI {
int mpi_errno = MPI_SUCCESS;
extern void *const BOTTOM, *const IN_PLACE;
void *const BOTTOM = nullptr;
void *const IN_PLACE = reinterpret_cast<void *>(1);
extern const char **ARGV_NULL, ***ARGVS_NULL;
const char **ARGV_NULL = nullptr;
const char ***ARGVS_NULL = nullptr;
extern const char ompi_libcxx_version_string[];
const char ompi_libcxx_version_string[] = "Eyrie";
}  // namespace MPI

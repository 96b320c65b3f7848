/*
 * What the ABI of MPI 5.0 leaves out and programs still use: Fortran handles and statuses in C, and the
 * names that MPI-3 removed. Included by mpi.h, not by programs. Eyrie's libraries export all of it; a
 * libmpi_abi.so.1 of others need not. (MPI_LB and MPI_UB have no value in this ABI: use
 * MPI_Type_create_resized.)
 */
#ifndef EYRIE_MPI_LEGACY_H
#define EYRIE_MPI_LEGACY_H

#define EYRIE_MPI(type, name, arguments) \
    type MPI_##name arguments;           \
    type PMPI_##name arguments;

/* An INTEGER of Fortran; it holds any handle. */
typedef int MPI_Fint;

EYRIE_MPI(MPI_Fint, Comm_c2f, (MPI_Comm comm))
EYRIE_MPI(MPI_Comm, Comm_f2c, (MPI_Fint comm))
EYRIE_MPI(MPI_Fint, Errhandler_c2f, (MPI_Errhandler errhandler))
EYRIE_MPI(MPI_Errhandler, Errhandler_f2c, (MPI_Fint errhandler))
EYRIE_MPI(MPI_Fint, File_c2f, (MPI_File file))
EYRIE_MPI(MPI_File, File_f2c, (MPI_Fint file))
EYRIE_MPI(MPI_Fint, Group_c2f, (MPI_Group group))
EYRIE_MPI(MPI_Group, Group_f2c, (MPI_Fint group))
EYRIE_MPI(MPI_Fint, Info_c2f, (MPI_Info info))
EYRIE_MPI(MPI_Info, Info_f2c, (MPI_Fint info))
EYRIE_MPI(MPI_Fint, Message_c2f, (MPI_Message message))
EYRIE_MPI(MPI_Message, Message_f2c, (MPI_Fint message))
EYRIE_MPI(MPI_Fint, Op_c2f, (MPI_Op op))
EYRIE_MPI(MPI_Op, Op_f2c, (MPI_Fint op))
EYRIE_MPI(MPI_Fint, Request_c2f, (MPI_Request request))
EYRIE_MPI(MPI_Request, Request_f2c, (MPI_Fint request))
EYRIE_MPI(MPI_Fint, Session_c2f, (MPI_Session session))
EYRIE_MPI(MPI_Session, Session_f2c, (MPI_Fint session))
EYRIE_MPI(MPI_Fint, Type_c2f, (MPI_Datatype datatype))
EYRIE_MPI(MPI_Datatype, Type_f2c, (MPI_Fint datatype))
EYRIE_MPI(MPI_Fint, Win_c2f, (MPI_Win win))
EYRIE_MPI(MPI_Win, Win_f2c, (MPI_Fint win))

/* A program that is compiled with these runs with any library of this ABI. */
#define MPI_Comm_c2f(comm) MPI_Comm_toint(comm)
#define MPI_Comm_f2c(comm) MPI_Comm_fromint(comm)
#define MPI_Errhandler_c2f(errhandler) MPI_Errhandler_toint(errhandler)
#define MPI_Errhandler_f2c(errhandler) MPI_Errhandler_fromint(errhandler)
#define MPI_File_c2f(file) MPI_File_toint(file)
#define MPI_File_f2c(file) MPI_File_fromint(file)
#define MPI_Group_c2f(group) MPI_Group_toint(group)
#define MPI_Group_f2c(group) MPI_Group_fromint(group)
#define MPI_Info_c2f(info) MPI_Info_toint(info)
#define MPI_Info_f2c(info) MPI_Info_fromint(info)
#define MPI_Message_c2f(message) MPI_Message_toint(message)
#define MPI_Message_f2c(message) MPI_Message_fromint(message)
#define MPI_Op_c2f(op) MPI_Op_toint(op)
#define MPI_Op_f2c(op) MPI_Op_fromint(op)
#define MPI_Request_c2f(request) MPI_Request_toint(request)
#define MPI_Request_f2c(request) MPI_Request_fromint(request)
#define MPI_Session_c2f(session) MPI_Session_toint(session)
#define MPI_Session_f2c(session) MPI_Session_fromint(session)
#define MPI_Type_c2f(datatype) MPI_Type_toint(datatype)
#define MPI_Type_f2c(datatype) MPI_Type_fromint(datatype)
#define MPI_Win_c2f(win) MPI_Win_toint(win)
#define MPI_Win_f2c(win) MPI_Win_fromint(win)
#define PMPI_Comm_c2f(comm) PMPI_Comm_toint(comm)
#define PMPI_Comm_f2c(comm) PMPI_Comm_fromint(comm)
#define PMPI_Errhandler_c2f(errhandler) PMPI_Errhandler_toint(errhandler)
#define PMPI_Errhandler_f2c(errhandler) PMPI_Errhandler_fromint(errhandler)
#define PMPI_File_c2f(file) PMPI_File_toint(file)
#define PMPI_File_f2c(file) PMPI_File_fromint(file)
#define PMPI_Group_c2f(group) PMPI_Group_toint(group)
#define PMPI_Group_f2c(group) PMPI_Group_fromint(group)
#define PMPI_Info_c2f(info) PMPI_Info_toint(info)
#define PMPI_Info_f2c(info) PMPI_Info_fromint(info)
#define PMPI_Message_c2f(message) PMPI_Message_toint(message)
#define PMPI_Message_f2c(message) PMPI_Message_fromint(message)
#define PMPI_Op_c2f(op) PMPI_Op_toint(op)
#define PMPI_Op_f2c(op) PMPI_Op_fromint(op)
#define PMPI_Request_c2f(request) PMPI_Request_toint(request)
#define PMPI_Request_f2c(request) PMPI_Request_fromint(request)
#define PMPI_Session_c2f(session) PMPI_Session_toint(session)
#define PMPI_Session_f2c(session) PMPI_Session_fromint(session)
#define PMPI_Type_c2f(datatype) PMPI_Type_toint(datatype)
#define PMPI_Type_f2c(datatype) PMPI_Type_fromint(datatype)
#define PMPI_Win_c2f(win) PMPI_Win_toint(win)
#define PMPI_Win_f2c(win) PMPI_Win_fromint(win)

/* Statuses: in mpif.h and the module mpi MPI_F_STATUS_SIZE integers, in mpi_f08 a type of the same. */
typedef struct {
    MPI_Fint MPI_SOURCE;
    MPI_Fint MPI_TAG;
    MPI_Fint MPI_ERROR;
    MPI_Fint MPI_internal[5];
} MPI_F08_status;

extern MPI_Fint *MPI_F_STATUS_IGNORE;
extern MPI_Fint *MPI_F_STATUSES_IGNORE;
extern MPI_F08_status *MPI_F08_STATUS_IGNORE;
extern MPI_F08_status *MPI_F08_STATUSES_IGNORE;

EYRIE_MPI(int, Status_c2f, (const MPI_Status *c_status, MPI_Fint *f_status))
EYRIE_MPI(int, Status_f2c, (const MPI_Fint *f_status, MPI_Status *c_status))
EYRIE_MPI(int, Status_c2f08, (const MPI_Status *c_status, MPI_F08_status *f08_status))
EYRIE_MPI(int, Status_f082c, (const MPI_F08_status *f08_status, MPI_Status *c_status))
EYRIE_MPI(int, Status_f2f08, (const MPI_Fint *f_status, MPI_F08_status *f08_status))
EYRIE_MPI(int, Status_f082f, (const MPI_F08_status *f08_status, MPI_Fint *f_status))

/* Removed by MPI-3. */
typedef MPI_Comm_errhandler_function MPI_Handler_function;

EYRIE_MPI(int, Address, (void *location, MPI_Aint *address))
EYRIE_MPI(int, Errhandler_create, (MPI_Handler_function *handler_fn, MPI_Errhandler *errhandler))
EYRIE_MPI(int, Errhandler_get, (MPI_Comm comm, MPI_Errhandler *errhandler))
EYRIE_MPI(int, Errhandler_set, (MPI_Comm comm, MPI_Errhandler errhandler))
EYRIE_MPI(int, Type_extent, (MPI_Datatype datatype, MPI_Aint *extent))
EYRIE_MPI(int, Type_hindexed, (int count, int array_of_blocklengths[],
          MPI_Aint array_of_displacements[], MPI_Datatype oldtype, MPI_Datatype *newtype))
EYRIE_MPI(int, Type_hvector, (int count, int blocklength, MPI_Aint stride, MPI_Datatype oldtype,
          MPI_Datatype *newtype))
EYRIE_MPI(int, Type_lb, (MPI_Datatype datatype, MPI_Aint *displacement))
EYRIE_MPI(int, Type_struct, (int count, int array_of_blocklengths[],
          MPI_Aint array_of_displacements[], MPI_Datatype array_of_types[], MPI_Datatype *newtype))
EYRIE_MPI(int, Type_ub, (MPI_Datatype datatype, MPI_Aint *displacement))

#undef EYRIE_MPI

#endif
